"""The right-hand sides: golden numbers by hand, and how they depend on T, epsilon, E and the number of agents."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.research.theory.bounds import Setting, per_update, right_side
from taciturn.research.theory.theorems import NONSMOOTH, SMOOTH, STRONG, THEOREMS, Theorem, TheoremConstants

C = TheoremConstants(
    agents=4, parameters=6, gradient=3.0, diameter=2.0, change=0.5, smoothness=8.0, strong_convexity=0.5
)
AT = Setting(epsilon=0.5, updates=2, rho_first=1.0, rho_max=3.0, gamma=5.0, start=1.0, dual=7.0)
ALL = list(THEOREMS.values())


@pytest.mark.parametrize(
    ("theorem", "stated", "corrected"),
    [
        (SMOOTH, [6 / 16, 36 / 32, 16 / 32, 1 / 2, 12 / 2], [24 / 16, 36 / 32, 64 / 32, 4 / 2, 12 / 2]),
        (
            NONSMOOTH,
            [6 / 16, 36 / 32, 10 / 16, 36 / 4, 1 / 4, 48 / 4],
            [24 / 16, 36 / 32, 10 / 16, 36 / 4, 4 / 4, 48 / 4],
        ),
        (
            STRONG,
            [12 / 17, 100 / 17, 20 / 17, 144 / 17, 0.5 / 17, 192 / 17],
            [48 / 17, 144 / 17, 20 / 17, 144 / 17, 2 / 17, 192 / 17],
        ),
    ],
)
def test_every_term_as_computed_by_hand(theorem: Theorem, stated: list[float], corrected: list[float]) -> None:
    for values, repaired in ((stated, False), (corrected, True)):
        bound = right_side(theorem, C, AT, 16, repaired)
        assert [term.value for term in bound.terms] == pytest.approx(values)
        assert bound.total == pytest.approx(sum(values))
    assert right_side(theorem, C, AT, 16, False).terms[0].formula.startswith("U₂²")


@pytest.mark.parametrize("theorem", ALL)
@given(rounds=st.integers(1, 10**6), epsilon=st.floats(0.01, 100.0), updates=st.integers(1, 50))
def test_a_bound_falls_with_rounds_epsilon_and_updates(
    theorem: Theorem, rounds: int, epsilon: float, updates: int
) -> None:
    at = AT._replace(epsilon=epsilon, updates=updates)
    here = right_side(theorem, C, at, rounds).total
    assert right_side(theorem, C, at, 2 * rounds).total <= here * (2.0**-theorem.in_rounds + 0.5 / rounds)
    assert here <= right_side(theorem, C, at._replace(epsilon=epsilon / 2), rounds).total
    assert right_side(theorem, C, at._replace(epsilon=epsilon / 2), rounds).total <= here * 2.0**theorem.in_epsilon
    for repaired in (False, True):
        more = right_side(theorem, C, at._replace(updates=updates + 1), rounds, repaired).total
        assert more < right_side(theorem, C, at, rounds, repaired).total  # the corollary


@pytest.mark.parametrize("theorem", ALL)
def test_any_epsilon_has_a_bound(theorem: Theorem) -> None:
    tiny, least, huge, none = (
        right_side(theorem, C, AT._replace(epsilon=epsilon), 16).total for epsilon in (5e-324, 1e-6, 1e300, math.inf)
    )
    assert tiny == math.inf and math.isfinite(least)
    assert huge == pytest.approx(none)


@pytest.mark.parametrize("theorem", ALL)
def test_at_one_agent_only_the_dual_term_and_the_shift_differ(theorem: Theorem) -> None:
    alone, at = C._replace(agents=1), AT._replace(updates=1, dual=AT.gamma)
    assert right_side(theorem, alone, at, 9).total == pytest.approx(right_side(theorem, alone, at, 9, False).total)
    assert right_side(theorem, C, at, 9).total > right_side(theorem, C, at, 9, False).total


@pytest.mark.parametrize("theorem", ALL)
@pytest.mark.parametrize("composition", ["basic", "root"])
def test_at_one_total_epsilon_more_updates_make_every_bound_worse_in_the_end(
    theorem: Theorem, composition: str
) -> None:
    def total(updates: int) -> float:
        epsilon = per_update(10.0, 100, updates, composition)
        return right_side(theorem, C, AT._replace(epsilon=epsilon, updates=updates), 100).total

    assert total(10) > total(1)
    assert total(1000) > 5.0 * total(10)


def test_without_noise_theorem_1_falls_as_one_over_rounds() -> None:
    quiet = AT._replace(epsilon=math.inf)
    assert right_side(SMOOTH, C, quiet, 200).total == pytest.approx(right_side(SMOOTH, C, quiet, 100).total / 2)
