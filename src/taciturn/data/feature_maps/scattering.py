"""Wavelet scattering of images, in integer arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.data.feature_maps.exact_arithmetic import LARGEST, normalize_rows, whole_weights
from taciturn.data.feature_maps.feature_map import MAPS, FeatureMap, Raw
from taciturn.data.feature_maps.images import as_bytes, centred, gaussian, grid, morlet, strokes
from taciturn.types import Array

DIRECTIONS = 6
SLANT = 4.0 / DIRECTIONS  # of the hill under a wave: the fewer directions, the wider each looks
LEVELS = 1023  # of a modulus
ROWS = 4  # of a band: fewer skip more zeros, more make larger products


class Band(NamedTuple):
    """Some rows of a grid, and the part of the grid before that they look at."""

    rows: slice
    reach: slice  # all weights elsewhere are 0
    weights: NDArray[np.float32]  # [reach, 2 DIRECTIONS rows side]  real parts, then imaginary parts


@dataclass(frozen=True, eq=False)
class Wavelets:
    """|u * psi| for all directions, from one grid to another."""

    inputs: int  # points of the grid before
    side: int  # points in a row of its own grid
    bands: tuple[Band, ...]
    scale: float  # from a modulus to LEVELS

    def __call__(self, u: NDArray[np.float32]) -> NDArray[np.float32]:
        """Whole numbers up to LEVELS: [n, grid before] -> [n, DIRECTIONS, grid]."""
        found = np.empty((len(u), DIRECTIONS, self.side, self.side), np.float32)
        for rows, reach, weights in self.bands:
            parts = u[:, reach] @ weights
            np.square(parts, out=parts)
            modulus, imaginary = np.split(parts, 2, axis=1)
            modulus += imaginary
            np.sqrt(modulus, out=modulus)
            modulus *= np.float32(self.scale)
            np.rint(modulus, out=modulus)
            there = found[:, :, rows]
            np.minimum(modulus.reshape(there.shape), np.float32(LEVELS), out=there)
        return found.reshape(len(u), DIRECTIONS, -1)

    @property
    def weights(self) -> NDArray[np.float32]:
        """All bands as one matrix, [grid before, 2 DIRECTIONS grid]."""
        found = np.zeros((self.inputs, 2 * DIRECTIONS, self.side, self.side), np.float32)
        for rows, reach, weights in self.bands:
            there = found[reach, :, rows]
            there[:] = weights.reshape(there.shape)
        return found.reshape(self.inputs, -1)


def wavelets(side: int, before: int, own: int, size: int, largest: int) -> Wavelets:
    """Those of size 2^size for images of `side` pixels, from one grid to another, for inputs from 0 to `largest`."""
    angles = np.arange(DIRECTIONS) * math.pi / DIRECTIONS
    filters = np.concatenate(
        [morlet(grid(side, before), grid(side, own), size, angle, SLANT) for angle in angles], axis=1
    )
    filters *= (side / before) ** 2  # a coarser grid has fewer points to add up
    weights, scale = whole_weights(np.concatenate([filters.real, filters.imag], axis=1), largest)
    most = 0.5 * largest * float(np.abs(filters).sum(axis=0).max())  # of the modulus of anything from 0 to largest
    by_row = weights.reshape(before**2, 2 * DIRECTIONS, own, own)
    bands = tuple(_band(by_row, slice(row, min(row + ROWS, own))) for row in range(0, own, ROWS))
    return Wavelets(before**2, own, bands, LEVELS / (scale * most))


def _band(weights: NDArray[np.float32], rows: slice) -> Band:
    """These rows of weights [grid before, 2 DIRECTIONS, side, side], without what is 0 at either end."""
    flat = weights[:, :, rows].reshape(len(weights), -1)
    there = np.flatnonzero(flat.any(axis=1))
    reach = slice(int(there[0]), int(there[-1]) + 1)
    return Band(rows, reach, np.ascontiguousarray(flat[reach]))


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
        return np.concatenate([normalize_rows(self.channels(block) - self.centre) for block in blocks])

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
