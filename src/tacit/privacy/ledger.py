"""The ledger: how often each agent released something, under which event."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tacit.privacy.events import BatchEvent, Event


def entries(
    events: Mapping[tuple[int, BatchEvent], int], runs: Sequence[Mapping[str, Any]], agents: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """One entry for each run, agent and event, with its count; `runs` names the runs of the batch."""
    for r, run in enumerate(runs):
        counts: Counter[tuple[int, Event]] = Counter()
        for (p, batch), count in events.items():
            counts[p, batch.runs[r]] += count
        for (p, event), count in sorted(counts.items(), key=lambda item: item[0][0]):
            yield {**run, "agent": agents[p], **asdict(event), "count": count}


def nominal_sums(ledger: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """By run, the sum of the nominal epsilons at the agent that released most: what basic composition would give."""
    sums: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for entry in ledger:
        sums[entry["run"]][entry["agent"]] += float(entry["epsilon"]) * entry["count"]
    return {run: max(agents.values()) for run, agents in sums.items()}
