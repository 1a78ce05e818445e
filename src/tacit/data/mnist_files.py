"""The four files of MNIST: their names, their checksums, and where they lie."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tacit.data.idx import read_bytes
from tacit.errors import InputError

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"

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


def variants(folder: Path, name: str) -> list[Path]:
    """The paths a file may have in a folder: gzip'd or not, those that exist."""
    return [path for path in (folder / f"{name}.gz", folder / name) if path.is_file()]


def is_canonical(path: Path, name: str) -> bool:
    """Whether the file, unzipped if need be, is byte for byte the one everybody has."""
    try:
        content = read_bytes(path)
    except InputError:
        return False
    return hashlib.md5(content, usedforsecurity=False).hexdigest() == MD5[name]
