"""The ledger of a run: its entries, and the privacy loss that they add up to by run and by agent."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias, TypeVar, overload

from taciturn.errors import CorruptFile
from taciturn.privacy.accountants import EpsilonBound, pure, tightest
from taciturn.privacy.composition import StudyCost, cost_of, max_cost, total_cost
from taciturn.privacy.events import BatchEvent, Event, Nominal
from taciturn.runs.records import (
    AgentTotals,
    EventTotal,
    LedgerEntry,
    NonPrivateEntry,
    PlanEntry,
    PrivacyTotals,
    ReleaseEntry,
    RunLabel,
    RunTotals,
    StudyHeader,
    ViolationEntry,
    ledger_entry,
)

DELTAS = (1e-5, 1e-6, 1e-7, 1e-9)  # at which totals are reported, beside the delta of the run
E = TypeVar("E", bound=LedgerEntry)
EventsByRun: TypeAlias = dict[int, dict[str, Counter[Event]]]
"""How often each event happened, by run and agent."""


def release_entries(
    events: Mapping[tuple[int, BatchEvent], int],
    runs: Sequence[RunLabel],
    agents: Sequence[str],
    first: int,
    last: int,
    session: int = 1,
    upload: str | None = None,
    slot: str | None = None,
) -> Iterator[ReleaseEntry]:
    """Yield one ledger entry for each run, agent and event.

    Parameters
    ----------
    events
        How often each batch event happened, by the index of the agent.
    runs
        Labels of the runs of the batch, in the order of a batch event's runs.
    agents
        Names of the agents.
    first, last
        The rounds in which the events happened.
    session
        Number of the process that worked on the run, from 1.
    upload
        SHA-256 of the message that carried the release, in a federation.
    slot
        "epoch/slot" of a secure sum, in a federation.
    """
    for r, run in enumerate(runs):
        counts: Counter[tuple[int, bool, Event]] = Counter()
        for (p, batch), count in events.items():
            counts[p, batch.held_out, batch.runs[r]] += count
        for (p, held_out, event), count in sorted(counts.items(), key=lambda item: item[0][:2]):
            yield ReleaseEntry(
                run=run.run,
                agent=agents[p],
                event=event,
                count=count,
                first=first,
                last=last,
                session=session,
                upload=upload,
                slot=slot,
                held_out=held_out or None,
            )


class SlotCounts(NamedTuple):
    """The slots of a secure sum in which an agent was asked to upload, and the rounds that they were for."""

    slots: int  # each has one upload, which is charged, whether its sum was opened or lost
    rounds: int


class PrivacyLoss(NamedTuple):
    """The total privacy loss of some events."""

    bound: EpsilonBound  # at the delta of the run
    by_delta: dict[float, float]  # epsilon by delta
    pure: float | None  # epsilon at delta 0; None: infinite


def privacy_loss(events: Mapping[Event, int], delta: float) -> PrivacyLoss:
    """Return the total privacy loss of events with their counts, at `delta` and at some other deltas."""
    return _loss(frozenset(events.items()), delta)


@lru_cache(maxsize=4096)  # most agents of a run have the same events
def _loss(events: frozenset[tuple[Event, int]], delta: float) -> PrivacyLoss:
    counts = dict(events)
    by_delta = {d: tightest(counts, d).epsilon for d in sorted({*DELTAS, delta}, reverse=True)}
    return PrivacyLoss(tightest(counts, delta), by_delta, pure(counts, 0.0))


@dataclass(frozen=True)
class RunLedger(Sequence[LedgerEntry]):
    """The entries of a ledger in their order; the first is the study's header."""

    entries: tuple[LedgerEntry, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, object]], source: object = "the ledger") -> RunLedger:
        """Build the ledger from the rows of its hash chain.

        Raises
        ------
        CorruptFile
            If a row is not a ledger entry, or the first is not a study's header.
        """
        entries = tuple(ledger_entry(row, source) for row in rows)
        if not entries or not isinstance(entries[0], StudyHeader):
            raise CorruptFile(f"{source} is damaged: its first line is not the header of a study")
        return cls(entries)

    @overload
    def __getitem__(self, index: int) -> LedgerEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LedgerEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> LedgerEntry | tuple[LedgerEntry, ...]:
        return self.entries[index]

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def study(self) -> StudyHeader:
        """The header."""
        header = self.entries[0]
        if not isinstance(header, StudyHeader):
            raise TypeError("a ledger begins with the header of its study")
        return header

    def _of(self, kind: type[E]) -> list[E]:
        return [entry for entry in self.entries if isinstance(entry, kind)]

    @cached_property
    def plans(self) -> dict[int, PlanEntry]:
        """The plan of every run by its index; empty in mode paper."""
        return {entry.run: entry for entry in self._of(PlanEntry)}

    @cached_property
    def releases(self) -> list[ReleaseEntry]:
        """Every release."""
        return self._of(ReleaseEntry)

    @property
    def non_private(self) -> str | None:
        """Why the noise protects no one, where the ledger says so."""
        return next((entry.reason for entry in self._of(NonPrivateEntry)), None)

    @property
    def violation(self) -> str | None:
        """Why the run was stopped, where it released something that its plan does not cover."""
        return next((entry.reason for entry in self._of(ViolationEntry)), None)

    @cached_property
    def events(self) -> EventsByRun:
        """How often each event of training records happened, by run and agent."""
        return _events_by_run(entry for entry in self.releases if not entry.held_out)

    @cached_property
    def held_out_events(self) -> EventsByRun:
        """How often each event of held-out records happened, by run and agent."""
        return _events_by_run(entry for entry in self.releases if entry.held_out)

    @cached_property
    def nominal_sums(self) -> dict[int, float]:
        """By run, the sum of the nominal epsilons at the agent that released most (basic composition)."""
        return {
            run: max(
                math.fsum(n * e.epsilon for e, n in events.items() if isinstance(e, Nominal))
                for events in agents.values()
            )
            for run, agents in self.events.items()
        }

    @property
    def slots(self) -> dict[str, SlotCounts]:
        """What each agent was charged in slots of a secure sum; empty without one, and in a simulation."""
        charged: defaultdict[str, set[str]] = defaultdict(set)
        rounds: defaultdict[str, set[int]] = defaultdict(set)
        for entry in self.releases:
            if entry.slot is not None:
                charged[entry.agent].add(entry.slot)
                rounds[entry.agent].add(entry.first)
        return {agent: SlotCounts(len(slots), len(rounds[agent])) for agent, slots in charged.items()}

    @cached_property
    def cost(self) -> StudyCost:
        """The charge to a budget ledger for training records: each run's costliest agent, summed over runs."""
        return _largest_cost(self.events)

    @cached_property
    def held_out_cost(self) -> StudyCost:
        """What held-out records cost a budget ledger."""
        return _largest_cost(self.held_out_events)

    @cached_property
    def totals(self) -> PrivacyTotals:
        """The privacy loss by run and by agent.

        A record is held by one agent, so the total of a run is the largest of its agents. With add-remove a record is
        either a training record or held out, so an agent's total is the larger of the two; a record that is replaced
        may change sides, so with replace-one the two are composed. A run that has released nothing yet is listed with
        its plan and without agents.
        """
        study, plans = self.study, self.plans
        runs = tuple(self._run_totals(run) for run in sorted(plans.keys() | self.events.keys()))
        return PrivacyTotals(
            mode=study.mode,
            noise=study.noise,
            non_private=self.non_private,
            violation=self.violation,
            unit=study.public.unit if study.public else "record",
            central=study.central,
            trust=study.trust_model,
            colluders=study.colluders or 0,
            missing=study.missing or 0,
            sum_protocol=bool(study.sum_protocol),
            delta=study.delta,
            total_records=study.public.total_records if study.public else 0,
            total_epsilon=max((run.spent_epsilon for run in runs), default=0.0),
            planned_epsilon=max((plan.planned_epsilon for plan in plans.values()), default=math.inf),
            all_runs_epsilon=self._all_runs_epsilon(),
            agents=_worst_runs(runs),
            events=tuple(
                EventTotal(run=run, agent=agent, event=event, count=count, held_out=held_out)
                for held_out, events in ((None, self.events), (True, self.held_out_events))
                for run, agents in sorted(events.items())
                for agent, counts in agents.items()
                for event, count in counts.items()
            ),
            runs=runs,
        )

    def _run_totals(self, run: int) -> RunTotals:
        plan, delta = self.plans.get(run), self.study.delta
        planned = plan.planned_epsilon if plan else math.inf
        losses = {agent: self._loss(run, agent) for agent in self._agents(run)}
        worst = max(losses.values(), key=lambda loss: loss.bound.epsilon, default=privacy_loss({}, delta))
        return RunTotals(
            run=run,
            algorithm=plan.algorithm if plan else "",
            total_epsilon=plan.total_epsilon if plan else math.inf,
            planned_epsilon=planned,
            spent_epsilon=worst.bound.epsilon,
            accountant=worst.bound.accountant,
            agents=tuple(_agent_totals(agent, loss, planned) for agent, loss in losses.items()),
        )

    def _agents(self, run: int) -> list[str]:
        return list(dict.fromkeys([*self.events.get(run, {}), *self.held_out_events.get(run, {})]))

    def _loss(self, run: int, agent: str) -> PrivacyLoss:
        """Return the privacy loss of a record of one agent, on whichever side it is."""
        sides = [one.get(run, {}).get(agent, Counter()) for one in (self.events, self.held_out_events)]
        if self.study.adjacency != "add-remove":
            sides = [sides[0] + sides[1]]
        return _larger([privacy_loss(side, self.study.delta) for side in sides])

    def _all_runs_epsilon(self) -> float:
        """Return the total for an observer of all runs: each run releases the same records once more."""
        sums: dict[tuple[str, bool], Counter[Event]] = defaultdict(Counter)
        for held_out, found in ((False, self.events), (True, self.held_out_events)):
            side = held_out and self.study.adjacency == "add-remove"
            for agents in found.values():
                for agent, events in agents.items():
                    sums[agent, side].update(events)
        distinct = {frozenset(events.items()) for events in sums.values()}
        return max((tightest(dict(events), self.study.delta).epsilon for events in distinct), default=0.0)


