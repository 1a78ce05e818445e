"""All directions of a wavelet of one size over an image, in whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.maps.images import grid, morlet
from tacit.data.maps.whole import whole_weights

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
