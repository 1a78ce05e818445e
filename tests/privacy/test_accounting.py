"""Composition of events: golden numbers, independent implementations, and budgets that are never exceeded."""

from __future__ import annotations

import math
from functools import partial

import dp_accounting
import pytest
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.errors import CorruptFile, InputError
from taciturn.privacy.accountants import ACCOUNTANTS, AccountantSpec, describe_accountant, pure, tightest
from taciturn.privacy.accountants.pld import pld, pld_epsilon
from taciturn.privacy.accountants.zcdp import zcdp, zcdp_budget, zcdp_epsilon
from taciturn.privacy.calibration import affordable_rounds, calibrate
from taciturn.privacy.events import NON_PRIVATE, Discrete, Event, Hidden, Noise, Nominal, Objective, Sampled, event_of
from taciturn.runs.ledger import privacy_loss

DELTA = 1e-6
TOTALS = (0.5, 1.0, 3.0, 8.0)
MULTIPLIERS = {
    10: (25.48, 13.36, 4.882, 2.065),
    100: (80.58, 42.25, 15.44, 6.530),
    1000: (254.8, 133.6, 48.82, 20.65),
    20000: (1140.0, 597.5, 218.3, 92.35),
}
LAPLACE_STEPS = {
    10: (0.0501, 0.1000, 0.2998, 0.7993),
    100: (0.0126, 0.0241, 0.0666, 0.1607),
}


@pytest.mark.parametrize("k", MULTIPLIERS)
def test_gaussian_multipliers(k: int) -> None:
    found = [calibrate(lambda s: {Noise("gaussian", s, math.inf, 1.0): k}, total, DELTA) for total in TOTALS]
    assert found == pytest.approx(MULTIPLIERS[k], rel=0.01)


@pytest.mark.parametrize("k", LAPLACE_STEPS)
def test_laplace_steps(k: int) -> None:
    """Where a record moves one coordinate, so that L1 and L2 sensitivity are the same, PLD is the tightest."""
    far = 1e9  # an L2 sensitivity that says nothing
    scales = [calibrate(lambda s: {Noise("laplace", s, 1.0, far): k}, total, DELTA) for total in TOTALS]
    assert [1.0 / scale for scale in scales] == pytest.approx(LAPLACE_STEPS[k], rel=0.01)


@pytest.mark.parametrize(("k", "step"), [(1000, 0.00750), (20000, 0.00167)])
def test_long_runs_of_laplace_steps_cost_one(k: int, step: float) -> None:
    assert pld_epsilon({Noise("laplace", 1.0 / step, 1.0, 1.0): k}, DELTA) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(("updates", "by_pld", "by_zcdp", "by_pure"), [(1, 57.0, 1.27, 1000.0), (10, 350.0, 4.47, 1e4)])
def test_the_papers_setting_with_a_public_delta(updates: int, by_pld: float, by_zcdp: float, by_pure: float) -> None:
    """20,000 rounds at 0.05 an update on MNIST, records within ||x||_1 <= 312 and ||x||_2 <= 17.2."""
    l1, l2 = 2.0 * 312.0, math.sqrt(2.0) * 17.2
    event, k = Noise("laplace", l1 / 0.05, l1, l2), 20000 * updates
    assert pure({event: k}, DELTA) == pytest.approx(by_pure)
    assert pld_epsilon({event: k}, DELTA) == pytest.approx(by_pld, rel=0.03)
    assert pld({event: k}, DELTA) is None  # not worth its time: by the L2 sensitivity it is far less
    bound = tightest({event: k}, DELTA)
    assert bound.accountant == "zcdp"
    assert bound.epsilon == pytest.approx(by_zcdp, rel=0.05)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["gaussian", "laplace", "discrete-laplace"]),
    st.floats(0.05, 20.0),
    st.integers(1, 300),
    st.sampled_from([1e-4, 1e-6, 1e-9]),
    st.sampled_from([1.0, 5.0, 40.0]),
)
def test_calibrated_noise_spends_the_budget_and_never_more(
    mechanism: str, total: float, k: int, delta: float, ratio: float
) -> None:
    def events(scale: float) -> dict[Event, int]:
        return {Noise(mechanism, scale, ratio, 1.0): k}

    cost = tightest(events(calibrate(events, total, delta)), delta).epsilon
    assert total * (1.0 - 1e-3) <= cost <= total


