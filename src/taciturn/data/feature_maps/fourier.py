"""Random Fourier features: a linear model of them bends as a Gaussian kernel does.

Rahimi and Recht, "Random features for large-scale kernel machines", 2007. The frequencies are drawn once, from a seed
that everybody knows, so that the map is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taciturn.data.feature_maps.exact_arithmetic import normalize_rows
from taciturn.data.feature_maps.feature_map import MAPS, FeatureMap, Raw
from taciturn.types import Array

WAVES, SEED = 500, 1
KERNEL = 0.5  # standard deviation, over sqrt(J), the farthest a record can be from the origin
STEPS = 2**16  # of a feature and of a frequency, whose products add up exactly


@dataclass(frozen=True, eq=False)
class Fourier:
    """phi(x) = (cos w.x, sin w.x for every frequency w), scaled to length 1."""

    frequencies: NDArray[np.float64]  # [J, WAVES]  whole multiples of 1/STEPS

    def __call__(self, x: Array) -> NDArray[np.float64]:
        """Every record by itself."""
        phase = np.rint(STEPS * np.asarray(x, np.float64)) @ self.frequencies / STEPS
        return normalize_rows(np.concatenate([np.cos(phase), np.sin(phase)], axis=1))


def _width(raw: Raw) -> int:
    return 2 * WAVES


def _build(raw: Raw) -> Fourier:
    drawn = np.random.default_rng(SEED).normal(0.0, 1.0 / (KERNEL * math.sqrt(raw.width)), (raw.width, WAVES))
    return Fourier(np.rint(STEPS * drawn) / STEPS)


MAPS.register("fourier")(
    FeatureMap(f"{2 * WAVES:,} waves of random direction and frequency: a model that bends", _width, _build)
)
