"""Pen strokes drawn by a formula: images like handwriting in which nobody's hand is."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

IMAGES, SEED = 2000, 1
POINTS = 16  # of a stroke
SPREAD = 0.2  # of its three control points, over the side of the image
PEN = 0.9 / 14  # over the side of the image


@cache
def strokes(side: int) -> NDArray[np.float64]:
    """Images of one to three curved strokes each, pixels in [0, 1] as multiples of 1/255, [n, side side]."""
    rng = np.random.default_rng(SEED)
    count = rng.integers(1, 4, IMAGES)
    controls = side / 2 + rng.normal(0.0, SPREAD * side, (IMAGES, 3, 3, 2))  # of strokes, by points, (row, column)
    t = np.linspace(0.0, 1.0, POINTS)[:, None]
    bezier = np.concatenate([(1 - t) ** 2, 2 * t * (1 - t), t**2], axis=1)  # [points, control points]
    centres = np.arange(side) + 0.5
    ink = np.zeros((IMAGES, side, side))
    for i in range(IMAGES):
        path = (bezier @ controls[i, : count[i]]).reshape(-1, 2)  # [points, (row, column)]
        rows, columns = (path[:, None, k] - centres for k in (0, 1))  # [points, side]
        nearest = np.sqrt((rows[:, :, None] ** 2 + columns[:, None, :] ** 2).min(axis=0))
        ink[i] = np.clip(1.6 - nearest / (PEN * side), 0.0, 1.0)
    return (np.rint(255 * ink) / 255).reshape(IMAGES, -1)