def test_totals_are_those_of_independent_calls() -> None:
    k, gaussian, laplace = 50, Noise("gaussian", 30.0, math.inf, 1.5), Noise("laplace", 40.0, 2.0, 1.9)
    assert tightest({gaussian: k}, DELTA).epsilon == pytest.approx(
        get_epsilon_gaussian(30.0 / 1.5 / math.sqrt(k), DELTA)
    )
    own = PLDAccountant(value_discretization_interval=1e-4).compose(dp_accounting.LaplaceDpEvent(20.0), k)
    assert pld({laplace: k}, DELTA) == pytest.approx(own.get_epsilon(DELTA))
    rho = k * 1.9**2 / (2.0 * 40.0**2)
    orders = [1.0 + 0.02 * 1.01**i for i in range(1400)]
    renyi = RdpAccountant(orders).compose(dp_accounting.ZCDpEvent(rho)).get_epsilon(DELTA)
    assert zcdp({laplace: k}, DELTA) == pytest.approx(renyi, rel=1e-3)
    mixed = PLDAccountant(value_discretization_interval=1e-4)
    mixed.compose(dp_accounting.LaplaceDpEvent(20.0), k).compose(dp_accounting.GaussianDpEvent(20.0), k)
    both = tightest({laplace: k, gaussian: k}, DELTA)
    assert both.epsilon <= mixed.get_epsilon(DELTA) * (1.0 + 1e-9)


def test_a_shift_of_one_coordinate_is_the_worst_of_its_l1_length() -> None:
    """An assumption of the PLD accountant: smaller changes of several coordinates never cost more."""
    for parts in ([0.5, 0.5], [0.9, 0.1], [0.25] * 4):
        split = PLDAccountant(value_discretization_interval=1e-4)
        for part in parts:
            split.compose(dp_accounting.LaplaceDpEvent(1.0 / part))
        whole = PLDAccountant(value_discretization_interval=1e-4).compose(dp_accounting.LaplaceDpEvent(1.0))
        for epsilon in (0.0, 0.2, 0.5, 0.9):
            assert split.get_delta(epsilon) <= whole.get_delta(epsilon) + 1e-3


def test_discrete_gaussians_need_more_noise_than_continuous_ones_where_integers_are_coarse() -> None:
    """The closed form has negligible slack, and never needs more noise than zCDP."""
    for total, extra in zip(TOTALS, (1.077, 1.072, 1.065, 1.056), strict=True):
        continuous = calibrate(lambda s: {Noise("gaussian", s, math.inf, 1.0): 100}, total, DELTA)
        for unit, expected in ((1e6, 1.0), (1.0, extra)):
            discrete = calibrate(partial(_discrete, unit), total, DELTA)
            assert discrete / continuous == pytest.approx(expected, rel=1e-5 if unit > 1.0 else 0.01)


def _discrete(unit: float, scale: float) -> dict[Event, int]:
    return {Discrete(scale, 1.0, scale * unit, 1000): 100}


def test_zcdp_budget_inverts_zcdp_epsilon() -> None:
    rho = zcdp_budget(1.0, DELTA)
    assert zcdp_epsilon(rho, DELTA) <= 1.0 < zcdp_epsilon(rho * 1.001, DELTA)
    assert zcdp_epsilon(0.0, DELTA) == 0.0
    assert zcdp_epsilon(math.inf, DELTA) == math.inf


