"""Wavelet scattering of images, in integer arithmetic, and whitened by drawn strokes.

Mallat, "Group invariant scattering", 2012: moduli of wavelet transforms, twice over, blurred to a coarse grid.

The channels of neighbouring places, sizes and directions are strongly correlated: most of a record's length is in few
directions. Noise is as large in every direction, and the differences between classes are often in the others. The map
therefore rotates the channels to the principal directions of drawn strokes, which are public, scales these to about the
same variance, and keeps the first ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.data.feature_maps.feature_map import (
    LARGEST,
    MAPS,
    FeatureMap,
    InputShape,
    steps_of,
    unit_rows,
    whole_weights,
)
from taciturn.data.feature_maps.images import as_bytes, gaussian, grid, morlet, rounded_mean, strokes
from taciturn.types import Array

DIRECTIONS = 6
SLANT = 4.0 / DIRECTIONS  # of the envelope: with fewer directions, each covers more angles
LEVELS = 1023  # the largest integer modulus
ROWS = 4  # of a band: fewer skip more zeros, more give larger matrix products


class Band(NamedTuple):
    """Some rows of an output grid, and the part of the input grid that they depend on."""

    rows: slice
    reach: slice  # of the input grid; all other weights are 0
    weights: NDArray[np.float32]  # [reach, 2 DIRECTIONS rows side]  real parts, then imaginary parts


@dataclass(frozen=True, eq=False)
class Wavelets:
    """The modulus |u * psi| for all directions, from one grid to another."""

    inputs: int  # points of the input grid
    side: int  # points in a row of the output grid
    bands: tuple[Band, ...]
    scale: float  # from a modulus to an integer up to LEVELS

    def __call__(self, u: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return integers up to LEVELS: [n, input grid] -> [n, DIRECTIONS, output grid]."""
        found = np.empty((len(u), DIRECTIONS, self.side, self.side), np.float32)
        for rows, reach, weights in self.bands:
            parts = u[:, reach] @ weights
            np.square(parts, out=parts)
            modulus, imaginary = np.split(parts, 2, axis=1)
            modulus += imaginary
            np.sqrt(modulus, out=modulus)
            modulus *= np.float32(self.scale)
            np.rint(modulus, out=modulus)
            out = found[:, :, rows]
            np.minimum(modulus.reshape(out.shape), np.float32(LEVELS), out=out)
        return found.reshape(len(u), DIRECTIONS, -1)

    @property
    def weights(self) -> NDArray[np.float32]:
        """All bands as one matrix, [input grid, 2 DIRECTIONS output grid]."""
        found = np.zeros((self.inputs, 2 * DIRECTIONS, self.side, self.side), np.float32)
        for rows, reach, weights in self.bands:
            part = found[reach, :, rows]
            part[:] = weights.reshape(part.shape)
        return found.reshape(self.inputs, -1)


def wavelets(side: int, before: int, own: int, size: int, largest: int) -> Wavelets:
    """Return the wavelets of size 2^size from one grid to another.

    Parameters
    ----------
    side
        The side of the images in pixels.
    before, own
        The sides of the input grid and of the output grid.
    size
        The logarithm of the wavelets' size.
    largest
        The largest input; inputs are integers from 0.
    """
    angles = np.arange(DIRECTIONS) * math.pi / DIRECTIONS
    filters = np.concatenate(
        [morlet(grid(side, before), grid(side, own), size, angle, SLANT) for angle in angles], axis=1
    )
    filters *= (side / before) ** 2  # a coarser grid has fewer points to sum over
    weights, scale = whole_weights(np.concatenate([filters.real, filters.imag], axis=1), largest)
    most = 0.5 * largest * float(np.abs(filters).sum(axis=0).max())  # bound on the modulus for inputs from 0 to largest
    by_row = weights.reshape(before**2, 2 * DIRECTIONS, own, own)
    bands = tuple(_band(by_row, slice(row, min(row + ROWS, own))) for row in range(0, own, ROWS))
    return Wavelets(before**2, own, bands, LEVELS / (scale * most))


def _band(weights: NDArray[np.float32], rows: slice) -> Band:
    """Cut some rows from weights [input grid, 2 DIRECTIONS, side, side], without the zeros at both ends."""
    flat = weights[:, :, rows].reshape(len(weights), -1)
    used = np.flatnonzero(flat.any(axis=1))
    reach = slice(int(used[0]), int(used[-1]) + 1)
    return Band(rows, reach, np.ascontiguousarray(flat[reach]))


PLACES = 4  # per row: a channel is blurred to 4 x 4 numbers
FAINT = 0.001 * PLACES * LARGEST  # 1/1000 of a channel's largest norm; fainter channels are not scaled up to 1
WIDTH = 512  # features at most: further directions of strokes hold 0.4 % of their variance
FLOOR = 0.001  # of the strokes' variance; directions with less are not scaled up to the same variance
WHOLE = 2**10  # weights per unit of a whitening weight; with FLOOR they fit 16 bits
COARSE = 2.0**-14  # from weighted steps to the steps of a feature, of which a published data set keeps 16 bits
BLOCK = 512  # images at a time