def _events_by_run(entries: Iterable[ReleaseEntry]) -> EventsByRun:
    found: EventsByRun = {}
    for entry in entries:
        found.setdefault(entry.run, {}).setdefault(entry.agent, Counter())[entry.event] += entry.count
    return found


def _largest_cost(events: EventsByRun) -> StudyCost:
    """Return the sum over runs of the cost at the agent that spent most."""
    return total_cost(max_cost(map(cost_of, agents.values())) for agents in events.values())


def _larger(losses: Sequence[PrivacyLoss]) -> PrivacyLoss:
    """Return the privacy loss of a record that may have any of these losses."""
    pure_losses = [loss.pure for loss in losses]
    return PrivacyLoss(
        max((loss.bound for loss in losses), key=lambda bound: bound.epsilon),
        {delta: max(loss.by_delta[delta] for loss in losses) for delta in losses[0].by_delta},
        None if None in pure_losses else max(pure for pure in pure_losses if pure is not None),
    )


def _agent_totals(agent: str, loss: PrivacyLoss, planned: float) -> AgentTotals:
    spent = loss.bound.epsilon
    return AgentTotals(
        agent=agent,
        epsilon=spent,
        left=max(0.0, planned - spent) if math.isfinite(spent) else 0.0,
        pure_epsilon=loss.pure,
        by_delta={f"{delta:g}": epsilon for delta, epsilon in loss.by_delta.items()},
    )


def _worst_runs(runs: Iterable[RunTotals]) -> tuple[AgentTotals, ...]:
    """Return the totals of every agent in the run that cost it most."""
    worst: dict[str, AgentTotals] = {}
    for run in runs:
        for one in run.agents:
            if one.agent not in worst or one.epsilon > worst[one.agent].epsilon:
                worst[one.agent] = one
    return tuple(worst.values())
