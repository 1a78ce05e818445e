"""Composition over studies: a study may use exactly what is left, and the first study fixes the stopping rule."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import mpmath
import numpy as np
import pytest
from dp_accounting import ZCDpEvent
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from taciturn.core.storage import to_json
from taciturn.errors import InputError
from taciturn.planning.plan import plan_study
from taciturn.privacy.accountants import tightest
from taciturn.privacy.accountants.gdp import NO_SLACK, Slack, gdp_budget, gdp_epsilon, gdp_mu_squared, pure_mu
from taciturn.privacy.accountants.zcdp import ORDERS, zcdp_epsilon
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.calibration import calibrate
from taciturn.privacy.composition import (
    SLACK_SHARES,
    ZERO_COST,
    PrivacyFilter,
    StudyCost,
    composed_epsilon,
    cost_of,
    max_cost,
    total_cost,
)
from taciturn.privacy.events import NON_PRIVATE, Discrete, Event, Hidden, Noise, Objective, Sampled
from taciturn.settings import resolve

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 3.0, 8.0)


def hardened(epsilon: float, unit: float = 1e8, delta: float = DELTA) -> StudyCost:
    """Return the cost of 300 hardened releases of 8,000 numbers with this total-epsilon."""

    def events(scale: float) -> dict[Event, int]:
        return {Discrete(scale, 1.0, scale * unit, 8000): 300}

    return cost_of(events(calibrate(events, epsilon, delta)))


def begun(total: float, *studies: StudyCost) -> tuple[PrivacyFilter, StudyCost]:
    """Return the filter and the cost of these studies, each of which fits."""
    rule, used = PrivacyFilter.begin(total, DELTA, studies[0]), ZERO_COST
    for study in studies:
        used = total_cost([used, study])
        assert rule.allows(used)
    return rule, used


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("unit", [2e5, 1e8])
def test_a_study_of_all_of_a_budget_fits_it(epsilon: float, unit: float) -> None:
    """zCDP would need over seven percent more."""
    study = hardened(epsilon, unit)
    rule, used = begun(epsilon, study)
    assert rule.accountant == "gdp"
    assert rule.epsilon(used) == pytest.approx(epsilon, rel=1e-5) and rule.epsilon(used) <= epsilon
    assert zcdp_epsilon(study.zcdp, DELTA) > 1.05 * epsilon
    assert not rule.allows(total_cost([used, hardened(0.01 * epsilon)]))
    assert rule.next_epsilon(used) < 0.01 * epsilon


def test_two_studies_compose_as_gaussian_ones() -> None:
    study = hardened(0.7)
    rule, used = begun(1.1, study, study)
    alone = gdp_budget(0.7, NO_SLACK, DELTA)
    assert rule.epsilon(used) == pytest.approx(gdp_epsilon(2.0 * alone, NO_SLACK, DELTA), rel=1e-5)
    assert rule.epsilon(used) == pytest.approx(1.0162, abs=1e-3)  # 0.7 and 0.7 by the closed form
    assert not PrivacyFilter.begin(1.0, DELTA, study).allows(used)


def test_a_study_that_is_said_to_fit_does_fit() -> None:
    rule, used = begun(3.0, hardened(1.0))
    left = rule.next_epsilon(used)
    assert rule.allows(total_cost([used, hardened(left * (1.0 - 1e-5))]))
    assert not rule.allows(total_cost([used, hardened(left * 1.001)]))


def test_the_first_study_fixes_the_sum() -> None:
    gaussian, laplace = hardened(0.5), cost_of({Noise("discrete-laplace", 4000.0, 14.0, 1.0): 300})
    by_zcdp, used = begun(2.0, laplace, gaussian)
    assert by_zcdp.accountant == "zcdp"
    assert by_zcdp.epsilon(used) == zcdp_epsilon(laplace.zcdp + gaussian.zcdp, DELTA)
    by_gdp, used = begun(2.0, gaussian, laplace)
    assert by_gdp.accountant == "gdp"
    assert by_gdp.epsilon(used) == pytest.approx(gdp_epsilon(laplace.gdp + gaussian.gdp, gaussian.slack, DELTA))


def test_slack_has_a_separate_limit_that_the_first_study_fixes() -> None:
    study = hardened(0.5)
    rule, used = begun(2.0, study)
    assert rule.slack_limit == study.slack + Slack(
        SLACK_SHARES[0] * 2.0, SLACK_SHARES[0] * 2.0, SLACK_SHARES[0] * DELTA
    )
    for name in ("above", "below", "outside"):
        most = getattr(rule.slack_limit, name)
        assert rule.allows(total_cost([used, StudyCost(**{name: 0.9 * most})]))
        assert not rule.allows(total_cost([used, StudyCost(**{name: 1.1 * most})]))
    coarse = hardened(0.5, 100.0)  # so few integers that zCDP gives the better bound
    assert PrivacyFilter.begin(2.0, DELTA, coarse).accountant == "zcdp"


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_study_of_all_of_a_budget_that_ended_early_leaves_room_for_another_kind(epsilon: float) -> None:
    study = hardened(epsilon)
    rule, _ = begun(epsilon, study)
    half = StudyCost(*(0.5 * part for part in asdict(study).values()))
    scale = math.sqrt(300.0 / (0.4 * study.gdp))
    wider = cost_of({Discrete(scale, 1.0, 1e8 * scale, 125_984): 300})  # sixteen times the slack
    assert wider.below > study.below
    assert rule.allows(total_cost([half, wider]))


@pytest.mark.parametrize("first", EPSILONS)
def test_the_limit_holds_where_all_of_the_slack_is_used(first: float) -> None:
    """What the filter allows stays within the budget even if all of the slack limit is used."""
    rule = PrivacyFilter.begin(first, DELTA, hardened(first / 2.0))
    most = gdp_budget(first, rule.slack_limit, DELTA)
    assert rule.allows(StudyCost(most, most, *asdict(rule.slack_limit).values()))
    assert gdp_epsilon(most, rule.slack_limit, DELTA) <= first
    assert not rule.allows(StudyCost(most * (1.0 + 1e-9), most))


@given(st.floats(1e-6, 300.0))
def test_what_is_pure_is_gaussian(epsilon: float) -> None:
    """G_mu lies below f_epsilon, and meets it at (a, a), a = 1 / (1 + e^epsilon)."""
    mu = pure_mu(epsilon)
    assert mu <= math.sqrt(math.pi / 2.0) * epsilon * (1.0 + 1e-12)
    assert norm.logcdf(-mu / 2.0) <= -np.logaddexp(0.0, epsilon) + 1e-9
    alpha = np.linspace(0.0, 1.0, 501)
    f = np.maximum(np.maximum(0.0, 1.0 - np.exp(min(epsilon, 700.0)) * alpha), np.exp(-epsilon) * (1.0 - alpha))
    assert np.all(norm.cdf(norm.isf(alpha) - mu) <= f + 1e-12)


def test_costs_of_events() -> None:
    laplace = Noise("laplace", 10.0, 2.0, 1.0)
    assert gdp_mu_squared(laplace) == pytest.approx(math.pi / 200.0)  # by its coordinates
    assert gdp_mu_squared(Noise("laplace", 10.0, 1.0, 1.0)) == pytest.approx(pure_mu(0.1) ** 2)
    assert gdp_mu_squared(Noise("l2-laplace", 10.0, math.inf, 1.0)) == pytest.approx(pure_mu(0.1) ** 2)
    assert gdp_mu_squared(Discrete(10.0, 1.0, 5.0, 7)) == pytest.approx(0.01)
    gaussian = cost_of({Noise("gaussian", 10.0, math.inf, 1.0): 3, Hidden(10.0, 1.0, 1, 0.5): 1})
    assert gaussian.gdp == pytest.approx(0.04) and gaussian.zcdp == pytest.approx(0.02) and gaussian.slack == NO_SLACK
    for other in (NON_PRIVATE, Sampled(1.0, 1.0, 0.1), Objective(1.0, 1.0, 0.1, 2, "objective-gaussian")):
        assert not cost_of({laplace: 1, other: 1}).finite
    assert cost_of({}) == total_cost([]) == max_cost([]) == ZERO_COST


def test_sums_and_largest_go_field_by_field() -> None:
    one, other = StudyCost(1.0, 2.0, 3.0, 4.0, 0.5), StudyCost(2.0, 1.0, 1.0, 9.0, 0.1)
    assert total_cost([one, other]) == StudyCost(3.0, 3.0, 4.0, 13.0, 0.6)
    assert max_cost([one, other]) == StudyCost(2.0, 2.0, 3.0, 9.0, 0.5)
    assert StudyCost.from_json(json.loads(to_json(asdict(StudyCost(math.inf, 0.1))))) == StudyCost(math.inf, 0.1)


def test_a_mixture_is_bounded_by_the_tightest_that_knows_it() -> None:
    mixed: dict[Event, int] = {Discrete(20.0, 1.0, 2e9, 10): 100, Noise("discrete-laplace", 400.0, 30.0, 1.0): 10}
    bound = tightest(mixed, DELTA)
    assert bound.accountant == "gdp"
    assert bound.epsilon == composed_epsilon("gdp", cost_of(mixed), DELTA) < zcdp_epsilon(cost_of(mixed).zcdp, DELTA)


@pytest.mark.parametrize(("mu", "delta"), [(0.0073276124698958564, 2.056375347563081e-12), (0.3, 1e-6), (30.0, 1e-9)])
def test_the_closed_form_is_rounded_up(mu: float, delta: float) -> None:
    """In 60 digits, delta at the epsilon that is charged is at most the one asked for."""
    with mpmath.workdps(60):
        epsilon, m = mpmath.mpf(gdp_epsilon(mu * mu, NO_SLACK, delta)), mpmath.sqrt(mpmath.mpf(mu * mu))
        exact = mpmath.ncdf(m / 2 - epsilon / m) - mpmath.exp(epsilon) * mpmath.ncdf(-m / 2 - epsilon / m)
        assert exact <= delta


@pytest.mark.parametrize("part", ["gdp", "zcdp", "above", "below", "outside"])
def test_what_is_not_a_number_fits_nowhere(part: str, tmp_path: Path) -> None:
    study = hardened(0.5)
    bad = replace(study, **{part: math.nan})
    assert not bad.finite
    if part != "zcdp":  # a filter of Gaussian DP ignores it
        assert not PrivacyFilter.begin(1.0, DELTA, study).allows(bad)
    with pytest.raises(InputError, match="finite"):
        BudgetLedger.create(tmp_path / "l", "records", 1.0, DELTA).reserve("study", bad)
    assert cost_of({Discrete(1.0, 1.0, 0.1, 5): 0}) == ZERO_COST


def test_a_record_that_moves_to_another_agent_has_the_slack_of_two() -> None:
    """With replace-one, the charged mu^2 covers the sums of two agents, each changed by half, and the slack of both."""
    table = {"data": "tests/data/clinics/records.csv", "schema": "tests/data/clinics/schema.toml", "total_records": 600}
    one, two = (
        plan_study(resolve({**table, "agents": 3, "adjacency": adjacency, "rounds": 5})).parts[0].plans[0].event
        for adjacency in ("add-remove", "replace-one")
    )
    assert isinstance(one, Discrete) and isinstance(two, Discrete)
    assert two.coordinates == 2 * one.coordinates


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2, 0.9])
def test_closed_forms_are_dp_accountings(delta: float) -> None:
    """dp_accounting is a second implementation of both; its solver for gdp stops at 1e-12."""
    accountant = RdpAccountant(ORDERS)
    for mu in np.geomspace(1e-5, 100.0, 29):
        with np.errstate(divide="ignore"):
            theirs = float(get_epsilon_gaussian(1.0 / mu, delta))
        assert theirs - 2e-12 <= gdp_epsilon(mu * mu, NO_SLACK, delta) <= theirs * (1.0 + 1e-9) + 1e-10
        by_orders = accountant.compose(ZCDpEvent(mu)).get_epsilon(delta)
        assert zcdp_epsilon(mu, delta) == pytest.approx(by_orders, rel=1e-12) or by_orders == 0.0
        accountant = RdpAccountant(ORDERS)
