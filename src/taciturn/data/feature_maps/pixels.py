"""Feature maps that keep one feature per input: scaling records to norm 1, and smoothed, centred pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taciturn.data.feature_maps.feature_map import MAPS, FeatureMap, InputShape, normalize_rows, whole_weights
from taciturn.data.feature_maps.images import as_bytes, gaussian, grid, rounded_mean, strokes
from taciturn.types import Array

BLUR = 1.0 / 28.0  # standard deviation divided by the side of the image


@dataclass(frozen=True, eq=False)
class Pixels:
    """phi(x) = (u - mean u of strokes), scaled to norm 1, with u = Gx / ||Gx|| and G a Gaussian blur."""

    blur: NDArray[np.float32]  # [pixels, pixels], integers
    scale: float  # of a pixel from 0 to 1 in them
    centre: NDArray[np.float64]  # [pixels]

    def __call__(self, x: Array) -> NDArray[np.float64]:
        """Map every image: [n, pixels] -> [n, pixels]."""
        return normalize_rows(_smoothed(x, self.blur, self.scale) - self.centre)


def _smoothed(x: Array, blur: NDArray[np.float32], scale: float) -> NDArray[np.float64]:
    """Return u = Gx / ||Gx||, [n, pixels]."""
    return normalize_rows((as_bytes(x) @ blur).astype(np.float64) / scale)


def _width(shape: InputShape) -> int:
    return shape.width


def _build_pixels(shape: InputShape) -> Pixels:
    side = math.isqrt(shape.width)
    blur, scale = whole_weights(gaussian(grid(side, side), grid(side, side), BLUR * side), 255)
    return Pixels(blur, 255 * scale, rounded_mean(_smoothed(strokes(side), blur, 255 * scale)))


SMOOTHED = "an image's pixels, smoothed, centred on drawn strokes, scaled to length 1"
MAPS.register("unit")(FeatureMap("every record scaled to length 1", _width, lambda shape: normalize_rows, keeps=True))
MAPS.register("pixels")(FeatureMap(SMOOTHED, _width, _build_pixels, images=True, keeps=True))
