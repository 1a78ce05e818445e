"""Which assumptions of a theorem a setting violates, each in one sentence."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from taciturn.research.theory.bounds import Setting
from taciturn.research.theory.measure import Measured
from taciturn.research.theory.theorems import NONSMOOTH, SMOOTH, STRONG, Theorem, TheoremConstants
from taciturn.types import Array

SAME = 1e-4  # how far two steps may differ, for runs in single precision


class ViolatedAssumption(NamedTuple):
    """One assumption that does not hold."""

    assumption: str
    words: str
    needed: bool  # whether the repaired bound rests on it


class Steps(NamedTuple):
    """The L or alpha that the steps imply, and whether they have the theorem's form."""

    fits: bool
    smoothness: float  # L of eta^t = 1 / (L + sqrt(t) / epsilon)
    strong_convexity: float  # alpha of eta^t = 2 / (alpha (t + 2))


def match_steps(theorem: Theorem, eta: Array, epsilon: float) -> Steps:
    """Match the steps eta^t, t = 1 to T, with the form in the theorem."""
    t = np.arange(1, len(eta) + 1)
    if theorem is SMOOTH:
        taken = 1.0 / eta - np.sqrt(t) / epsilon
        exact = 1.0 / (float(taken[0]) + np.sqrt(t) / epsilon)
        return Steps(_same(eta, exact), float(taken[0]), 0.0)
    if theorem is NONSMOOTH:
        return Steps(_same(eta, 1.0 / np.sqrt(t)), math.inf, 0.0)
    alpha = 2.0 / (float(eta[0]) * 3.0)
    return Steps(_same(eta, 2.0 / (alpha * (t + 2))), math.inf, alpha)


def _same(a: Array, b: Array) -> bool:
    return bool((np.abs(a - b) <= SAME * np.abs(b)).all())


def implied_constants(c: TheoremConstants, steps: Steps) -> TheoremConstants:
    """Return the constants that the steps imply: a larger L, or a smaller alpha, is also a constant of the same f."""
    return c._replace(
        smoothness=max(c.smoothness, steps.smoothness) if math.isfinite(c.smoothness) else steps.smoothness,
        strong_convexity=min(c.strong_convexity, steps.strong_convexity)
        if c.strong_convexity > 0.0
        else steps.strong_convexity,
    )


def violated_assumptions(
    theorem: Theorem, c: TheoremConstants, at: Setting, steps: Steps, measured: Measured, dual_norm: float
) -> list[ViolatedAssumption]:
    """Return all assumptions that do not hold; `measured` is of runs with one epsilon, `dual_norm` is ||lambda*||."""
    found = [*_functions(theorem, c, steps), *_penalty(theorem, measured.rho[:, 0])]
    if not steps.fits:
        found.append(ViolatedAssumption("eta", f"ηᵗ is not the theorem's {theorem.eta}", True))
    if measured.outside > 0.0:
        found.append(ViolatedAssumption("W", f"a z is outside W, by {measured.outside:.2g}", True))
    if at.gamma < 2.0 * dual_norm * (1.0 - 1e-9):
        words = (
            f"γ = {at.gamma:.3g} is below 2‖λ*‖ = {2.0 * dual_norm:.3g}: the inequality needs no such γ, but it then "
            "bounds neither the objective nor the disagreement alone"
        )
        found.append(ViolatedAssumption("1 (ii)", words, False))
    if theorem is STRONG and (longest := float(measured.dual.max())) > at.gamma:
        words = f"‖λᵗ‖ reached {longest:.3g}, above γ = {at.gamma:.3g}: the repaired bound uses the longest instead"
        found.append(ViolatedAssumption("2 (i)", words, False))
    return found


def _functions(theorem: Theorem, c: TheoremConstants, steps: Steps) -> list[ViolatedAssumption]:
    found = []
    if theorem is SMOOTH and not math.isfinite(c.smoothness):
        found.append(ViolatedAssumption("smooth", "some f_p is not smooth", True))
    elif theorem is SMOOTH and steps.fits and steps.smoothness < c.smoothness * (1.0 - SAME):
        words = f"ηᵗ takes L = {steps.smoothness:.3g}, but L of some f_p may be {c.smoothness:.3g}"
        found.append(ViolatedAssumption("L", words, True))
    if theorem is STRONG and c.strong_convexity <= 0.0:
        found.append(ViolatedAssumption("strongly convex", "no f_p is known to be strongly convex", True))
    elif theorem is STRONG and steps.fits and steps.strong_convexity > c.strong_convexity * (1.0 + SAME):
        words = (
            f"ηᵗ takes α = {steps.strong_convexity:.3g}, but the f_p are known to have {c.strong_convexity:.3g} only"
        )
        found.append(ViolatedAssumption("alpha", words, True))
    return found


def _penalty(theorem: Theorem, rho: Array) -> list[ViolatedAssumption]:
    """Check that rho^t, t = 1 to T, never falls (assumption 1 (i)) and, for theorem 3, grows slowly (2 (ii))."""
    found = []
    falls = np.flatnonzero(rho[1:] < rho[:-1] * (1.0 - 1e-6))
    if len(falls):
        t = int(falls[0]) + 2
        found.append(
            ViolatedAssumption("1 (i)", f"ρᵗ falls in round {t}, from {rho[t - 2]:.4g} to {rho[t - 1]:.4g}", True)
        )
    later = np.arange(2, len(rho) + 1)
    jumps = np.flatnonzero(rho[1:] > rho[:-1] * later / (later - 1) * (1.0 + 1e-6))
    if theorem is STRONG and len(jumps):
        at = int(jumps[0]) + 2
        most = rho[at - 2] * at / (at - 1)
        words = f"ρᵗ rises to {rho[at - 1]:.4g} in round {at}, above t/(t−1) ρᵗ⁻¹ = {most:.4g}"
        found.append(ViolatedAssumption("2 (ii)", words, True))
    return found
