"""Integer arithmetic in floating point: sums that do not depend on the order of addition.

Sums of integers below 2^24 are exact in float32, below 2^53 in float64. A map that uses only such sums gives a record
the same bits whatever the other records and the number of threads are. With rounded sums, a record's features could
change in the last bit when another record is removed, because a library may add a block's rows in different orders.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taciturn.types import Array

LARGEST = 2**23  # bound on any sum in float32, before weights are rounded
FINE = 4096  # steps per unit of a feature before it is normalised


def whole_weights(weights: Array, largest_input: int) -> tuple[NDArray[np.float32], float]:
    """Scale weights [inputs, outputs] and round them to integers.

    Sums over inputs from 0 to `largest_input` are then exact, however many inputs there are: rounding at most doubles
    a weight (one up to 1/2 becomes 0), so no sum exceeds 2 LARGEST = 2^24.

    Returns
    -------
    NDArray[np.float32]
        The integer weights.
    float
        The scale by which the weights were multiplied.
    """
    scale = LARGEST / (largest_input * float(np.abs(weights).sum(axis=0).max()))
    return np.rint(scale * weights).astype(np.float32), scale


def normalize_rows(x: Array) -> NDArray[np.float64]:
    """Round rows [n, J] to multiples of 1/FINE and scale them to norm 1; a row that rounds to 0 stays 0.

    Norms are exact if no |x| exceeds 2^14 / sqrt(J).

    Examples
    --------
    >>> normalize_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    return unit_rows(steps_of(x))


def steps_of(x: Array) -> NDArray[np.float64]:
    """Round features to multiples of 1/FINE and return the multiples, which are integers."""
    found: NDArray[np.float64] = np.rint(FINE * np.asarray(x, np.float64))
    return found


def unit_rows(steps: Array) -> NDArray[np.float64]:
    """Scale rows of integers to norm 1; a row of zeros stays 0."""
    length = np.sqrt((steps**2).sum(axis=1, keepdims=True))  # of integers: exact
    found: NDArray[np.float64] = steps / np.maximum(length, 1.0)
    return found
