"""Records for benchmarks: MNIST if it is available, else noise with its shape and density, and dense noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.data import DataOptions, data_folder, load
from taciturn.data.datasets.mnist import find_files
from taciturn.errors import TaciturnError
from taciturn.research.bench.timing import Options
from taciturn.types import Array, Shard

RECORDS, FEATURES, CLASSES, AGENTS = 60_000, 784, 10, 10
DENSITY = 0.191  # the share of MNIST's pixels that are not 0
SMALL = 600  # records


class Input(NamedTuple):
    """Records in Taciturn's format, and as one dense float32 matrix for other libraries."""

    what: str
    shards: tuple[Shard, ...]
    x: Array  # [I, J]
    labels: NDArray[np.int64]  # [I]
    real: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """P, I, J and K."""
        return len(self.shards), *self.x.shape, self.shards[0].y.shape[1]


def has_mnist(data_dir: str = "") -> bool:
    """Return whether MNIST's files are in the folder of the data sets."""
    try:
        find_files(data_folder(data_dir))
    except TaciturnError:
        return False
    return True


def mnist(options: Options) -> Input:
    """Return MNIST partitioned in file order or, if its files are missing, noise with its shape and density."""
    if options.small or not has_mnist(options.data_dir):
        return sparse(SMALL if options.small else RECORDS)
    options.watch("loading MNIST")
    wanted = DataOptions(data="mnist", data_dir=options.data_dir, agents=AGENTS, precision="float32")
    shards = load(wanted).train
    x = np.concatenate([np.asarray(shard.x, np.float32) for shard in shards])
    return Input("MNIST", shards, x, _labels(shards), real=True)


def sparse(records: int) -> Input:
    """Return eight-bit pixels, most of them 0, divided by 255."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(1, 256, (records, FEATURES), np.uint8)
    pixels[generator.random(pixels.shape, np.float32) >= DENSITY] = 0
    x = np.divide(pixels, np.float32(255), dtype=np.float32)
    return _input(f"synthetic, {100 * DENSITY:.1f} % not 0, as MNIST", x, AGENTS, CLASSES)


def dense(records: int, features: int = FEATURES, agents: int = AGENTS, classes: int = CLASSES) -> Input:
    """Return uniform numbers in [0, 1)."""
    x = np.random.default_rng(0).random((records, features), np.float32)
    return _input("synthetic, uniform", x, agents, classes)


def _input(what: str, x: Array, agents: int, classes: int) -> Input:
    labels = np.random.default_rng(1).integers(0, classes, len(x))
    y = np.eye(classes, dtype=np.float32)[labels]
    parts = zip(np.array_split(x, agents), np.array_split(y, agents), strict=True)
    return Input(what, tuple(Shard(*part) for part in parts), x, labels)


def _labels(shards: Sequence[Shard]) -> NDArray[Any]:
    return np.concatenate([shard.y.argmax(axis=1) for shard in shards])
