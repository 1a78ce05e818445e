"""Pixels made ready: smoothed, centred on drawn strokes, scaled to length 1. One feature a pixel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.data.maps.base import MAPS, FeatureMap, Raw
from tacit.data.maps.images import as_bytes, centred, gaussian, grid
from tacit.data.maps.strokes import strokes
from tacit.data.maps.whole import of_length_one, whole_weights
from tacit.types import Array

BLUR = 1.0 / 28.0  # standard deviation over the side of the image


@dataclass(frozen=True, eq=False)
class Pixels:
    """phi(x) = (u - mean u of strokes), scaled to length 1, with u = Gx / ||Gx|| and G a Gaussian blur."""

    blur: NDArray[np.float32]  # [pixels, pixels], whole numbers
    scale: float  # of a pixel from 0 to 1 in them
    centre: NDArray[np.float64]  # [pixels]

    def __call__(self, x: Array) -> NDArray[np.float64]:
        """Every image by itself."""
        return of_length_one(_smoothed(x, self.blur, self.scale) - self.centre)


def _smoothed(x: Array, blur: NDArray[np.float32], scale: float) -> NDArray[np.float64]:
    """u = Gx / ||Gx||, [n, pixels]."""
    return of_length_one((as_bytes(x) @ blur).astype(np.float64) / scale)


def _width(raw: Raw) -> int:
    return raw.width


def _build(raw: Raw) -> Pixels:
    side = math.isqrt(raw.width)
    blur, scale = whole_weights(gaussian(grid(side, side), grid(side, side), BLUR * side), 255)
    return Pixels(blur, 255 * scale, centred(_smoothed(strokes(side), blur, 255 * scale)))


MAPS.register("pixels")(
    FeatureMap(
        "an image's pixels, smoothed, centred on drawn strokes, scaled to length 1",
        _width,
        _build,
        images=True,
        keeps=True,
    )
)
