"""Regularisers r(w), weighted by beta / P in every agent's objective (eq. def_fn_f)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tacit.registry import Registry
from tacit.types import Array


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
