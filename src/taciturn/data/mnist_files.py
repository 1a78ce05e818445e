"""MNIST's files: the IDX format, file names and checksums."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.errors import InputError, TaciturnError, missing_file

GZIP_MAGIC = b"\x1f\x8b"
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
MD5 = {  # of the uncompressed files
    TRAIN_IMAGES: "6bbc9ace898e44ae57da46a324031adb",
    TRAIN_LABELS: "a25bea736e30d166cdddb491f175f624",
    TEST_IMAGES: "2646ac647ad5339dbf082846283269ea",
    TEST_LABELS: "27ae3e4e09519cfbb04c329615203637",
}
ATTRIBUTION = (
    "The MNIST database of handwritten digits by Yann LeCun, Corinna Cortes and Christopher J. C. Burges,"
    " made from NIST's Special Databases 1 and 3"
)


def read_bytes(path: Path) -> bytes:
    """Return a file's content, decompressed if it is gzip data, whatever its name.

    Raises
    ------
    InputError
        If the file does not exist or cannot be read.
    """
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw.startswith(GZIP_MAGIC) else raw
    except FileNotFoundError as error:
        raise missing_file("file", path) from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def read_idx(path: Path) -> NDArray[Any]:
    """Read an IDX file: two zero bytes, type, number of dimensions; the sizes; the values, all big-endian.

    Raises
    ------
    InputError
        If the file does not exist, cannot be read, or is not a complete IDX file.
    """
    raw = _content(path)
    head = raw[:4].tobytes()
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in TYPES or not head[3]:
        raise InputError(f"{path} is not an IDX file: it begins with {head.hex(' ') or 'nothing'}")
    dtype, dimensions = np.dtype(TYPES[head[2]]), head[3]
    start = 4 + 4 * dimensions
    if len(raw) < start:
        raise InputError(f"{path} has {len(raw)} bytes, but its header alone has {start}")
    shape = struct.unpack(f">{dimensions}I", raw[4:start].tobytes())
    expected = start + math.prod(shape) * dtype.itemsize
    if len(raw) != expected:
        raise InputError(f"{path} has {len(raw)} bytes, but an IDX file of shape {shape} has {expected}")
    return raw[start:].view(dtype).reshape(shape)


def _content(path: Path) -> NDArray[np.uint8]:
    """Return a file's bytes; an uncompressed file is memory-mapped."""
    with suppress(OSError, ValueError):  # a missing file, or an empty one: read_bytes reports it
        mapped = np.memmap(path, np.uint8, "r")
        if mapped[:2].tobytes() != GZIP_MAGIC:
            return mapped
    return np.frombuffer(read_bytes(path), np.uint8)


def read_images(path: Path) -> NDArray[np.uint8]:
    """Read grey images [n, 28, 28]."""
    images = read_idx(path)
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28):
        raise InputError(f"{path} holds {images.dtype} of shape {images.shape}: it must be bytes of shape (n, 28, 28)")
    return images


def read_labels(path: Path) -> NDArray[np.uint8]:
    """Read class numbers [n]."""
    labels = read_idx(path)
    if labels.dtype != np.uint8 or labels.ndim != 1:
        raise InputError(f"{path} holds {labels.dtype} of shape {labels.shape}: it must be bytes of shape (n,)")
    return labels


def variants(folder: Path, name: str) -> list[Path]:
    """Return the existing paths of a file in a folder, compressed and uncompressed."""
    return [path for path in (folder / f"{name}.gz", folder / name) if path.is_file()]


def is_canonical(path: Path, name: str) -> bool:
    """Return whether a file has, after decompression, the published MD5 of the file with this name."""
    try:
        content = read_bytes(path)
    except TaciturnError:
        return False
    return hashlib.md5(content, usedforsecurity=False).hexdigest() == MD5[name]
