"""Hardened noise is that of the closed form, in plans, in ledgers of runs and in ledgers over studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.hardened_noise import MOST, RESULTS, begun, planned

import taciturn
from taciturn.algorithms.noisy_gradient import HardenedGradient
from taciturn.errors import BudgetExhausted
from taciturn.planning.plan import StudyPlan, plan_study
from taciturn.privacy.accountants import tightest
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.events import Discrete
from taciturn.settings import resolve
from taciturn.types import GRID

CLINICS: dict[str, Any] = {
    "data": "tests/data/clinics/records.csv",
    "schema": "tests/data/clinics/schema.toml",
    "agents": 3,
    "total_records": 700,
    "noise": "hardened",
    "rounds": 5,
}


def test_noise_over_the_closed_form_in_plans() -> None:
    for row in planned({"data": "mnist14"}, 1e-6) + planned(CLINICS, 1e-9, (0.5, 8.0)):
        assert row["accountant"] == "gdp"
        assert 1.0 <= row["over_closed_form"] <= MOST
        assert 0.9999 * row["epsilon"] < row["planned_epsilon"] <= row["epsilon"]


def test_noise_over_the_closed_form_in_the_ledger_of_a_run(tmp_path: Path) -> None:
    row = begun(1.0, tmp_path, {name: value for name, value in CLINICS.items() if name != "noise"} | {"rounds": 300})
    assert row["over_closed_form"] <= MOST and row["spent"] < row["planned_epsilon"]


def test_what_was_measured() -> None:
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert found["largest_over_closed_form"] <= MOST
    assert {row["epsilon"] for rows in found["plans"].values() for row in rows} == {0.5, 1.0, 3.0, 8.0}


def study(**changes: Any) -> StudyPlan:
    return plan_study(resolve(CLINICS | changes))


def drawn(plan: StudyPlan) -> list[float]:
    """The sigma of every run, as its release would draw it."""
    release: Any = getattr(plan.parts[0].algorithm, "release")  # noqa: B009  not every algorithm has one
    assert isinstance(release, HardenedGradient)
    unit = plan.problem.records * GRID * 2.0**release.bits
    return [float(scale * unit) for scale in release.mechanism.scale]


@pytest.mark.parametrize(
    "changes",
    [
        {"total_epsilon": 1.0},
        {"total_epsilon": (0.5, 1.0, 8.0)},
        {"total_epsilon": (1e-4, 8.0)},  # so much noise that it takes bits away from the other run
        {"noise_multiplier": 17.3},
        {"total_epsilon": 1.0, "records_max": 10**9},
    ],
)
def test_the_ledger_has_the_sigma_that_is_drawn(changes: dict[str, Any]) -> None:
    made = study(**changes)
    plans = made.parts[0].plans
    assert [plan.event.sigma for plan in plans if isinstance(plan.event, Discrete)] == drawn(made)
    for plan, label in zip(plans, made.parts[0].batch.labels(), strict=True):
        assert plan.event in plan.events and plan.bound == tightest(plan.events, plan.delta)
        assert plan.entry(label).events[0].event == plan.event
        assert isinstance(plan.event, Discrete) and plan.event.coordinates == made.facts.features * made.facts.outputs


def test_runs_of_one_study_share_their_integers() -> None:
    both, alone = (study(algorithm="dpgd", total_epsilon=epsilon) for epsilon in ((1e-4, 8.0), 8.0))
    events = [plan.event for part in both.parts for plan in part.plans]
    units = {event.sigma / event.scale for event in events if isinstance(event, Discrete)}
    assert max(units) == pytest.approx(min(units)) and len(events) == 2
    assert drawn(both)[1] < drawn(alone)[0]


def test_a_run_of_all_of_a_ledgers_budget_fits_it(tmp_path: Path) -> None:
    """By zCDP, epsilon 1 would not fit 1."""
    account = BudgetLedger.create(tmp_path / "l", "clinics", 1.0, 1e-6)
    asked = CLINICS | {"ledger": str(account.path)}
    taciturn.run(total_epsilon=1.0, out=tmp_path / "r", **asked)
    state = account.state()
    assert 0.9999 < state.epsilon_used <= 1.0
    with pytest.raises(BudgetExhausted):
        taciturn.run(total_epsilon=0.01, out=tmp_path / "second", **asked)


def test_two_gaussian_runs_compose_and_laplace_runs_fit_as_well(tmp_path: Path) -> None:
    account = BudgetLedger.create(tmp_path / "l", "clinics", 1.1, 1e-6)
    asked = CLINICS | {"ledger": str(account.path)}
    for name in ("a", "b"):
        taciturn.run(total_epsilon=0.7, out=tmp_path / name, **asked)
    assert account.state().epsilon_used == pytest.approx(1.01617, rel=1e-4)
    taciturn.run(total_epsilon=0.1, mechanism="laplace", out=tmp_path / "c", **asked)
    state = account.state()
    assert state.rule is not None and state.rule.accountant == "gdp" and 1.01618 < state.epsilon_used <= 1.1
