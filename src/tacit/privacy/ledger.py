"""The ledger's entries: how often each agent released something, under which event, and what that adds up to."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, NamedTuple

from tacit.privacy.accountants.pure import pure
from tacit.privacy.accounting import Bound, tightest
from tacit.privacy.events import BatchEvent, Event, Nominal, event_of

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

    bound: Bound  # at the run's delta
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
