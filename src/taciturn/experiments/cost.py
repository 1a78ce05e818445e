"""What all fits of a sweep would spend together: choosing among models that were trained on records spends too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from taciturn.data import Facts
from taciturn.experiments.grid import Grid, GridPoint
from taciturn.planning.plan import StudyPlan, plan_from_facts, public_facts, reservation_cost
from taciturn.planning.study import batches
from taciturn.privacy.accountants import tightest
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.composition import together
from taciturn.privacy.events import Event
from taciturn.reporting.tables import format_epsilon
from taciturn.settings import Settings

SIMULATED = " This is a simulation, which protects nobody: its noise comes from known seeds, which points share."


class ChargedRecords(NamedTuple):
    """Whose budget it is: sums over other records, or other neighbours, would hold for nothing."""

    name: str
    adjacency: str
    unit: str


@dataclass(frozen=True)
class Spending:
    """What the runs on the same records come to."""

    records: ChargedRecords
    runs: int
    without_noise: int  # of the runs
    epsilon: float  # of all runs together
    delta: float
    seeded: bool

    def sentence(self) -> str:
        """In words, for before it begins."""
        all_of = f"All {self.runs} runs together" if self.runs > 1 else "The one run"
        if self.without_noise:
            cost = f"no finite epsilon ({self.without_noise} of them are without noise)"
        else:
            cost = f"epsilon {format_epsilon(self.epsilon)} at delta {self.delta:g}"
        own = ", if each had noise of its own" if self.runs > 1 and self.seeded else ""
        words = f"{all_of} would spend {cost} on the data '{self.records.name}'{own}"
        return f"{words}; who chooses among them has spent all of it.{SIMULATED if self.seeded else ''}"


@dataclass(frozen=True)
class GridCost:
    """What a sweep would take: nothing was read but public facts, and every point is known to be possible."""

    rounds: tuple[int, ...]  # of each point, all its algorithms together
    spending: tuple[Spending, ...]  # none in mode paper

    def sentences(self) -> list[str]:
        """What it would spend, in words."""
        return [one.sentence() for one in self.spending] or [
            "Mode paper has no end-to-end guarantee: there is no finite epsilon to add up."
        ]


def cost_of(grid: Grid) -> GridCost:
    """The rounds and the spending of every point; what would stop one of them stops the sweep here."""
    facts: dict[str, Facts] = {}
    planned = {point.name: _outline(point.settings, facts) for point in grid.points if _certified(point)}
    rounds = tuple(
        sum(part.rounds for part in planned[point.name].parts)
        if point.name in planned
        else int(point.settings.rounds) * len(batches(point.settings))
        for point in grid.points
    )
    groups: dict[ChargedRecords, list[StudyPlan]] = {}
    for plan in planned.values():
        whose = ChargedRecords(plan.facts.name, plan.settings.adjacency, plan.facts.unit)
        groups.setdefault(whose, []).append(plan)
    return GridCost(rounds, tuple(_spending(whose, plans) for whose, plans in groups.items()))


def check_ledger(points: Sequence[GridPoint]) -> None:
    """Refuse points that a ledger over studies has no room for, all together, before the first begins."""
    facts: dict[str, Facts] = {}
    plans = [_outline(point.settings, facts) for point in points if point.settings.ledger]
    if plans:
        account = BudgetLedger.open(Path(plans[0].settings.ledger))
        whole = together(reservation_cost(plan) for plan in plans)
        for adjacency, unit in {(plan.settings.adjacency, plan.facts.unit) for plan in plans}:
            account.after(account.state(), whole, adjacency, unit)


def _certified(point: GridPoint) -> bool:
    return point.settings.mode == "certified"


def _outline(settings: Settings, facts: dict[str, Facts]) -> StudyPlan:
    """The point's plan; a data set's public facts are read once for all points that share them."""
    key = repr((settings.data_options(), settings.total_records, settings.records_max))
    if key not in facts:
        facts[key] = public_facts(settings)
    return plan_from_facts(settings, facts[key])


def _spending(whose: ChargedRecords, plans: Sequence[StudyPlan]) -> Spending:
    runs = [plan for outline in plans for part in outline.parts for plan in part.plans]
    events: Counter[Event] = Counter()
    for plan in runs:
        events.update(plan.events)
    delta = min(outline.settings.delta for outline in plans)
    return Spending(
        whose,
        len(runs),
        sum(math.isinf(plan.total_epsilon) for plan in runs),
        tightest(events, delta).epsilon,
        delta,
        any(outline.settings.noise != "hardened" for outline in plans),
    )
