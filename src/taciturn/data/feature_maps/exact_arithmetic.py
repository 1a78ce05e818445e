"""Whole numbers in floating point: sums that no order of adding changes.

Sums of whole numbers below 2^24 are exact in float32, below 2^53 in float64. A map made of them gives a record the same
bits in every company and with any number of threads. With rounded sums, a record's features could change in the last
bit when another record is left out, because a library may add up the rows of a block in different orders.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taciturn.types import Array

LARGEST = 2**23  # of any sum in float32, before weights are rounded
FINE = 4096  # steps of a feature before it is scaled to length 1


def whole_weights(weights: Array, largest_input: int) -> tuple[NDArray[np.float32], float]:
    """Weights [inputs, outputs] times the second value returned, as whole numbers.

    Inputs from 0 to `largest_input` then have exact sums, however many there are: a weight at most doubles when it is
    rounded (up to a half it becomes 0), so that no sum is above 2 LARGEST = 2^24.
    """
    scale = LARGEST / (largest_input * float(np.abs(weights).sum(axis=0).max()))
    return np.rint(scale * weights).astype(np.float32), scale


def normalize_rows(x: Array) -> NDArray[np.float64]:
    """Rows [n, J] rounded to 1/FINE and scaled to length 1; a row that rounds to 0 stays 0.

    Lengths are exact where no |x| is above 2^14 / sqrt(J).
    """
    steps = np.rint(FINE * np.asarray(x, np.float64))
    length = np.sqrt((steps**2).sum(axis=1, keepdims=True))  # of whole numbers
    found: NDArray[np.float64] = steps / np.maximum(length, 1.0)
    return found
