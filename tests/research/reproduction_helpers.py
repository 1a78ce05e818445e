"""A data set with a few records in MNIST's file format."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.data.helpers import idx_bytes

SIZES = {"train": 300, "t10k": 80}


def small_mnist(root: Path) -> Path:
    """A folder for TACITURN_DATA: digits that are bright in rows of their own."""
    folder = root / "mnist"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    for part, count in SIZES.items():
        labels = rng.integers(0, 10, count).astype(np.uint8)
        images = rng.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        images[np.arange(count), 2 * labels + 3] = 200
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return root
