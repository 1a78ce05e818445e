"""Random Fourier features: a linear model of them approximates one with a Gaussian kernel.

Rahimi and Recht, "Random features for large-scale kernel machines", 2007. The frequencies come from a fixed, public
seed, so the map is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taciturn.data.feature_maps.feature_map import MAPS, FeatureMap, InputShape, normalize_rows
from taciturn.types import Array

WAVES, SEED = 500, 1
KERNEL = 0.5  # standard deviation divided by sqrt(J), the largest distance of a record from the origin
STEPS = 2**16  # steps per unit of a feature and of a frequency; sums of their products are exact


@dataclass(frozen=True, eq=False)
class Fourier:
    """phi(x) = (cos w.x, sin w.x for every frequency w), scaled to norm 1."""

    frequencies: NDArray[np.float64]  # [J, WAVES]  multiples of 1/STEPS

    def __call__(self, x: Array) -> NDArray[np.float64]:
        """Map every record: [n, J] -> [n, 2 WAVES]."""
        phase = np.rint(STEPS * np.asarray(x, np.float64)) @ self.frequencies / STEPS
        return normalize_rows(np.concatenate([np.cos(phase), np.sin(phase)], axis=1))


def _build(shape: InputShape) -> Fourier:
    drawn = np.random.default_rng(SEED).normal(0.0, 1.0 / (KERNEL * math.sqrt(shape.width)), (shape.width, WAVES))
    return Fourier(np.rint(STEPS * drawn) / STEPS)


MAPS.register("fourier")(
    FeatureMap(
        f"{2 * WAVES:,} waves of random direction and frequency, for nonlinear boundaries",
        lambda shape: 2 * WAVES,
        _build,
    )
)
