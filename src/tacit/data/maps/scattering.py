"""Wavelet scattering: how much of each size and direction there is in each part of an image, twice over.

Bruna and Mallat, "Invariant scattering convolution networks", 2013. With U = |x * psi| for wavelets psi of sizes 1, 2,
4 .. in some directions, the features are blurs of x, of every U, and of every |U * psi'| with larger psi'. Each of
these channels is scaled to length 1, the mean channel of drawn strokes is taken away, and the whole has length 1 again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.data.maps.base import MAPS, FeatureMap, Raw
from tacit.data.maps.images import as_bytes, centred, gaussian, grid
from tacit.data.maps.strokes import strokes
from tacit.data.maps.wavelets import DIRECTIONS, LEVELS, Wavelets, wavelets
from tacit.data.maps.whole import LARGEST, of_length_one, whole_weights
from tacit.types import Array

PLACES = 4  # in a row: a channel is blurred to 4 x 4 numbers
FAINT = 0.001 * PLACES * LARGEST  # a thousandth of the longest a channel can be: shorter ones are not scaled up to 1
BLOCK = 512  # images at a time


@dataclass(frozen=True, eq=False)
class Blur:
    """From a grid to the places."""

    weights: NDArray[np.float32]  # [grid, places], whole numbers

    def __call__(self, u: NDArray[np.float32]) -> NDArray[np.float64]:
        """One channel for each row, scaled to length 1: [..., grid] -> [..., places]."""
        there = (u @ self.weights).astype(np.float64)
        length = np.sqrt((there**2).sum(axis=-1, keepdims=True))  # of whole numbers: exact
        found: NDArray[np.float64] = there / (length + FAINT)
        return found


@dataclass(frozen=True, eq=False)
class Scattering:
    """The filters for images of one size."""

    image: Blur
    blurs: tuple[Blur, ...]  # by size of the wavelets
    first: tuple[Wavelets, ...]  # from the image, by size
    second: dict[tuple[int, int], Wavelets]  # from one size to a larger one
    centre: NDArray[np.float64] | float = 0.0  # [features]

    def __call__(self, x: Array) -> NDArray[np.float64]:
        """Every image by itself."""
        blocks = [x[start : start + BLOCK] for start in range(0, max(1, len(x)), BLOCK)]
        return np.concatenate([of_length_one(self.channels(block) - self.centre) for block in blocks])

    def channels(self, x: Array) -> NDArray[np.float64]:
        """All channels side by side, each of length 1, [n, features]."""
        pixels = as_bytes(x)
        parts = [self.image(pixels)]
        for size, of_size in enumerate(self.first):
            u = of_size(pixels)  # [n, DIRECTIONS, grid]
            parts.append(self.blurs[size](u))
            for larger in range(size + 1, len(self.first)):
                again = self.second[size, larger](u.reshape(-1, u.shape[2]))
                parts.append(self.blurs[larger](again))
        return np.concatenate([part.reshape(len(x), -1) for part in parts], axis=1)


def _sizes(raw: Raw) -> int:
    """As many sizes of wavelets as leave about PLACES of the coarsest in a row."""
    return max(1, round(math.log2(math.isqrt(raw.width) / (PLACES - 0.5))))


def _width(raw: Raw) -> int:
    """Channels times places."""
    sizes = _sizes(raw)
    return (1 + sizes * DIRECTIONS + math.comb(sizes, 2) * DIRECTIONS**2) * PLACES**2


def _build(raw: Raw) -> Scattering:
    """The filters for images as wide as these; the grid of a size has a place for every 2^size pixels."""
    side, sizes = math.isqrt(raw.width), _sizes(raw)
    sides = [max(PLACES, side // 2**size) for size in range(sizes)]
    spread = 0.8 * 2.0 ** (sizes - 1)  # that of the largest wavelets
    plain = Scattering(
        _blur(side, side, spread, 255),
        tuple(_blur(side, own, spread, LEVELS) for own in sides),
        tuple(wavelets(side, side, own, size, 255) for size, own in enumerate(sides)),
        {
            (size, larger): wavelets(side, sides[size], sides[larger], larger, LEVELS)
            for size in range(sizes)
            for larger in range(size + 1, sizes)
        },
    )
    return replace(plain, centre=centred(plain.channels(strokes(side))))


def _blur(side: int, own: int, spread: float, largest: int) -> Blur:
    return Blur(whole_weights(gaussian(grid(side, own), grid(side, PLACES), spread), largest)[0])


MAPS.register("scattering")(
    FeatureMap(
        "an image's wavelets of all sizes and directions, twice over (a scattering transform)",
        _width,
        _build,
        images=True,
    )
)