@dataclass(frozen=True, eq=False)
class Blur:
    """A blur from a grid to PLACES x PLACES numbers."""

    weights: NDArray[np.float32]  # [grid, places], integers

    def __call__(self, u: NDArray[np.float32]) -> NDArray[np.float64]:
        """Blur each channel and scale it to norm 1: [..., grid] -> [..., places]."""
        blurred = (u @ self.weights).astype(np.float64)
        length = np.sqrt((blurred**2).sum(axis=-1, keepdims=True))  # of integers: exact
        found: NDArray[np.float64] = blurred / (length + FAINT)
        return found


@dataclass(frozen=True, eq=False)
class Scattering:
    """The scattering transform of images of one size; `centre` is the mean of the channels of drawn strokes."""

    image: Blur
    blurs: tuple[Blur, ...]  # by size of the wavelets
    first: tuple[Wavelets, ...]  # from the image, by size
    second: dict[tuple[int, int], Wavelets]  # from one size to a larger one
    centre: NDArray[np.float64] | float = 0.0  # [channels]
    whitening: NDArray[np.float64] = field(default_factory=lambda: np.eye(1))  # [channels, features], integers

    def __call__(self, x: Array) -> NDArray[np.float64]:
        """Map every image: [n, pixels] -> [n, features], rows of norm 1."""
        return unit_rows(self.steps(x))

    def steps(self, x: Array) -> NDArray[np.float64]:
        """Return the features of every image before they are scaled to norm 1, in whole steps: [n, features]."""
        blocks = [x[start : start + BLOCK] for start in range(0, max(1, len(x)), BLOCK)]
        return np.concatenate([np.rint(COARSE * (self.deviations(block) @ self.whitening)) for block in blocks])

    def deviations(self, x: Array) -> NDArray[np.float64]:
        """Return all channels of every image minus those of a mean stroke, in whole steps, [n, channels]."""
        return steps_of(self.channels(x) - self.centre)

    def channels(self, x: Array) -> NDArray[np.float64]:
        """Return all channels of every image, each of norm 1, [n, channels]."""
        pixels = as_bytes(x)
        parts = [self.image(pixels)]
        for size, filters in enumerate(self.first):
            u = filters(pixels)  # [n, DIRECTIONS, grid]
            parts.append(self.blurs[size](u))
            for larger in range(size + 1, len(self.first)):
                again = self.second[size, larger](u.reshape(-1, u.shape[2]))
                parts.append(self.blurs[larger](again))
        return np.concatenate([part.reshape(len(x), -1) for part in parts], axis=1)


def _sizes(shape: InputShape) -> int:
    """Return the number of wavelet sizes, such that about PLACES of the largest fit in a row."""
    return max(1, round(math.log2(math.isqrt(shape.width) / (PLACES - 0.5))))


def _width(shape: InputShape) -> int:
    sizes = _sizes(shape)
    return min(WIDTH, (1 + sizes * DIRECTIONS + math.comb(sizes, 2) * DIRECTIONS**2) * PLACES**2)


def _build(shape: InputShape) -> Scattering:
    """Build the filters; the grid of a size has a point for every 2^size pixels."""
    side, sizes = math.isqrt(shape.width), _sizes(shape)
    sides = [max(PLACES, side // 2**size) for size in range(sizes)]
    spread = 0.8 * 2.0 ** (sizes - 1)  # as wide as the largest wavelets
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
    drawn = strokes(side)
    centred = replace(plain, centre=rounded_mean(plain.channels(drawn)))
    return replace(centred, whitening=whitening(centred.deviations(drawn), _width(shape)))


def whitening(steps: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Return integer weights [channels, width] that rotate rows to their principal directions and even their variance.

    Direction k with the share s_k of the variance is divided by the root of s_k + FLOOR. The largest weight of a
    direction is positive, so that the signs, which are free, are the same on all machines.

    Parameters
    ----------
    steps : array of float64, [n, channels]
        Rows of integers with mean 0; their products are added exactly.
    width : int
        The number of directions, those of the largest variance.

    Examples
    --------
    >>> whitening(np.array([[300.0, 0.0], [-300.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 2).tolist()
    [[1023.0, 0.0], [0.0, 32203.0]]
    """
    values, vectors = np.linalg.eigh(steps.T @ steps)
    values, vectors = np.maximum(values[::-1][:width], 0.0), vectors[:, ::-1][:, :width]
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    weights = vectors * (np.sign(largest) / np.sqrt(values / np.sum(steps**2) + FLOOR))
    found: NDArray[np.float64] = np.rint(WHOLE * weights)
    return found


def _blur(side: int, own: int, spread: float, largest: int) -> Blur:
    return Blur(whole_weights(gaussian(grid(side, own), grid(side, PLACES), spread), largest)[0])


SUMMARY = "an image's wavelets of all sizes and directions, twice over (a scattering transform)"
MAPS.register("scattering")(FeatureMap(SUMMARY, _width, _build, images=True, kept=True))
