"""Every assumption that a setting violates is named, and no other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from taciturn.algorithms.schedules import DynamicRho
from taciturn.research.theory.assumptions import implied_constants, match_steps, violated_assumptions
from taciturn.research.theory.bounds import Setting
from taciturn.research.theory.measure import Measured
from taciturn.research.theory.theorems import NONSMOOTH, SMOOTH, STRONG, Theorem, TheoremConstants
from taciturn.types import Array

C = TheoremConstants(3, 6, 1.0, 2.0, 0.5, smoothness=4.0, strong_convexity=0.5)
T = np.arange(1, 51)
ETA = {SMOOTH: 1 / (4.0 + np.sqrt(T) / 0.5), NONSMOOTH: 1 / np.sqrt(T), STRONG: 2 / (0.5 * (T + 2))}
FLAT = np.full(50, 2.0)
AT = Setting(0.5, 1, 2.0, 2.0, gamma=3.0)


def told(
    theorem: Theorem,
    c: TheoremConstants = C,
    eta: Array | None = None,
    rho: Array = FLAT,
    gamma: float = 3.0,
    dual: float = 1.0,
    outside: float = 0.0,
) -> list[str]:
    steps = match_steps(theorem, ETA[theorem] if eta is None else eta, 0.5)
    one = np.ones((1, 1))
    measured = Measured(np.array([50.0]), one, one, dual * one, outside, rho[:, None], one)
    found = violated_assumptions(theorem, c, AT._replace(gamma=gamma), steps, measured, dual_norm=1.5)
    assert all(wrong.words for wrong in found)
    return [f"{wrong.assumption}{'' if wrong.needed else ' (not needed)'}" for wrong in found]


@pytest.mark.parametrize("theorem", [SMOOTH, NONSMOOTH, STRONG])
def test_a_setting_that_satisfies_all_assumptions_has_no_violations(theorem: Theorem) -> None:
    assert told(theorem) == []
    assert told(theorem, rho=np.linspace(2.0, 2.04, 50)) == []
    assert told(theorem, eta=2.0 * ETA[theorem]) == ([] if theorem is STRONG else ["eta"])  # alpha / 2 will do as well
    assert told(theorem, eta=np.full(50, 0.1)) == ["eta"]
    assert told(theorem, rho=FLAT[::-1] * np.linspace(1.0, 0.9, 50)) == ["1 (i)"]
    assert told(theorem, gamma=2.9) == ["1 (ii) (not needed)"]
    assert told(theorem, outside=0.1) == ["W"]
    assert told(theorem, dual=4.0) == (["2 (i) (not needed)"] if theorem is STRONG else [])


def test_functions_and_constants() -> None:
    assert told(SMOOTH, C._replace(smoothness=math.inf)) == ["smooth"]
    assert told(SMOOTH, C._replace(smoothness=4.5)) == ["L"]
    assert told(SMOOTH, C._replace(smoothness=3.0)) == []
    assert told(STRONG, C._replace(strong_convexity=0.0)) == ["strongly convex"]
    assert told(STRONG, C._replace(strong_convexity=0.4)) == ["alpha"]
    assert told(STRONG, C._replace(strong_convexity=0.6)) == []
    assert implied_constants(
        C._replace(smoothness=3.0), match_steps(SMOOTH, ETA[SMOOTH], 0.5)
    ).smoothness == pytest.approx(4.0)
    assert (
        implied_constants(C._replace(strong_convexity=0.6), match_steps(STRONG, ETA[STRONG], 0.5)).strong_convexity
        == 0.5
    )


def test_the_papers_own_penalty_breaks_assumption_2_ii_where_it_jumps() -> None:
    """eq. dynamic_rho for MNIST multiplies c1 by 1.2 in round 10,000, where a factor of 1.0001 is allowed."""
    rho = DynamicRho(np.array([1.0]))
    before, after = float(rho(9_999)[0, 0]), float(rho(10_000)[0, 0])
    assert (before, after) == pytest.approx((7.0, 7.4))
    assert after > before * 10_000 / 9_999
    short = np.array([float(DynamicRho(np.array([1.0]), tc=25)(int(t))[0, 0]) for t in T])
    assert told(STRONG, rho=short) == ["2 (ii)"]
    assert told(SMOOTH, rho=short) == []
