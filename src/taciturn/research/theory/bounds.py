"""The right-hand sides of the three theorems, term by term: as printed, and as the repaired proofs give them."""

from __future__ import annotations

import math
from typing import NamedTuple

from taciturn.research.theory.theorems import NONSMOOTH, SMOOTH, Theorem, TheoremConstants


class Setting(NamedTuple):
    """What a right-hand side depends on besides the problem and T."""

    epsilon: float  # of one local update
    updates: int  # E
    rho_first: float  # rho^1
    rho_max: float  # rho^T
    gamma: float
    start: float = 0.0  # ||lambda^1||
    dual: float = 0.0  # the longest ||lambda^t||, t <= T; theorem 3 alone asks for it


class Term(NamedTuple):
    """One summand."""

    name: str
    formula: str
    value: float


class TheoremBound(NamedTuple):
    """A right-hand side."""

    terms: tuple[Term, ...]

    @property
    def total(self) -> float:
        """The sum of all terms."""
        return math.fsum(term.value for term in self.terms)


class _Form(NamedTuple):
    """The differences between the printed and the repaired statement.

    U_2 is the diameter of W, but z and z* are P points of W each: ||z - z*||^2 <= P U_2^2, and a length has the factor
    sqrt(P). The repaired proof of theorems 2 and 3 goes from z^{t+1} to the mean of the z^{t,e} in one step, which
    leaves 1/E.
    """

    stacked: float  # P, or 1 as printed
    shift: float  # sqrt(P) / E, or 1 as printed
    p: str  # what goes before U_2^2 in a formula
    s: str  # and before U_2
    e: str  # and behind a T


def right_side(theorem: Theorem, c: TheoremConstants, at: Setting, rounds: int, corrected: bool = True) -> TheoremBound:
    """Return the bound on E[F(z^(T)) - F(z*) + gamma ||A w^(T) - z^(T)||] after T = `rounds`."""
    root = math.sqrt(c.agents)
    form = _Form(c.agents, root / at.updates, "P ", "√P ", " E") if corrected else _Form(1.0, 1.0, "", "", "")
    if theorem is SMOOTH:
        return _smooth(c, at, rounds, form)
    if theorem is NONSMOOTH:
        return _nonsmooth(c, at, rounds, form)
    return _strong(c, at, rounds, form, corrected)


def _smooth(c: TheoremConstants, at: Setting, rounds: int, form: _Form) -> TheoremBound:
    """Theorem 1 (eq. smooth_inequality)."""
    u2 = form.stacked * c.diameter**2
    root, e = at.epsilon * math.sqrt(rounds), at.updates
    noise = 2.0 * c.agents * c.parameters * c.change**2 / root
    return TheoremBound(
        (
            Term("penalty", f"{form.p}U₂² ρᵐᵃˣ / 2T", u2 * at.rho_max / (2 * rounds)),
            Term("dual", "(γ + ‖λ¹‖)² / (2 ρ¹ T)", (at.gamma + at.start) ** 2 / (2 * at.rho_first * rounds)),
            Term("smoothness", f"{form.p}U₂² L / (2 T E)", u2 * c.smoothness / (2 * rounds * e)),
            Term("step", f"{form.p}U₂² / (2 E ε √T)", u2 / (2 * e * root)),
            Term("noise", "2 P J K U₃² / (ε √T)", noise),
        )
    )


def _nonsmooth(c: TheoremConstants, at: Setting, rounds: int, form: _Form) -> TheoremBound:
    """Theorem 2 (eq. nonsmooth_inequality)."""
    u2 = form.stacked * c.diameter**2
    root, e = math.sqrt(rounds), at.updates
    noise = 2.0 * c.agents * c.parameters * _scale_squared(c, at) / root
    return TheoremBound(
        (
            Term("penalty", f"{form.p}U₂² ρᵐᵃˣ / 2T", u2 * at.rho_max / (2 * rounds)),
            Term("dual", "(γ + ‖λ¹‖)² / (2 ρ¹ T)", (at.gamma + at.start) ** 2 / (2 * at.rho_first * rounds)),
            Term("shift", _over(f"γ {form.s}U₂", f"T{form.e}"), at.gamma * form.shift * c.diameter / rounds),
            Term("gradient", "P U₁² / √T", c.agents * c.gradient**2 / root),
            Term("step", f"{form.p}U₂² / (2 E √T)", u2 / (2 * e * root)),
            Term("noise", "2 P J K U₃² / (ε² √T)", noise),
        )
    )


def _strong(c: TheoremConstants, at: Setting, rounds: int, form: _Form, corrected: bool) -> TheoremBound:
    """Theorem 3 (eq. strong_inequality); the repaired form has the longest dual in place of gamma."""
    u2 = form.stacked * c.diameter**2
    t, e, alpha = rounds + 1, at.updates, c.strong_convexity
    noise = 4.0 * c.agents * c.parameters * _scale_squared(c, at) / (alpha * t)
    duals = at.gamma + (at.dual if corrected else at.gamma)
    formula = "(γ + max ‖λᵗ‖)² / (ρ¹ (T+1))" if corrected else "4 γ² / (ρ¹ (T+1))"
    return TheoremBound(
        (
            Term("penalty", f"{form.p}U₂² ρᵐᵃˣ / (T+1)", u2 * at.rho_max / t),
            Term("dual", formula, duals**2 / (at.rho_first * t)),
            Term("shift", _over(f"2 γ {form.s}U₂", f"(T+1){form.e}"), 2 * at.gamma * form.shift * c.diameter / t),
            Term("gradient", "2 P U₁² / (α (T+1))", 2 * c.agents * c.gradient**2 / (alpha * t)),
            Term("step", f"α {form.p}U₂² / (2 E (T+1))", alpha * u2 / (2 * e * t)),
            Term("noise", "4 P J K U₃² / (α ε² (T+1))", noise),
        )
    )


def _scale_squared(c: TheoremConstants, at: Setting) -> float:
    """Return (U_3 / epsilon)^2, infinite if it overflows."""
    scale = c.change / at.epsilon
    return scale * scale


def _over(above: str, below: str) -> str:
    return f"{above} / ({below})" if " " in below else f"{above} / {below}"


def per_update(total: float, rounds: int, updates: int, composition: str = "basic") -> float:
    """Return the epsilon of each of T E updates that share one total epsilon.

    With "basic" composition epsilons add up. With "root" they grow as sqrt(T E), which is advanced composition for
    small epsilons without its factor sqrt(2 ln(1/delta)), which depends on neither T nor E.
    """
    releases = rounds * updates
    return total / (releases if composition == "basic" else math.sqrt(releases))
