"""The theorems hold on the seeded problems, at the promised rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from taciturn.research.theory.bounds import right_side
from taciturn.research.theory.measure import exponent_in_epsilon, exponent_in_rounds, log_spaced, mean_interval
from taciturn.research.theory.optimum import optimum
from taciturn.research.theory.small_problems import TheoremCase, cases, simulate_case
from taciturn.research.theory.theorem_checks import Result, check, compare_with_bounds, summary
from taciturn.research.theory.theorems import constants
from taciturn.types import Array

EPSILONS, SEEDS, ROUNDS = (0.25, 0.5, 1.0), 6, 300


@pytest.fixture(scope="module")
def results() -> tuple[Result, ...]:
    return tuple(check(case, EPSILONS, SEEDS, ROUNDS) for case in cases())


def test_every_measured_mean_is_under_its_bound_at_every_round(results: tuple[Result, ...]) -> None:
    assert [result.theorem.number for result in results] == [1, 2, 3]
    for result in results:
        assert result.verdict == "holds", result.theorem
        assert result.optimum.accuracy < 1e-9
        for one in (*result.findings, *result.by_updates):
            pairs = zip(one.measured, one.corrected, strict=True)
            assert all(0.0 < mean.value <= mean.high < bound.total for mean, bound in pairs)


def test_the_gap_falls_at_least_as_fast_as_promised(results: tuple[Result, ...]) -> None:
    for result in results:
        found = result.shown.exponent
        assert found is not None and found.low < found.value < found.high
        assert found.high >= result.theorem.in_rounds, result.theorem
        assert found.high - found.low < 0.4
        assert result.rate_kept
        assert not result._replace(theorem=result.theorem._replace(in_rounds=1.5)).rate_kept


def test_less_epsilon_costs_no_more_than_promised(results: tuple[Result, ...]) -> None:
    for result in results:
        gaps = [one.measured[-1].value for one in result.findings]
        assert gaps == sorted(gaps, reverse=True)  # a smaller epsilon, a larger gap
        assert result.in_epsilon is not None and result.in_epsilon.low > 0.0
        assert not result._replace(theorem=result.theorem._replace(in_epsilon=0.05)).rate_kept
    for result in results[1:]:  # theorem 1's falls twice as fast with T, and so it grows faster as epsilon falls
        assert result.in_epsilon is not None and result.in_epsilon.low <= result.theorem.in_epsilon


def test_more_local_updates_lower_the_bound_and_here_the_gap_too(results: tuple[Result, ...]) -> None:
    for result in results:
        assert [one.setting.updates for one in result.by_updates] == [1, 2, 5, 10]
        means = [one.measured[-1].value for one in result.by_updates]
        assert means == sorted(means, reverse=True)
        printed = [one.stated[-1].total for one in result.by_updates]
        assert printed == sorted(printed, reverse=True)


def test_violated_assumptions_are_named(results: tuple[Result, ...]) -> None:
    assert [one.assumption for one in results[2].shown.broken] == []
    assert [one.assumption for one in results[2].findings[0].broken] == ["2 (i)"]
    assert all(not one.broken for result in results[:2] for one in result.findings)
    told: Any = summary(results[2])
    assert told["verdict"] == "holds" and told["findings"][0]["broken"][0]["needed"] is False
    assert sum(term["value"] for term in told["findings"][0]["terms"]) == pytest.approx(
        told["findings"][0]["corrected"][-1]
    )


def test_a_mean_above_the_bound_is_a_violation_and_any_gamma_will_do() -> None:
    case = cases()[0]
    c, found = constants(case.problem, case.shards), optimum(case.problem, case.shards)
    measured = simulate_case(case, (1.0,), 4, 50)
    for gamma in (0.0, 0.1, 10.0):  # the inequality asks nothing of gamma
        assert compare_with_bounds(case.theorem, c, found, gamma, measured, 1.0, 1).above == ()
    small = c._replace(diameter=0.05, change=0.0)
    one = compare_with_bounds(case.theorem, small, found, 0.0, measured, 1.0, 1)
    assert one.above and one.verdict == "above the bound" and one.exponent is not None
    assert [wrong.assumption for wrong in one.broken] == ["1 (ii)"]


def test_the_left_side_is_that_of_the_papers_averages() -> None:
    """No noise, E = 3: line 5's w and all z^{t,e} kept and averaged afterwards, in an independent reading."""
    case, rounds, updates = cases()[1], 12, 3
    measured = simulate_case(case, (np.inf,), 1, rounds, updates)
    ws, zs = kept(case, rounds, updates)
    w, z = np.mean(ws, axis=0), np.mean(zs, axis=0)
    objective = sum(float(case.problem.objective(z[p][:, None], s)[0]) for p, s in enumerate(case.shards))
    assert measured.objective[-1, 0] == pytest.approx(objective, rel=1e-10)
    assert measured.residual[-1, 0] == pytest.approx(float(np.linalg.norm(w - z)), rel=1e-8)
    assert measured.rounds[-1] == rounds


