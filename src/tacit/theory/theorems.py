"""The three convergence theorems: what each averages, which step it asks for, and the rate it promises."""

from __future__ import annotations

from typing import NamedTuple

from tacit.errors import no_such


class Theorem(NamedTuple):
    """One theorem, by the name of its step."""

    number: int
    name: str
    functions: str  # which f_p it is about
    eta: str  # its eta^t
    w: str  # the field of Averages that holds its w^(T)
    z: str  # and its z^(T)
    in_rounds: float  # a: the bound falls as T^-a
    in_epsilon: float  # b: it grows as epsilon^-b, at most


SMOOTH = Theorem(1, "smooth", "smooth", "1 / (L + √t / ε)", "w_plain", "z_smooth", 0.5, 1.0)
NONSMOOTH = Theorem(2, "nonsmooth", "nonsmooth", "1 / √t", "w_plain", "z_nonsmooth", 0.5, 2.0)
STRONG = Theorem(3, "strong", "strongly convex", "2 / (α (t + 2))", "w_weighted", "z_strong", 1.0, 2.0)
THEOREMS = {theorem.name: theorem for theorem in (SMOOTH, NONSMOOTH, STRONG)}


def theorem_of(name: str) -> Theorem:
    """The theorem whose step has this name."""
    if name not in THEOREMS:
        raise no_such("theorem", name, THEOREMS)
    return THEOREMS[name]
