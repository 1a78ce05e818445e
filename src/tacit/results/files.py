"""Files that are whole or absent: written beside their place, flushed to the disk, then moved there."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from tacit.errors import InputError
from tacit.types import Array


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when the block ends well and vanishes when it does not."""
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to put {path.name} into")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Replace a text file."""
    with replacing(path) as file:
        file.write(text.encode())


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Replace an .npz file; the same arrays give the same bytes."""
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file, which must be whole."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return dict(stored)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except Exception:
        raise InputError(f"{path} is damaged: it was cut short or overwritten, and cannot be read") from None


def to_json(value: Any) -> str:
    """One line of JSON; infinities become the string "inf", a number that is not there becomes null."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    match value:
        case float() | np.floating():
            return None if math.isnan(value) else float(value) if math.isfinite(value) else f"{float(value):g}"
        case np.integer():
            return int(value)
        case np.ndarray():
            return _plain(value.tolist())
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value
