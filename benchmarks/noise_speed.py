"""Speed of the exact discrete samplers with the system's entropy, compared with numpy's continuous samplers.

    taciturn bench noise-speed

Writes benchmarks/results/noise_speed.json. Everything runs in one thread and one process, and rates are those of the
best call in processor time; a ratio is numpy's samples per second (Generator of PCG64, floating point, not for privacy)
over ours in the same run, so more is slower. The rates of the plain form, without the compiled library, are there too.

Takes ten seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from benchmarks.program import arguments, write_results
from numpy.typing import NDArray

from taciturn.kernels import discrete_noise
from taciturn.privacy.discrete import Entropy, SystemEntropy, discrete_gaussian, discrete_laplace

Sampler = Callable[[float, int, Entropy], NDArray[np.int64]]
SCALES = [0.5, 1e3, 1e6, 1e9, 1e13]
SIZES = {1_000_000: 20, 7840: 200}  # samples a call: how many calls


class Counted:
    """The system's entropy, counting its bytes."""

    def __init__(self) -> None:
        self.source = SystemEntropy()
        self.bytes = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        self.bytes += 8 * count
        return self.source.words(count)


def millions(draw: Callable[[], Any], size: int) -> float:
    """Return the millions of samples per second of processor time in the fastest of the calls."""
    best = math.inf
    for _ in range(SIZES[size]):
        start = time.process_time()
        draw()
        best = min(best, time.process_time() - start)
    return size / best / 1e6


def measured(sampler: Sampler, scale: float, size: int, numpy_rate: float) -> dict[str, float]:
    """The rate of one sampler at one scale and size, its ratio to numpy's, and the entropy a sample costs."""
    rate = millions(lambda: sampler(scale, size, SystemEntropy()), size)
    with patch.object(discrete_noise, "library", lambda: None):
        plain = millions(lambda: sampler(scale, size, SystemEntropy()), size)
    counted = Counted()
    sampler(scale, size, counted)
    return {
        "million_samples_per_second": round(rate, 1),
        "million_samples_per_second_of_the_plain_form": round(plain, 1),
        "numpy_over_ours": round(numpy_rate / rate, 2),
        "entropy_bytes_per_sample": round(counted.bytes / size, 2),
    }


def table(sampler: Sampler, numpy_draw: Callable[[int], Any]) -> dict[str, Any]:
    """All scales at each size."""
    result: dict[str, Any] = {}
    for size in SIZES:
        numpy_rate = millions(partial(numpy_draw, size), size)
        rows = {f"scale {scale:g}": measured(sampler, scale, size, numpy_rate) for scale in SCALES}
        result[f"{size} a call"] = {"numpy_million_samples_per_second": round(numpy_rate, 1), **rows}
    return result


def main() -> None:
    """Measure both samplers."""
    given = arguments(__doc__, "noise_speed").parse_args()
    generator = np.random.default_rng(0)
    result = {
        "what": "exact discrete noise from os.urandom on one core, and numpy's standard_normal and laplace beside it",
        "discrete_laplace": table(discrete_laplace, lambda size: generator.laplace(size=size)),
        "discrete_gaussian": table(discrete_gaussian, lambda size: generator.standard_normal(size=size)),
    }
    write_results(given.out, result, show=True)


if __name__ == "__main__":
    main()