def kept(case: TheoremCase, rounds: int, updates: int) -> tuple[list[Array], list[Array]]:
    """w^{t+1} of every round, and z^{t,e} of every update."""
    shape = len(case.shards), case.shards[0].x.shape[1], case.shards[0].y.shape[1]
    sent, lam = np.zeros(shape), np.zeros(shape)
    z: Array = np.zeros(shape)
    ws: list[Array] = []
    zs: list[Array] = []
    for t in range(1, rounds + 1):
        w = (sent - lam / case.rho).mean(axis=0)
        total = np.zeros(shape)
        for _ in range(updates):
            zs.append(z)
            slope = np.stack([case.problem.gradient(z[p][:, None], s).value[:, 0] for p, s in enumerate(case.shards)])
            z = np.clip((case.rho * w + lam - slope + z * np.sqrt(t)) / (case.rho + np.sqrt(t)), -1.0, 1.0)
            total += z
        sent = total / updates
        lam = lam + case.rho * (w - sent)
        ws.append(w)
    return ws, zs


def test_rates_of_known_curves() -> None:
    rounds = np.array(log_spaced(1000), float)
    assert rounds[0] == 1 and rounds[-1] == 1000 and (np.diff(rounds) > 0).all()
    noise = 1.0 + 0.1 * np.random.default_rng(2).standard_normal((len(rounds), 20))
    found = exponent_in_rounds(rounds, noise * 3.0 * rounds[:, None] ** -0.75)
    assert found is not None and found.low < 0.75 < found.high and found.value == pytest.approx(0.75, abs=0.03)
    known = exponent_in_epsilon((0.5, 1.0, 2.0), [np.full(4, e**-2.0) for e in (0.5, 1.0, 2.0)])
    assert known == pytest.approx((2.0, 2.0, 2.0))
    alone = exponent_in_rounds(rounds, 3.0 * rounds[:, None] ** -0.75)
    assert alone is not None and alone.value == pytest.approx(0.75) and alone.low == -np.inf
    lone = mean_interval(np.ones((2, 1)))
    assert lone[0].low == -np.inf and lone[0].value == 1.0


def test_no_line_is_fitted_to_two_points_nor_to_a_gap_without_a_logarithm(results: tuple[Result, ...]) -> None:
    assert exponent_in_epsilon((1.0, 2.0), [np.ones(4), np.full(4, 0.5)]) is None
    assert exponent_in_rounds(np.array([1.0, 2.0]), np.ones((2, 4))) is None
    assert exponent_in_epsilon((0.5, 1.0, 2.0), [np.ones(4), np.ones(4), np.zeros(4)]) is None
    result = results[1]
    slow = result._replace(theorem=result.theorem._replace(in_rounds=1.5))
    assert slow.verdict == "holds, rate not seen"
    assert result._replace(in_epsilon=None).verdict == "holds, no exponent in ε"
    assert slow._replace(in_epsilon=None).verdict == "holds, rate not seen, no exponent in ε"
    blind = result._replace(findings=tuple(one._replace(exponent=None) for one in result.findings))
    assert blind.verdict == "holds, no exponent in T" and blind.rate_kept is None


def test_the_printed_bounds_are_drawn_from_the_same_terms(results: tuple[Result, ...]) -> None:
    one = results[1].shown
    again = right_side(one.theorem, results[1].constants, one.setting, one.rounds[-1], corrected=False)
    assert again.total == pytest.approx(one.stated[-1].total)
