"""Building blocks of feature maps for images: integer pixels, blur and wavelet filters, synthetic pen strokes."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from taciturn.types import Array


def as_bytes(x: Array) -> NDArray[np.float32]:
    """Return pixels in [0, 1] as integers from 0 to 255.

    Examples
    --------
    >>> as_bytes(np.array([0.0, 0.5, 1.0])).tolist()
    [0.0, 128.0, 255.0]
    """
    found: NDArray[np.float32] = np.clip(np.rint(255.0 * np.asarray(x)), 0, 255).astype(np.float32)
    return found


def rounded_mean(features: Array) -> NDArray[np.float64]:
    """Return the mean of the rows, rounded so that it is the same on all machines."""
    found: NDArray[np.float64] = np.rint(2**16 * features.mean(axis=0)) / 2**16
    return found


def grid(side: int, count: int) -> NDArray[np.float64]:
    """Return `count` positions spread evenly over pixels 0 to side - 1.

    Examples
    --------
    >>> grid(14, 2).tolist()
    [3.0, 10.0]
    """
    return (np.arange(count) + 0.5) * side / count - 0.5


def gaussian(points: Array, places: Array, sigma: float) -> NDArray[np.float64]:
    """Return a Gaussian blur from one square grid to another as a matrix [len(points)^2, len(places)^2]."""
    line = np.exp(-((points[:, None] - places) ** 2) / (2.0 * sigma**2))
    found: NDArray[np.float64] = line[:, None, :, None] * line[:, None, :]
    return found.reshape(len(points) ** 2, len(places) ** 2)


def morlet(points: Array, places: Array, size: int, angle: float, slant: float) -> NDArray[np.complex128]:
    """Return a Morlet wavelet of size 2^size as a matrix from one square grid to another.

    It is a wave of frequency 3/4 pi / 2^size under a Gaussian that is 1/slant times as wide along the crests, minus a
    multiple of the Gaussian that makes its response to constant images zero.

    Parameters
    ----------
    points, places
        The coordinates of the input grid and of the output grid, in pixels.
    size
        The logarithm of the wavelet's size.
    angle
        The direction of the wave, in radians.
    slant
        The width of the Gaussian across the crests divided by that along them.
    """
    sigma, frequency = 0.8 * 2.0**size, 0.75 * math.pi / 2.0**size
    reach = np.arange(-8 * 2**size, 8 * 2**size + 1)
    wave, hill = _wave(reach[:, None], reach, sigma, frequency, angle, slant)
    offset = points[:, None] - places  # [points, places]
    response, envelope = _wave(offset[:, None, :, None], offset[None, :, None, :], sigma, frequency, angle, slant)
    wavelet: NDArray[np.complex128] = response - wave.sum() / hill.sum() * envelope
    return wavelet.reshape(len(points) ** 2, len(places) ** 2)


def _wave(
    rows: Array, columns: Array, sigma: float, frequency: float, angle: float, slant: float
) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    along = rows * math.cos(angle) + columns * math.sin(angle)
    across = columns * math.cos(angle) - rows * math.sin(angle)
    hill = np.exp(-(along**2 + (slant * across) ** 2) / (2.0 * sigma**2))
    return hill * np.exp(1j * frequency * along), hill


IMAGES, SEED = 2000, 1
POINTS = 16  # per stroke
SPREAD = 0.2  # of a stroke's three control points, divided by the side of the image
PEN = 0.9 / 14  # width divided by the side of the image


@cache
def strokes(side: int) -> NDArray[np.float64]:
    """Draw synthetic images of one to three curved strokes each; pixels are multiples of 1/255, [n, side^2]."""
    rng = np.random.default_rng(SEED)
    count = rng.integers(1, 4, IMAGES)
    controls = side / 2 + rng.normal(
        0.0, SPREAD * side, (IMAGES, 3, 3, 2)
    )  # [images, strokes, control points, (row, column)]
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
