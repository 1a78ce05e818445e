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
    """A convex function of the parameters."""

    @property
    def curvature(self) -> float:
        """The largest eigenvalue of its Hessian (inf where it is not smooth)."""
        ...

    @property
    def strong_convexity(self) -> float:
        """The smallest eigenvalue of its Hessian."""
        ...

    def value(self, w: Array) -> Array:
        """r for every run: [J, R, K] -> [R]."""
        ...

    def gradient(self, w: Array) -> Array:
        """A (sub)gradient: [J, R, K] -> [J, R, K]."""
        ...


REGULARISERS: Registry[Callable[[], Regulariser]] = Registry("regulariser", __name__)


@REGULARISERS.register("l1")
@dataclass(frozen=True)
class L1:
    """L1 norm, r(w) = sum_jk |w_jk|; subgradient sign(w), 0 at 0."""

    curvature: float = math.inf
    strong_convexity: float = 0.0

    def value(self, w: Array) -> Array:
        """The sum of absolute values of every run."""
        value: Array = namespace(w).abs(w).sum(axis=(0, 2))
        return value

    def gradient(self, w: Array) -> Array:
        """The sign of every parameter."""
        sign: Array = namespace(w).sign(w)
        return sign


@REGULARISERS.register("l2")
@dataclass(frozen=True)
class L2:
    """Squared L2 norm, r(w) = sum_jk w_jk^2, without a half; gradient 2 w."""

    curvature: float = 2.0
    strong_convexity: float = 2.0

    def value(self, w: Array) -> Array:
        """The sum of squares of every run."""
        value: Array = (w**2).sum(axis=(0, 2))
        return value

    def gradient(self, w: Array) -> Array:
        """Twice the parameters."""
        return 2.0 * w
