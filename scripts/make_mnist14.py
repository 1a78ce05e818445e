"""Make src/taciturn/data/mnist14.bin.xz from the four MNIST files: python scripts/make_mnist14.py FOLDER [OUT]."""

from __future__ import annotations

import hashlib
import lzma
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taciturn.data.mnist_files import (
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    is_canonical,
    read_images,
    read_labels,
    variants,
)

OUT = Path(__file__).parent.parent / "src" / "taciturn" / "data" / "mnist14.bin.xz"


def shrink(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Average 2 x 2 pixels into 16 levels: q = floor(15 s / 1020 + 1/2), s the sum of the four; halves go up."""
    blocks = images.reshape(-1, 14, 2, 14, 2).sum(axis=(2, 4), dtype=np.int64)  # [n, 14, 14] in 0..1020
    levels: NDArray[np.uint8] = ((30 * blocks + 1020) // 2040).astype(np.uint8)
    return levels


def pack(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    """Two pixels to a byte, a pixel with the one below it (this compresses best), then two labels to a byte."""
    levels = shrink(images)
    pixels = levels[:, 0::2] << 4 | levels[:, 1::2]  # [n, 7, 14]
    return bytes(pixels.tobytes() + (labels[0::2] << 4 | labels[1::2]).tobytes())


def make(folder: Path) -> bytes:
    """The uncompressed content, from the canonical files only."""
    paths = {name: _canonical(folder, name) for name in (TRAIN_IMAGES, TEST_IMAGES, TRAIN_LABELS, TEST_LABELS)}
    images = np.concatenate([read_images(paths[TRAIN_IMAGES]), read_images(paths[TEST_IMAGES])])
    labels = np.concatenate([read_labels(paths[TRAIN_LABELS]), read_labels(paths[TEST_LABELS])])
    return pack(images, labels)


def _canonical(folder: Path, name: str) -> Path:
    for path in variants(folder, name):
        if is_canonical(path, name):
            return path
    raise SystemExit(f"{folder} has no {name} (or {name}.gz) with the canonical MD5")


def main(arguments: list[str]) -> None:
    """Write the file and say its checksum, which belongs in src/taciturn/data/sources/mnist14.py."""
    if not 1 <= len(arguments) <= 2:
        raise SystemExit(__doc__)
    out = Path(arguments[1]) if len(arguments) == 2 else OUT
    packed = lzma.compress(make(Path(arguments[0])), check=lzma.CHECK_CRC64, preset=9 | lzma.PRESET_EXTREME)
    out.write_bytes(packed)
    print(f"{out}: {len(packed)} bytes, SHA-256 {hashlib.sha256(packed).hexdigest()}")


if __name__ == "__main__":
    main(sys.argv[1:])
