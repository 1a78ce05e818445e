"""L-BFGS: minimises a smooth convex function of many parameters from its values and gradients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

MEMORY = 20  # pairs of changes that approximate the curvature
DECREASE, SLOPE = 1e-4, 0.9  # Wolfe's conditions on a step
MOST_TRIALS = 30  # of one step


class _Change(NamedTuple):
    """The changes of the parameters and of the gradient in one iteration."""

    x: Vector
    gradient: Vector
    product: float  # of both; positive


def minimise(
    objective: Callable[[Vector], tuple[float, Vector]], x: Vector, change: float, most_iterations: int
) -> Vector:
    """Return parameters near a minimum.

    Parameters
    ----------
    objective
        Returns value and gradient.
    x
        Where to begin, [n].
    change
        Stop after an iteration in which the objective falls by less, relative to its size.
    most_iterations
        Stop after so many iterations.

    Returns
    -------
    ndarray
        The best parameters, [n].

    Examples
    --------
    >>> minimise(lambda x: (float((x - 3.0) @ (x - 3.0)), 2.0 * (x - 3.0)), np.zeros(2), 1e-9, 100)
    array([3., 3.])
    """
    (value, gradient), kept = objective(x), deque[_Change](maxlen=MEMORY)
    for _ in range(most_iterations):
        direction = -_by_inverse_curvature(gradient, kept)
        slope = float(gradient @ direction)
        if not slope < 0.0:
            break
        first = 1.0 if kept else min(1.0, 1.0 / float(np.linalg.norm(gradient)))
        found = _step(objective, x, value, direction, slope, first)
        if found is None:
            break
        after, lower, next_gradient = found
        moved, turned, gain = after - x, next_gradient - gradient, value - lower
        if (product := float(moved @ turned)) > 0.0:
            kept.append(_Change(moved, turned, product))
        x, value, gradient = after, lower, next_gradient
        if gain <= change * max(abs(value), 1.0):
            break
    return x


def _by_inverse_curvature(gradient: Vector, kept: deque[_Change]) -> Vector:
    """Return the gradient times the approximate inverse of the Hessian, by Nocedal's two loops."""
    found, shares = gradient.copy(), []
    for pair in reversed(kept):
        shares.append(float(pair.x @ found) / pair.product)
        found -= shares[-1] * pair.gradient
    if kept:
        found *= kept[-1].product / float(kept[-1].gradient @ kept[-1].gradient)
    for pair, share in zip(kept, reversed(shares), strict=True):
        found += (share - float(pair.gradient @ found) / pair.product) * pair.x
    return found


def _step(
    objective: Callable[[Vector], tuple[float, Vector]],
    x: Vector,
    value: float,
    direction: Vector,
    slope: float,
    first: float,
) -> tuple[Vector, float, Vector] | None:
    """Return parameters, value and gradient after a step that meets Wolfe's conditions; None if none is found.

    The interval that contains such a step is doubled until it has an end, and then halved.
    """
    low, high, length = 0.0, np.inf, first
    for _ in range(MOST_TRIALS):
        after = x + length * direction
        lower, gradient = objective(after)
        if not lower <= value + DECREASE * length * slope:
            high = length
        elif float(gradient @ direction) < SLOPE * slope:
            low = length
        else:
            return after, lower, gradient
        length = 2.0 * length if np.isinf(high) else (low + high) / 2.0
    return None
