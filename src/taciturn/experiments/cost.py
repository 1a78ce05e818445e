"""Privacy cost of an experiment: choosing among models that were trained on the same records spends their sum."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from taciturn.data import Facts
from taciturn.experiments.grid import Grid, GridPoint
from taciturn.planning.plan import (
    StudyPlan,
    drawn_key,
    plan_from_facts,
    public_facts,
    reservation_cost,
    study_split,
)
from taciturn.planning.study import batches
from taciturn.privacy.accountants import tightest
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.composition import ZERO_COST, total_cost
from taciturn.privacy.events import Event
from taciturn.reporting.tables import format_epsilon
from taciturn.settings import Settings

SIMULATED = " This is a simulation, which protects no one: its noise comes from known seeds, which points share."


class ChargedRecords(NamedTuple):
    """The records that runs are charged to; costs add up only for the same records and neighbouring relation."""

    name: str
    adjacency: str
    unit: str


@dataclass(frozen=True)
class Spending:
    """What all runs on the same records spend together."""

    records: ChargedRecords
    runs: int
    without_noise: int  # number of runs without noise
    epsilon: float  # of all runs together
    delta: float
    seeded: bool

    def to_json(self) -> dict[str, object]:
        """Return the figures under the names that `--json` prints."""
        return {**self.records._asdict(), "runs": self.runs, "epsilon": self.epsilon, "delta": self.delta}

    def describe(self) -> str:
        """Return one or two sentences to show before the runs start."""
        runs = f"All {self.runs} runs together" if self.runs > 1 else "The one run"
        if self.without_noise:
            cost = f"no finite epsilon ({self.without_noise} of them are without noise)"
        else:
            cost = f"epsilon {format_epsilon(self.epsilon)} at delta {self.delta:g}"
        own = ", if each had its own noise" if self.runs > 1 and self.seeded else ""
        return (
            f"{runs} would spend {cost} on the data '{self.records.name}'{own}; choosing among them spends all of "
            f"it.{SIMULATED if self.seeded else ''}"
        )


@dataclass(frozen=True)
class GridCost:
    """Rounds and privacy cost of a grid, computed from public facts alone."""

    rounds: tuple[int, ...]  # of each point, all its algorithms together
    spending: tuple[Spending, ...]  # by charged records; empty in mode paper

    def sentences(self) -> list[str]:
        """Return the cost in sentences."""
        return [spending.describe() for spending in self.spending] or [
            "Mode paper has no end-to-end guarantee: there is no finite epsilon to add up."
        ]


def estimate_cost(grid: Grid) -> GridCost:
    """Return rounds and spending of every point of a grid.

    Raises
    ------
    InputError
        If a point cannot be trained, so that the experiment stops before its first run.
    """
    facts: dict[str, Facts] = {}
    plans = {point.name: _plan(point.settings, facts) for point in grid.points if point.settings.mode == "certified"}
    rounds = tuple(
        sum(part.rounds for part in plans[point.name].parts)
        if point.name in plans
        else int(point.settings.rounds) * len(batches(point.settings))
        for point in grid.points
    )
    groups: dict[ChargedRecords, list[StudyPlan]] = {}
    for plan in plans.values():
        records = ChargedRecords(plan.facts.name, plan.settings.adjacency, plan.facts.unit)
        groups.setdefault(records, []).append(plan)
    return GridCost(rounds, tuple(_spending(records, group) for records, group in groups.items()))


def check_budget(points: Sequence[GridPoint]) -> None:
    """Raise if the ledger that the points name has no room for all of them together.

    Raises
    ------
    BudgetExhausted
        Before the first point starts.
    """
    facts: dict[str, Facts] = {}
    plans = [_plan(point.settings, facts) for point in points if point.settings.ledger]
    if plans:
        ledger = BudgetLedger.open(Path(plans[0].settings.ledger))
        total = total_cost(reservation_cost(plan) for plan in plans)
        held_out = total_cost(plan.held_out_cost for plan in plans)
        drawn = drawn_key(plans[0].settings)  # points without a key of their own share one
        splits = {
            study_split(plan.settings, drawn if plan.settings.partition_key == "auto" else None) for plan in plans
        }
        if len(splits) > 1:  # points with other splits are charged for both sides on both
            total, held_out, splits = total_cost([total, held_out]), ZERO_COST, {""}
        for adjacency, unit in {(plan.settings.adjacency, plan.facts.unit) for plan in plans}:
            ledger.epsilon_after(ledger.state(), total, adjacency, unit, held_out, *splits)


def _plan(settings: Settings, facts: dict[str, Facts]) -> StudyPlan:
    """Plan a point; `facts` caches a data set's public facts for the points that share them."""
    key = repr((settings.data_options(), settings.total_records, settings.records_max))
    if key not in facts:
        facts[key] = public_facts(settings)
    return plan_from_facts(settings, facts[key])


def _spending(records: ChargedRecords, plans: Sequence[StudyPlan]) -> Spending:
    runs = [run for plan in plans for part in plan.parts for run in part.plans]
    events: Counter[Event] = Counter()
    for run in runs:
        events.update(run.events)
    delta = min(plan.settings.delta for plan in plans)
    return Spending(
        records,
        len(runs),
        sum(math.isinf(run.total_epsilon) for run in runs),
        tightest(events, delta).epsilon,
        delta,
        any(not plan.settings.hardened for plan in plans),
    )
