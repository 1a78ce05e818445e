"""Where a data set's records are put: in memory, or in files where they would take too much of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from tacit.data.base import PRECISIONS, DataOptions
from tacit.data.memory import memory_limit, size_text
from tacit.errors import InputError
from tacit.types import Array

ADVICE = "set TMPDIR to a folder on a disk with more space, or raise memory"


@dataclass(frozen=True)
class Room:
    """Room for records in one precision."""

    dtype: type[np.floating[Any]]
    folder: str = ""  # of the files; empty: in memory
    notes: tuple[str, ...] = ()  # what the owner should know of it

    def empty(self, rows: int, width: int) -> Array:
        """An array to fill, [rows, width]."""
        if not self.folder or not rows * width:
            return np.empty((rows, width), self.dtype)
        with tempfile.TemporaryFile(prefix="tacit-", dir=self.folder) as file:  # has no name: it goes with the process
            _reserve(file, rows * width * np.dtype(self.dtype).itemsize, self.folder)
            return np.memmap(file, self.dtype, "r+", shape=(rows, width))


def room_for(options: DataOptions, rows: int, width: int) -> Room:
    """Room for so many numbers: in files where `memory` does not allow them."""
    dtype = PRECISIONS[options.precision]
    size, limit = rows * width * np.dtype(dtype).itemsize, memory_limit(options.memory)
    if size <= limit:
        return Room(dtype)
    folder = tempfile.gettempdir()
    _check_space(folder, size)
    note = (
        f"the records take {size_text(size)} and memory allows {size_text(limit)}:"
        f" they lie in files without a name in {folder} as long as the process runs"
    )
    return Room(dtype, folder, (note,))


def _reserve(file: IO[bytes], size: int, folder: str) -> None:
    """Make the file so long, and sure of its space: to write to a mapped file on a full disk would end the process."""
    _check_space(folder, size)
    file.truncate(size)
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise InputError(
                f"{folder} cannot hold {size_text(size)} of records ({error.strerror}): {ADVICE}"
            ) from None


def _check_space(folder: str, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(f"the records need {size_text(size)} in {folder}, which has {size_text(free)} left: {ADVICE}")
