"""The ledger entries and checkpoints of one batch, and the check that its releases are covered by its plan."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn.algorithms.base import Step
from taciturn.core.arrays import to_numpy
from taciturn.core.storage import flushed_size, read_arrays, to_json, write_arrays
from taciturn.errors import PrivacyViolation
from taciturn.planning.noise_plan import RunPlan
from taciturn.planning.study import Batch
from taciturn.privacy.events import NON_PRIVATE, BatchEvent, event_of
from taciturn.privacy.hash_chain import HashChain
from taciturn.runs.folder import RunFolder
from taciturn.runs.ledger import RunLedger, release_entries
from taciturn.runs.records import EvaluationRow, LedgerEntry, MetricsRow, ReleaseEntry, ViolationEntry
from taciturn.training.checkpoint import from_arrays, join_states, split_state, to_arrays
from taciturn.training.process_group import ProcessGroup
from taciturn.training.simulate import Round, SimulationState
from taciturn.types import Array

ENTRIES = 20  # lines for each run, agent and event in the ledger of a seeded run
STOPPED = "the run stops, and nothing of it may be shown"
logger = logging.getLogger(__name__)


def check_covered(
    batch: Batch, plans: Sequence[RunPlan], t: int, events: Mapping[tuple[int, BatchEvent], int], senders: int
) -> None:
    """Raise PrivacyViolation if a round released something that the plans do not cover.

    That happens only if an algorithm's steps and its declared privacy cost disagree.

    Parameters
    ----------
    batch
        The batch, for messages.
    plans
        The plan of each run; empty in mode paper, which guarantees nothing.
    t
        The round.
    events
        How often each batch event happened in the round, by agent.
    senders
        How many agents sent something.
    """
    if not plans:
        return
    events = {key: count for key, count in events.items() if not key[1].held_out}  # `check_measured` has those
    by_agent: Counter[int] = Counter()
    for (p, _), count in events.items():
        by_agent[p] += count
    if len(by_agent) < senders:
        raise PrivacyViolation(f"{batch.algorithm} sent something in round {t} without an event: {STOPPED}")
    planned = max(math.ceil(sum(plan.events.values()) / plan.charges) for plan in plans)
    draws = max(by_agent.values(), default=0)
    if draws > planned:
        raise PrivacyViolation(
            f"{batch.algorithm} released {draws} times in round {t}, and its plan has {planned}: {STOPPED}"
        )
    for event in {event for _, event in events}:
        for plan, one in zip(plans, event.runs, strict=True):
            if not math.isfinite(plan.total_epsilon):
                continue
            if one == NON_PRIVATE:
                raise PrivacyViolation(
                    f"{batch.algorithm} released something without noise in round {t}, and its total-epsilon is "
                    f"{plan.total_epsilon:g}: {STOPPED}"
                )
            if not plan.covers(one):
                raise PrivacyViolation(
                    f"{batch.algorithm} released something in round {t} with less noise than any release of its plan, "
                    f"or of another kind ({one}): {STOPPED}"
                )


def check_not_violated(folder: RunFolder, ledger: RunLedger) -> None:
    """Raise PrivacyViolation if the ledger says that a violation stopped the run."""
    if ledger.violation:
        raise PrivacyViolation(f"{folder.path} cannot continue: {ledger.violation}")


class Span(NamedTuple):
    """Rounds that make one ledger entry for each run, agent and event."""

    first: int
    last: int
    events: Counter[tuple[int, BatchEvent]]

    def to_json(self) -> list[Any]:
        """Return the span as JSON values, for a checkpoint."""
        events = [
            [p, count, event.held_out, [asdict(one) for one in event.runs]] for (p, event), count in self.events.items()
        ]
        return [self.first, self.last, events]

    @classmethod
    def from_json(cls, kept: Sequence[Any]) -> Span:
        """Return the span that `to_json` stored."""
        first, last, events = kept
        found = {(p, BatchEvent(tuple(map(event_of, runs)), held_out)): count for p, count, held_out, runs in events}
        return cls(first, last, Counter(found))


def join_spans(parts: Sequence[Sequence[Span]]) -> list[Span]:
    """Return the spans of all agents from those of each process, which have the same rounds."""
    return [
        Span(spans[0].first, spans[0].last, sum((span.events for span in spans), start=Counter()))
        for spans in zip(*parts, strict=True)
    ]


@dataclass
class Recorder:
    """Ledger entries and checkpoints of one batch.

    The ledger only grows, and its lines do not reveal when they were written: with fresh noise each has one round, with
    seeded noise a number of rounds that follows from the total. Seeded noise is the same when a round is computed again
    after a crash, so a round that was charged is not charged twice. Fresh noise is another release, and is charged
    again. Therefore nothing of a fresh round may be seen before `write_ledger`; a crash before it loses rounds that no
    one saw.

    With several processes, only process 0 reads and writes; the others keep their agents' events until they are
    gathered.
    """

    folder: RunFolder
    batch: Batch
    agents: tuple[str, ...]
    checkpoint_seconds: float  # between two checkpoints
    fresh: bool  # whether a round that is computed again has other noise
    group: ProcessGroup
    plans: Sequence[RunPlan] = ()  # of every run; empty in mode paper
    seconds: float = 0.0  # of training
    pending: list[Span] = field(default_factory=list)  # not yet in the ledger
    unwritten: list[MetricsRow] = field(default_factory=list)  # in the checkpoint, but not in the metrics
    unwritten_evaluations: list[EvaluationRow] = field(default_factory=list)
    evaluations: int = 0  # private evaluations that are charged, in a run with fresh noise
    charged: int = 0  # the last round in the ledger
    rounds_per_entry: int = 1  # rounds of an entry; the last rounds, and those before a stop, may be fewer
    session: int = 1  # counts the processes that worked on the batch
    next_checkpoint: float = 0.0  # when the next checkpoint is due
    restored_session: int = 0  # the session of the checkpoint from which the batch continues

    @cached_property
    def chain(self) -> HashChain:
        """The hash chain of the ledger."""
        return self.folder.chain

    @property
    def file(self) -> Path:
        """The batch's checkpoint."""
        return self.folder.checkpoints / self.batch.checkpoint

    def restore(self, initial: SimulationState) -> SimulationState:
        """Return the state of the last checkpoint for this process's agents, or `initial` if there is none."""
        arrays = self.group.scatter(self._read_checkpoint)
        if not arrays:
            return initial
        self.seconds, self.restored_session = float(arrays["seconds"]), int(arrays["session"])
        kept = [Span.from_json(one) for one in json.loads(str(arrays["pending"]))]
        self.pending = kept if self.group.is_main else [span._replace(events=Counter()) for span in kept]
        newest = self.group.is_main and self.folder.metrics.stat().st_size == int(arrays["place"][0])
        if newest:
            self.unwritten = [MetricsRow.from_json(row, self.file) for row in json.loads(str(arrays["rows"]))]
            rows = json.loads(str(arrays["evaluations"]))
            self.unwritten_evaluations = [EvaluationRow.from_json(row, self.file) for row in rows]
        return self.group.run_on_all(lambda: from_arrays(arrays, initial))

    def _read_checkpoint(self) -> list[dict[str, Array]]:
        """Return the checkpoint's arrays for every process; empty dicts where there is no checkpoint."""
        blocks = self.group.partition(len(self.agents))
        return split_state(read_arrays(self.file), blocks) if self.file.exists() else [{} for _ in blocks]

    def begin(self, done: int, rounds: int, limited: bool) -> int:
        """Continue the ledger where it ends, and return the last round that the budget allows.

        Parameters
        ----------
        done
            The round of the checkpoint.
        rounds
            The last planned round.
        limited
            Whether a run of the batch has a finite budget.
        """
        spans, evaluations = self.group.broadcast(self._charged)
        self.charged = max((last for _, last, _ in spans), default=0)
        self.session = 1 + max((session for _, _, session in spans), default=self.restored_session)
        self.rounds_per_entry = 1 if self.fresh else max(1, math.ceil(rounds / ENTRIES))
        if self.fresh:
            self.pending = [
                span for span in self.pending if (span.first, span.last, self.restored_session) not in spans
            ]
        else:
            self.pending = [span for span in self.pending if span.last > self.charged]
        if self.fresh and self.pending:  # a crash came between the checkpoint and the ledger
            now, self.session = max(self.session, self.restored_session + 1), self.restored_session
            self.write_ledger()
            self.session = now
            spans, evaluations = self.group.broadcast(self._charged)
        self.schedule()
        self.evaluations = evaluations if self.fresh else 0
        if not (self.fresh and limited):
            return rounds
        lost = sum(last - first + 1 for first, last, _ in spans) - done  # charged after the checkpoint
        return rounds - max(0, lost - min((plan.reserve for plan in self.plans), default=0))

    def _charged(self) -> tuple[set[tuple[int, int, int]], int]:
        """Return what the ledger has charged the batch with.

        Returns
        -------
        spans : set of tuple
            First round, last round and session of the batch's lines.
        evaluations : int
            The number of private evaluations.
        """
        ledger = RunLedger.from_rows(self.chain.read(), self.chain.path)
        mine = [entry for entry in ledger.releases if entry.run == self.batch.first]
        agents = ledger.held_out_events.get(self.batch.first, {})
        evaluations = max((events.total() for events in agents.values()), default=0)
        return {(entry.first, entry.last, entry.session) for entry in mine}, evaluations

    def is_uncovered(self, steps: Mapping[int, Step]) -> bool:
        """Return whether these steps released something that no plan covers."""
        try:
            drawn = Counter((p, event) for p, step in steps.items() for event in step.events)
            check_covered(self.batch, self.plans, 0, drawn, len(steps))
        except PrivacyViolation:
            return True
        return False

    def charge(self, done: Round, alarm: bool = True) -> None:
        """Charge a round. `write_ledger` writes it; with seeded noise also a full entry does.

        Parameters
        ----------
        done
            The round, with the events of this process's agents.
        alarm
            Whether some process may have released what no plan covers; then all of them check, and stop.
        """
        new = self.fresh or done.t > self.charged
        if new:
            self._add(done)
        if alarm:
            self._check_covered(done)
        if new and not self.fresh and done.t % self.rounds_per_entry == 0:
            self.write_ledger()

    def _add(self, done: Round) -> None:
        before = self.pending[-1] if self.pending else None
        if before is None or before.last % self.rounds_per_entry == 0:
            self.pending.append(Span(done.t, done.t, Counter(done.events)))
        else:
            before.events.update(done.events)
            self.pending[-1] = before._replace(last=done.t)

    def write_ledger(self, *more: LedgerEntry) -> None:
        """Write everything charged so far, then `more`, to the ledger; it is on the disk when this returns."""
        parts = self.group.gather(self.pending)
        self.group.broadcast(lambda: self._append(parts, more))
        if self.pending:
            self.charged = max(self.charged, self.pending[-1].last)
            logger.debug("%s: ledger has rounds up to %d", self.batch.algorithm, self.charged)
        self.pending = []

    def _append(self, parts: Sequence[Sequence[Span]], more: Sequence[LedgerEntry]) -> None:
        """Append each span separately: the ledger does not reveal how many were written together."""
        self.chain.append_groups([*map(self._entries, join_spans(parts)), more])

    def _entries(self, span: Span) -> Iterator[ReleaseEntry]:
        return release_entries(span.events, self.batch.labels(), self.agents, span.first, span.last, self.session)

    def _check_covered(self, done: Round) -> None:
        """Raise if the round is not covered, after writing what was drawn and why the run stopped."""
        try:
            self.group.run_on_all(lambda: check_covered(self.batch, self.plans, done.t, done.events, done.senders))
        except PrivacyViolation as violation:
            self.write_ledger(ViolationEntry(algorithm=self.batch.algorithm, round=done.t, reason=str(violation)))
            raise

    def checkpoint(
        self, done: Round, rows: Sequence[MetricsRow] = (), evaluations: Sequence[EvaluationRow] = ()
    ) -> None:
        """Write a checkpoint: the state, the sizes of the files, and what is not yet in ledger and metrics.

        It is private, and written before ledger and metrics: after a crash at any time they are completed from it.

        Parameters
        ----------
        done
            The round.
        rows, evaluations
            Rows that the metrics, and the evaluations, do not have yet.
        """
        began = time.monotonic()
        parts, pending = self.group.gather(to_arrays(done.state)), self.group.gather(self.pending)
        waiting = to_json(rows), to_json(evaluations)
        self.group.broadcast(lambda: self._save(done, join_states(parts), join_spans(pending), *waiting))
        logger.debug("%s: checkpoint of round %d", self.batch.algorithm, done.t)
        self.schedule(time.monotonic() - began)

    def _save(self, done: Round, state: dict[str, Array], pending: Sequence[Span], rows: str, evaluations: str) -> None:
        extra = {
            "seconds": self.seconds,
            "place": [flushed_size(path) if path.exists() else 0 for path in self.folder.line_files],
            "w": to_numpy(done.w),
            "session": self.session,
            "pending": to_json([span.to_json() for span in pending]),
            "rows": rows,
            "evaluations": evaluations,
        }
        write_arrays(self.file, state | {name: np.array(value) for name, value in extra.items()})

    def schedule(self, cost: float = 0.0) -> None:
        """Schedule the next checkpoint, such that writing takes at most a tenth of the time."""
        self.next_checkpoint = time.monotonic() + max(self.checkpoint_seconds, 10.0 * cost)
