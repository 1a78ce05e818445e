"""What maps of images share: pixels as whole numbers, and blurs and wavelets as matrices over the pixels."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.types import Array


def as_bytes(x: Array) -> NDArray[np.float32]:
    """Pixels in [0, 1] as the whole numbers 0 to 255."""
    found: NDArray[np.float32] = np.clip(np.rint(255.0 * np.asarray(x)), 0, 255).astype(np.float32)
    return found


def centred(features: Array) -> NDArray[np.float64]:
    """A mean to take away, rounded so that all machines agree on it."""
    found: NDArray[np.float64] = np.rint(2**16 * features.mean(axis=0)) / 2**16
    return found


def grid(side: int, count: int) -> NDArray[np.float64]:
    """`count` places spread evenly over pixels 0 to side - 1."""
    return (np.arange(count) + 0.5) * side / count - 0.5


def gaussian(points: Array, places: Array, sigma: float) -> NDArray[np.float64]:
    """A blur from a square grid of points to one of places, as a matrix."""
    line = np.exp(-((points[:, None] - places) ** 2) / (2.0 * sigma**2))
    found: NDArray[np.float64] = line[:, None, :, None] * line[:, None, :]
    return found.reshape(len(points) ** 2, len(places) ** 2)


def morlet(points: Array, places: Array, size: int, angle: float, slant: float) -> NDArray[np.complex128]:
    """A Morlet wavelet of size 2^size as a matrix from a square grid of points to one of places.

    A wave of frequency 3/4 pi / 2^size under a Gaussian that is 1/slant times as wide along the crests, less as much of
    the Gaussian as makes it blind to constant images.
    """
    sigma, frequency = 0.8 * 2.0**size, 0.75 * math.pi / 2.0**size
    reach = np.arange(-8 * 2**size, 8 * 2**size + 1)
    wave, hill = _wave(reach[:, None], reach, sigma, frequency, angle, slant)
    offset = points[:, None] - places  # [points, places]
    there, under = _wave(offset[:, None, :, None], offset[None, :, None, :], sigma, frequency, angle, slant)
    blind: NDArray[np.complex128] = there - wave.sum() / hill.sum() * under
    return blind.reshape(len(points) ** 2, len(places) ** 2)


def _wave(
    rows: Array, columns: Array, sigma: float, frequency: float, angle: float, slant: float
) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    along = rows * math.cos(angle) + columns * math.sin(angle)
    across = columns * math.cos(angle) - rows * math.sin(angle)
    hill = np.exp(-(along**2 + (slant * across) ** 2) / (2.0 * sigma**2))
    return hill * np.exp(1j * frequency * along), hill
