"""Which epsilons and gammas the theorems can be held against in floating-point numbers."""

from __future__ import annotations

from collections.abc import Iterable

from tacit.errors import InputError

SMALLEST, LARGEST = 1e-6, 1e6  # epsilon of one local update
HEAVIEST = 1e12  # gamma, whose square is in every bound


def check_epsilons(epsilons: Iterable[float]) -> None:
    """Far below these, L of the step 1 / (L + sqrt(t) / epsilon) is lost to rounding; far above, there is no noise."""
    for epsilon in epsilons:
        if not SMALLEST <= epsilon <= LARGEST:
            raise InputError(
                f"epsilon is {epsilon:g}: for the theorems it must be at least {SMALLEST:g} and at most {LARGEST:g}"
            )


def check_gamma(gamma: float | None) -> None:
    """A weight that squares; None is twice ||lambda*||."""
    if gamma is not None and not 0.0 <= gamma <= HEAVIEST:
        raise InputError(f"gamma is {gamma:g}: it weighs a length, and must be at least 0 and at most {HEAVIEST:g}")