def test_events_without_an_accountant_cost_infinity() -> None:
    assert tightest({NON_PRIVATE: 1}, DELTA) == (math.inf, "none")
    gaussian = Noise("gaussian", 10.0, math.inf, 1.0)
    assert tightest({gaussian: 3, Nominal("laplace-data-dependent", 0.5): 1}, DELTA).epsilon == math.inf
    assert tightest({}, DELTA).epsilon == 0.0
    assert tightest({NON_PRIVATE: 0}, DELTA).epsilon == 0.0
    with pytest.raises(InputError, match="no finite guarantee"):
        calibrate(lambda s: {NON_PRIVATE: 1}, 1.0, DELTA)
    with pytest.raises(InputError, match="no finite guarantee"):
        calibrate(lambda s: {Noise("gaussian", s, math.inf, math.inf): 1}, 1.0, DELTA)
    with pytest.raises(InputError, match="use inf"):
        calibrate(lambda s: {Noise("gaussian", s, math.inf, 1e-12): 1}, 1e6, DELTA)


def test_affordable_rounds() -> None:
    event = Noise("gaussian", 20.0, math.inf, 1.0)
    n = affordable_rounds(lambda rounds: {event: 2 * rounds}, 1.0, DELTA, 1000)
    assert tightest({event: 2 * n}, DELTA).epsilon <= 1.0 < tightest({event: 2 * (n + 1)}, DELTA).epsilon
    assert affordable_rounds(lambda rounds: {event: 2 * rounds}, 1.0, DELTA, 3) == 3
    assert affordable_rounds(lambda rounds: {Noise("gaussian", 0.1, math.inf, 1.0): rounds}, 1.0, DELTA, 9) == 0


def test_spent_at_several_deltas() -> None:
    found = privacy_loss({Noise("laplace", 10.0, 1.0, 1.0): 4}, 1e-4)
    assert found.pure == pytest.approx(0.4)
    assert list(found.by_delta) == [1e-4, 1e-5, 1e-6, 1e-7, 1e-9]
    assert sorted(found.by_delta.values()) == list(found.by_delta.values())
    assert found.bound.epsilon == found.by_delta[1e-4]
    assert privacy_loss({Noise("gaussian", 10.0, 1.0, 1.0): 4}, 1e-4).pure is None


@pytest.mark.parametrize(
    "event",
    [
        NON_PRIVATE,
        Nominal("gaussian-classic", 0.5, 1e-6),
        Noise("laplace", 2.0, 1.0, 0.5),
        Noise("l2-laplace", 2.0, math.inf, 0.5),
        Discrete(1.0, 0.1, 4e9, 7840),
        Hidden(1.0, 0.1, 10, 0.5),
        Sampled(1.0, 0.1, 0.02),
        Objective(1.0, 0.1, 0.02, 10, "objective-gaussian"),
        Objective(1.0, 0.1, 0.02, 10, "objective-l2-laplace"),
    ],
    ids=lambda event: event.mechanism,
)
def test_an_event_survives_the_ledger(event: Event) -> None:
    import dataclasses
    import json

    from taciturn.core.storage import to_json

    assert event_of(json.loads(to_json(dataclasses.asdict(event)))) == event
    with pytest.raises(CorruptFile, match="lacks the field"):
        event_of({"mechanism": event.mechanism})


def test_a_plugin_accountant_bounds_what_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    def calibrated() -> float:
        return calibrate(lambda scale: {Noise("laplace", scale, 1.0, 1.0): 1}, 1.0, 1e-6)

    before = calibrated()
    monkeypatch.setattr(ACCOUNTANTS, "_items", ACCOUNTANTS._items.copy())
    half = AccountantSpec(lambda counts, delta: (found := pure(counts, delta)) and found / 2.0, "half of it")
    ACCOUNTANTS.register("half")(half)
    assert calibrated() == pytest.approx(before / 2.0, rel=1e-4)
    assert tightest({Noise("laplace", 1.0, 1.0, 1.0): 1}, 1e-6) == (0.5, "half")
    assert describe_accountant("half") == "half of it"
