"""The features of published data sets, kept in the user's cache folder so that a second run does not compute them.

An entry holds the whole-number steps of every record (`steps_of`), so a feature that is read has the
bits of one that is computed. Its name is the digest of everything it depends on. Only records that are published are
kept, never those of a table; an entry that is damaged is ignored and replaced.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import row_blocks
from taciturn.core.storage import atomic_write, cache_folder, make_folder
from taciturn.data.dataset_source import DataOptions, check_memory, data_folder, memory_limit, source_for
from taciturn.data.feature_maps import MAPS, NONE, InputShape, SteppedMap
from taciturn.data.feature_maps.feature_map import unit_rows
from taciturn.types import Array

LIMIT = "TACITURN_FEATURE_CACHE"  # the environment variable with the size of all entries together
DEFAULT_LIMIT = "2GB"
OFF = ("0", "off")
STEP = np.dtype("<i2")
NEGATIVE_ZERO = -(2**15)  # a stored number that is no step: -0.0 has other bits than 0.0

StoredSteps: TypeAlias = NDArray[np.int16]
"""Steps [n, width] as an entry holds them."""


def entry_for(options: DataOptions, records: Sequence[Array]) -> Path | None:
    """Return the file for the features of these records; None if they are not kept.

    Parameters
    ----------
    options
        The data set and its feature map.
    records
        Encoded records [n, J] without the intercept, in the order in which they are mapped.
    """
    source = source_for(options.data)
    if options.features == NONE or not (source.open_records and MAPS[options.features].kept and size_limit()):
        return None
    if source.known is not None and not source.known(data_folder(options.data_dir)):
        return None
    shape = InputShape(records[0].shape[1], source.image)
    described = (options.features, shape, records[0].dtype.str, code_digest(), np.__version__)
    digest = hashlib.sha256(repr(described).encode())
    for x in records:
        for block in row_blocks(len(x), x[:1].nbytes):
            digest.update(np.ascontiguousarray(x[block]).data)
    return folder() / f"{source.name}-{options.features}-{digest.hexdigest()[:32]}.steps"


def folder() -> Path:
    """Return the folder of the entries."""
    return cache_folder() / "features"


def size_limit() -> int:
    """Return the bytes that all entries together may take; 0 if features are not kept.

    Raises
    ------
    InputError
        If the environment variable is not a size.
    """
    given = os.environ.get(LIMIT, "") or DEFAULT_LIMIT
    return 0 if given.lower() in OFF else memory_limit(check_memory(LIMIT, given))


@cache
def code_digest() -> str:
    """Return the digest of the feature maps' source code: other code may give other features."""
    files = sorted(Path(__file__).parent.joinpath("feature_maps").glob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def map_and_keep(phi: SteppedMap, kept: list[StoredSteps], x: Array) -> NDArray[np.float64]:
    """Map records and append their steps to a list; steps too large to be stored are appended as an empty block."""
    steps = phi.steps(x)
    stored = np.where((steps == 0) & np.signbit(steps), NEGATIVE_ZERO, steps)
    fits = not stored.size or np.abs(steps).max() < -NEGATIVE_ZERO
    kept.append(stored.astype(STEP) if fits else np.empty(0, STEP))
    return unit_rows(steps)


def features_of(stored: StoredSteps) -> NDArray[np.float64]:
    """Return the features of stored steps: the bits that the map returned."""
    steps = stored.astype(np.float64)
    steps[stored == NEGATIVE_ZERO] = -0.0
    return unit_rows(steps)


def read_steps(entry: Path, rows: int, width: int) -> StoredSteps | None:
    """Return the steps [rows, width] of an entry; None if there is none, or it is damaged."""
    try:
        content = entry.read_bytes()
    except OSError:
        return None
    stored = memoryview(content)[: rows * width * STEP.itemsize]
    if content[len(stored) :] != hashlib.sha256(stored).digest():
        return None
    with suppress(OSError):
        os.utime(entry)  # what was read last is removed last
    return np.frombuffer(stored, STEP).reshape(rows, width)


def write_steps(entry: Path, blocks: Sequence[StoredSteps]) -> None:
    """Store an entry and remove the oldest ones beyond the limit; without room or a place to write, store nothing."""
    if sum(block.nbytes for block in blocks) > size_limit() or not all(block.size for block in blocks):
        return
    digest = hashlib.sha256()
    with suppress(OSError):
        make_folder(entry.parent, exist_ok=True)
        with atomic_write(entry) as file:
            for block in blocks:
                digest.update(block.data)
                file.write(block.data)
            file.write(digest.digest())
        _make_room()


def clear() -> int:
    """Remove all entries and return how many bytes they took."""
    found = [(path, path.stat().st_size) for path in folder().glob("*") if path.is_file()]
    for path, _ in found:
        path.unlink(missing_ok=True)
    return sum(size for _, size in found)


def _make_room() -> None:
    entries = sorted(folder().glob("*.steps"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    taken = 0
    for path in entries:
        taken += path.stat().st_size
        if taken > size_limit():
            path.unlink(missing_ok=True)
