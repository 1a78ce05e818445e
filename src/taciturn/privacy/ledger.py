"""A run's ledger: its entries, and the totals spent, planned and left by run and by agent."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, NamedTuple

from taciturn.privacy.accountants import EpsilonBound, pure, tightest
from taciturn.privacy.events import BatchEvent, Event, Nominal, event_of
from taciturn.privacy.trust import trust_of

DELTAS = (1e-5, 1e-6, 1e-7, 1e-9)
VIOLATION = "violation"  # the kind of the line that ends the ledger of a run which released what no plan covers


def entries(
    events: Mapping[tuple[int, BatchEvent], int], runs: Sequence[Mapping[str, Any]], agents: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """One entry for each run, agent and event, with its count; `runs` names the runs of the batch."""
    for r, run in enumerate(runs):
        counts: Counter[tuple[int, Event]] = Counter()
        for (p, batch), count in events.items():
            counts[p, batch.runs[r]] += count
        for (p, event), count in sorted(counts.items(), key=lambda item: item[0][0]):
            yield {"kind": "release", "run": run["run"], "agent": agents[p], **asdict(event), "count": count}


class Spent(NamedTuple):
    """What one agent's releases in one run add up to."""

    bound: EpsilonBound  # at the run's delta
    by_delta: dict[float, float]  # delta -> epsilon
    pure: float | None  # epsilon with delta = 0, where there is one


def releases(ledger: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Counter[Event]]]:
    """run -> agent -> events, from a ledger's entries."""
    found: dict[int, dict[str, Counter[Event]]] = defaultdict(lambda: defaultdict(Counter))
    for entry in ledger:
        if entry["kind"] == "release":
            found[entry["run"]][entry["agent"]][event_of(entry)] += entry["count"]
    return found


def spent(events: Mapping[Event, int], delta: float) -> Spent:
    """The total of these events at several deltas; the agents of a run mostly share it, so it is computed once."""
    return _spent(frozenset(events.items()), delta)


@lru_cache(maxsize=4096)
def _spent(events: frozenset[tuple[Event, int]], delta: float) -> Spent:
    counts = dict(events)
    by_delta = {d: tightest(counts, d).epsilon for d in sorted({*DELTAS, delta}, reverse=True)}
    return Spent(tightest(counts, delta), by_delta, pure(counts, 0.0))


def nominal_sums(ledger: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """By run, the sum of the nominal epsilons at the agent that released most: what basic composition would give."""
    sums: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for run, agents in releases(ledger).items():
        for agent, events in agents.items():
            sums[run][agent] = math.fsum(n * e.epsilon for e, n in events.items() if isinstance(e, Nominal))
    return {run: max(agents.values()) for run, agents in sums.items()}


NO_PLAN: Mapping[str, Any] = {"total_epsilon": math.inf, "planned_epsilon": math.inf}


def ledger_totals(ledger: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The totals of a ledger; a record sits at one agent, so a run's total is the largest of its agents.

    A run that has released nothing yet is there with its plan, and with no agents.
    """
    study = next(entry for entry in ledger if entry["kind"] == "study")
    plans = {entry["run"]: entry for entry in ledger if entry["kind"] == "plan"}
    found = releases(ledger)
    known = sorted(plans.keys() | found.keys())
    runs = [_run(run, found.get(run, {}), plans.get(run, NO_PLAN), study["delta"]) for run in known]
    names = dict.fromkeys(agent for agents in found.values() for agent in agents)
    return {
        "mode": study["mode"],
        "noise": study["noise"],
        "non_private": next((entry["reason"] for entry in ledger if entry["kind"] == "non_private"), None),
        "violation": next((entry["reason"] for entry in ledger if entry["kind"] == VIOLATION), None),
        "unit": study.get("public", {}).get("unit", "record"),
        "central": central_methods(study),
        **trust_of(study),
        "delta": study["delta"],
        "total_epsilon": max((run["spent_epsilon"] for run in runs), default=0.0),
        "planned_epsilon": max((_number(plan["planned_epsilon"]) for plan in plans.values()), default=math.inf),
        "all_runs_epsilon": _together(found, study["delta"]),
        "agents": [_over_runs(name, runs) for name in names],
        "events": [
            {"run": run, "agent": agent, **asdict(event), "count": count}
            for run, agents in sorted(found.items())
            for agent, events in agents.items()
            for event, count in events.items()
        ],
        "runs": runs,
    }


def central_methods(study: Mapping[str, Any]) -> list[str]:
    """The methods of a ledger's first line that are references with a trusted curator."""
    return [name for name, method in study.get("methods", {}).items() if method["central"]]


def _run(run: int, agents: Mapping[str, Counter[Event]], plan: Mapping[str, Any], delta: float) -> dict[str, Any]:
    totals = {agent: spent(events, delta) for agent, events in agents.items()}
    planned = _number(plan["planned_epsilon"])
    worst = max(totals.values(), key=lambda total: total.bound.epsilon, default=spent({}, delta))
    return {
        "run": run,
        "algorithm": plan.get("algorithm", ""),
        "total_epsilon": _number(plan["total_epsilon"]),
        "planned_epsilon": planned,
        "spent_epsilon": worst.bound.epsilon,
        "accountant": worst.bound.accountant,
        "agents": [_agent(agent, total, planned) for agent, total in totals.items()],
    }


def _agent(agent: str, total: Spent, planned: float) -> dict[str, Any]:
    return {
        "agent": agent,
        "epsilon": total.bound.epsilon,
        "left": max(0.0, planned - total.bound.epsilon) if math.isfinite(total.bound.epsilon) else 0.0,
        "pure_epsilon": total.pure,
        "by_delta": {f"{delta:g}": epsilon for delta, epsilon in total.by_delta.items()},
    }


def _over_runs(name: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """An agent in the run that cost it most."""
    return max(
        (agent for run in runs for agent in run["agents"] if agent["agent"] == name),
        key=lambda agent: float(agent["epsilon"]),
    )


def _together(found: Mapping[int, Mapping[str, Counter[Event]]], delta: float) -> float:
    """The total where the models of all runs are shown: every run released the same records once more."""
    sums: dict[str, Counter[Event]] = {}
    for agents in found.values():
        for agent, events in agents.items():
            sums.setdefault(agent, Counter()).update(events)
    distinct = {frozenset(events.items()) for events in sums.values()}
    return max((tightest(dict(events), delta).epsilon for events in distinct), default=0.0)


def _number(value: Any) -> float:
    return float(value)  # a ledger writes inf as a word
