"""The privacy meter: what every agent has spent, what is left of the plan, and what the next round costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tacit.privacy.accounting import EXPLAINED, Bound, tightest
from tacit.privacy.events import Event, event_of
from tacit.privacy.guarantee import headline, holds
from tacit.privacy.ledger import releases
from tacit.privacy.statement import PAPER_HEADLINE, statement
from tacit.privacy.totals import ledger_totals
from tacit.views.curves import run_label
from tacit.views.tables import format_epsilon


class Reading(NamedTuple):
    """What one agent's meter shows in one run."""

    spent: str
    left: str
    next: str  # empty where the plan has no round left
    share: float  # spent of the plan, from 0 to 1
    next_share: float
    accountant: str


def meters(ledger: Sequence[Mapping[str, Any]], done: Mapping[int, int]) -> dict[str, Any]:
    """A meter for every algorithm and budget; `done` has the last round of every run, charged or not yet."""
    study = next(entry for entry in ledger if entry["kind"] == "study")
    if study["mode"] == "paper":
        return {"headline": PAPER_HEADLINE, "good": False, "reasons": statement(ledger)["reasons"], "runs": []}
    plans = [entry for entry in ledger if entry["kind"] == "plan"]
    agents, totals = _agents(ledger), ledger_totals(ledger)
    return {
        "headline": headline(totals),
        "reasons": [],
        "good": holds(totals),
        "delta": study["delta"],
        "runs": _alike([_run(plan, ledger, agents, done.get(plan["run"], 0), study) for plan in plans]),
    }


def _private(plan: Mapping[str, Any]) -> bool:
    return math.isfinite(float(plan["total_epsilon"]))


def _agents(ledger: Iterable[Mapping[str, Any]]) -> list[str]:
    """The agents the ledger names; before the first line of a release, nobody in particular."""
    names = dict.fromkeys(entry["agent"] for entry in ledger if entry["kind"] == "release")
    return list(names) or ["every agent"]


def _run(
    plan: Mapping[str, Any],
    ledger: Sequence[Mapping[str, Any]],
    agents: Sequence[str],
    done: int,
    study: Mapping[str, Any],
) -> dict[str, Any]:
    mine = [entry for entry in ledger if entry["kind"] == "release" and entry["run"] == plan["run"]]
    charged = max((entry["last"] for entry in mine if "last" in entry), default=0)
    waiting = max(0, done - charged) if study["noise"] == "seeded" else 0  # charged at the next checkpoint
    events = releases(mine).get(plan["run"], {})
    groups: dict[Reading, list[str]] = {}
    for agent in agents:
        reading = read(plan, events.get(agent, Counter()), waiting, study["delta"])
        groups.setdefault(reading, []).append(agent)
    return {
        "label": run_label(plan["algorithm"], plan["epsilon"]),
        "planned": format_epsilon(plan["planned_epsilon"]),
        "finite": _private(plan),
        "rounds": plan["rounds"],
        "waiting": waiting,
        "agents": [{"names": names, **reading._asdict()} for reading, names in groups.items()],
    }


def read(plan: Mapping[str, Any], charged: Counter[Event], waiting: int, delta: float) -> Reading:
    """One agent's meter: what the ledger charged it with, and `waiting` rounds that it does not have yet."""
    a_round = max(1, round(sum(event["count"] for event in plan["events"]) / plan["rounds"]))
    spent = charged + _next(plan, charged, waiting * a_round)
    following = _next(plan, spent, a_round)
    now, planned = _bound(spent, delta), float(plan["planned_epsilon"])
    cost = _bound(spent + following, delta).epsilon - now.epsilon if following else math.nan
    return Reading(
        spent=format_epsilon(now.epsilon),
        left=format_epsilon(max(0.0, planned - now.epsilon)) if math.isfinite(now.epsilon) else "0",
        next="" if math.isnan(cost) else format_epsilon(cost),
        share=_share(now.epsilon, planned),
        next_share=0.0 if math.isnan(cost) else _share(cost, planned),
        accountant=EXPLAINED[now.accountant],
    )


def _share(epsilon: float, planned: float) -> float:
    return round(min(1.0, epsilon / planned), 4) if 0.0 < planned < math.inf else 0.0


def _next(plan: Mapping[str, Any], spent: Mapping[Event, int], count: int) -> Counter[Event]:
    """The plan's next events, in its order, behind those that were spent."""
    found: Counter[Event] = Counter()
    for entry in plan["events"]:
        event = event_of(entry)
        taken = min(max(0, entry["count"] - spent.get(event, 0)), count - found.total())
        if taken > 0:
            found[event] += taken
    return found


def _bound(events: Counter[Event], delta: float) -> Bound:
    return _bound_of(frozenset(events.items()), delta)


@lru_cache(maxsize=1024)
def _bound_of(events: frozenset[tuple[Event, int]], delta: float) -> Bound:
    return tightest(dict(events), delta)


def _alike(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One meter for the seeds of a setting that have spent the same."""
    found: list[dict[str, Any]] = []
    for run in runs:
        same = next((other for other in found if all(other[key] == run[key] for key in run)), None)
        if same:
            same["seeds"] += 1
        else:
            found.append({**run, "seeds": 1})
    return found
