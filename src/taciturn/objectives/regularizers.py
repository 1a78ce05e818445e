"""Regularisers r(w), weighted by beta / P in every agent's objective (eq. def_fn_f)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from taciturn.core.arrays import namespace
from taciturn.core.registry import Registry
from taciturn.types import Array


class Regulariser(Protocol):
    """A convex function of the parameters.

    Implement this protocol and register the class in `REGULARISERS` to add a regulariser.

    Examples
    --------
    >>> import numpy as np
    >>> r: Regulariser = REGULARISERS["l2"]()
    >>> w = np.array([[[3.0, 4.0]]])  # J = 1, R = 1, K = 2
    >>> r.value(w).tolist(), r.gradient(w).tolist()
    ([25.0], [[[6.0, 8.0]]])
    """

    @property
    def curvature(self) -> float:
        """The largest eigenvalue of the Hessian; inf if the function is not smooth."""

    @property
    def strong_convexity(self) -> float:
        """The smallest eigenvalue of the Hessian."""

    def value(self, w: Array) -> Array:
        """Return r for every run: [J, R, K] -> [R]."""

    def gradient(self, w: Array) -> Array:
        """Return a (sub)gradient: [J, R, K] -> [J, R, K]."""


REGULARISERS: Registry[Callable[[], Regulariser]] = Registry("regulariser", __name__)
"""Regularisers by name. Register a class without required arguments: `@REGULARISERS.register("l1")`."""


@REGULARISERS.register("l1")
@dataclass(frozen=True)
class L1:
    """L1 norm, r(w) = sum_jk |w_jk|; subgradient sign(w), 0 at 0."""

    curvature: float = math.inf
    strong_convexity: float = 0.0

    def value(self, w: Array) -> Array:
        """Return the sum of absolute values for every run."""
        value: Array = namespace(w).abs(w).sum(axis=(0, 2))
        return value

    def gradient(self, w: Array) -> Array:
        """Return the sign of every parameter."""
        sign: Array = namespace(w).sign(w)
        return sign


@REGULARISERS.register("l2")
@dataclass(frozen=True)
class L2:
    """Squared L2 norm, r(w) = sum_jk w_jk^2, without a factor 1/2; gradient 2 w."""

    curvature: float = 2.0
    strong_convexity: float = 2.0

    def value(self, w: Array) -> Array:
        """Return the sum of squares for every run."""
        value: Array = (w**2).sum(axis=(0, 2))
        return value

    def gradient(self, w: Array) -> Array:
        """Return 2 w."""
        return 2.0 * w
