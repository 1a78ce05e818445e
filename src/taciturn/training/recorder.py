"""The books of one batch: what was released, and where everything stood at the last checkpoint."""

from __future__ import annotations

import json
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
from taciturn.runs.records import LedgerEntry, MetricsRow, ReleaseEntry, ViolationEntry
from taciturn.training.checkpoint import divided, from_arrays, joined, to_arrays
from taciturn.training.process_group import ProcessGroup
from taciturn.training.simulate import Round, SimulationState
from taciturn.types import Array

ENTRIES = 20  # of each run, agent and event in the ledger of a run with seeded noise
NOTHING_SHOWN = "the run stops, and nothing of it may be shown"


def refuse_uncovered(
    batch: Batch, plans: Sequence[RunPlan], t: int, events: Mapping[tuple[int, BatchEvent], int], senders: int
) -> None:
    """Stop a run that means to keep a budget where it released something without noise, or more often than planned.

    Neither is ever to happen; an algorithm whose steps and whose charge do not agree would do it. `events` are those of
    round t, by agent, and `senders` is how many agents sent something. A run without plans, of mode paper, promises
    nothing.
    """
    if not plans:
        return
    by_agent: Counter[int] = Counter()
    for (p, _), count in events.items():
        by_agent[p] += count
    if len(by_agent) < senders:
        raise PrivacyViolation(f"{batch.algorithm} sent something in round {t} without an event: {NOTHING_SHOWN}")
    planned = max(math.ceil(sum(plan.events.values()) / plan.rounds) for plan in plans)
    draws = max(by_agent.values(), default=0)
    if draws > planned:
        raise PrivacyViolation(
            f"{batch.algorithm} released {draws} times in round {t}, and its plan has {planned}: {NOTHING_SHOWN}"
        )
    for event in {event for _, event in events}:
        for plan, one in zip(plans, event.runs, strict=True):
            if not math.isfinite(plan.total_epsilon):
                continue
            if one == NON_PRIVATE:
                raise PrivacyViolation(
                    f"{batch.algorithm} released something without noise in round {t}, and its total-epsilon is "
                    f"{plan.total_epsilon:g}: {NOTHING_SHOWN}"
                )
            if not plan.covers(one):
                raise PrivacyViolation(
                    f"{batch.algorithm} released something in round {t} with less noise than any release of its plan, "
                    f"or of another kind ({one}): {NOTHING_SHOWN}"
                )


def refuse_stopped(folder: RunFolder) -> None:
    """Refuse to go on with a run that a violation of its privacy stopped."""
    violation = folder.read_ledger().violation
    if violation:
        raise PrivacyViolation(f"{folder.path} cannot go on: {violation}")


class Span(NamedTuple):
    """Rounds that make one entry of the ledger for each run, agent and event."""

    first: int
    last: int
    events: Counter[tuple[int, BatchEvent]]


@dataclass
class Recorder:
    """Ledger and checkpoints of one batch.

    The ledger only grows, and its lines do not tell when they were written: of noise that is drawn again they have one
    round each, of noise from seeds as many as the number of rounds says. Noise from seeds is the same when a round is
    made again after a crash, so a round that was charged is not charged twice; fresh noise is another release, and is.
    So nothing of a fresh round may be seen before `write_ledger`; a crash before it loses rounds that nobody saw.

    In a group, the first process alone reads and writes; the others keep their agents' events until they are collected.
    """

    folder: RunFolder
    batch: Batch
    agents: tuple[str, ...]
    every: float  # seconds between two checkpoints
    fresh: bool  # whether a round that is made again has other noise
    group: ProcessGroup
    plans: Sequence[RunPlan] = ()  # what every run means to spend; none in mode paper
    seconds: float = 0.0
    pending: list[Span] = field(default_factory=list)  # what the ledger does not have yet
    unwritten: list[MetricsRow] = field(default_factory=list)  # rows of metrics that the checkpoint has
    charged: int = 0  # the last round the ledger has
    span: int = 1  # rounds of an entry; the last rounds, and those before a stop, may be fewer
    session: int = 1  # counts the processes that worked on the batch
    due: float = 0.0  # when the next checkpoint is to be written
    saved: int = 0  # the session of the checkpoint that the batch goes on from

    @cached_property
    def chain(self) -> HashChain:
        """The ledger."""
        return self.folder.chain

    @property
    def file(self) -> Path:
        """The batch's checkpoint."""
        return self.folder.checkpoints / f"{self.batch.algorithm}.npz"

    def resumed(self, before: SimulationState) -> SimulationState:
        """Where the last checkpoint left off; where there is none, `before`, the state of the agents here."""
        arrays = self.group.scatter(self._saved)
        if not arrays:
            return before
        self.seconds, self.saved = float(arrays["seconds"]), int(arrays["session"])
        kept = [_from_json(one) for one in json.loads(str(arrays["pending"]))]
        self.pending = kept if self.group.is_main else [span._replace(events=Counter()) for span in kept]
        if self.group.is_main and self.folder.metrics.stat().st_size == int(
            arrays["place"][0]
        ):  # the newest checkpoint
            self.unwritten = [MetricsRow.from_json(row, self.file) for row in json.loads(str(arrays["rows"]))]
        return self.group.run_on_all(lambda: from_arrays(arrays, before))

    def _saved(self) -> list[dict[str, Array]]:
        """What the checkpoint has for every process, which is nothing where there is no checkpoint."""
        blocks = self.group.partition(len(self.agents))
        return divided(read_arrays(self.file), blocks) if self.file.exists() else [{} for _ in blocks]

    def begin(self, done: int, rounds: int, limited: bool) -> int:
        """Take the ledger up where it stands, and say how many rounds the budget allows from there."""
        spans = self.group.broadcast(self._spans)
        self.charged = max((last for _, last, _ in spans), default=0)
        self.session = 1 + max((session for _, _, session in spans), default=self.saved)
        self.span = 1 if self.fresh else max(1, math.ceil(rounds / ENTRIES))
        if self.fresh:
            self.pending = [span for span in self.pending if (span.first, span.last, self.saved) not in spans]
        else:
            self.pending = [span for span in self.pending if span.last > self.charged]
        if self.fresh and self.pending:  # a crash came between the checkpoint and the ledger
            now, self.session = max(self.session, self.saved + 1), self.saved
            self.write_ledger()
            self.session, spans = now, self.group.broadcast(self._spans)
        self.schedule()
        if not (self.fresh and limited):
            return rounds
        charged = sum(int(last) - int(first) + 1 for first, last, _ in spans)
        return rounds - (charged - done)  # what was charged beyond the checkpoint has been lost

    def _spans(self) -> set[tuple[int, int, int]]:
        """First and last round of the batch's lines in the ledger, and the session they are of."""
        ledger = RunLedger.from_rows(self.chain.read(), self.chain.path)
        mine = [entry for entry in ledger.releases if entry.run == self.batch.first]
        return {(entry.first or 0, entry.last or 0, entry.session or 0) for entry in mine}

    def alarming(self, steps: Mapping[int, Step]) -> bool:
        """Whether these steps released something that no plan covers."""
        try:
            drawn = Counter((p, event) for p, step in steps.items() for event in step.events)
            refuse_uncovered(self.batch, self.plans, 0, drawn, len(steps))
        except PrivacyViolation:
            return True
        return False

    def charge(self, done: Round, alarm: bool = True) -> None:
        """Take note of a round; the ledger has it after `write_ledger`, one with seeds when its entry is full.

        `alarm`: whether some process may have released what no plan covers; all of them look then, and stop.
        """
        new = self.fresh or done.t > self.charged
        if new:
            self._note(done)
        if alarm:
            self._refuse_uncovered(done)
        if new and not self.fresh and done.t % self.span == 0:
            self.write_ledger()

    def _note(self, done: Round) -> None:
        before = self.pending[-1] if self.pending else None
        if before is None or before.last % self.span == 0:
            self.pending.append(Span(done.t, done.t, Counter(done.events)))
        else:
            before.events.update(done.events)
            self.pending[-1] = before._replace(last=done.t)

    def write_ledger(self, *more: LedgerEntry) -> None:
        """Everything charged so far is in the ledger, on the disk, when this returns; `more` is put behind it."""
        parts = self.group.gather(self.pending)
        self.group.broadcast(lambda: self._append(parts, more))
        if self.pending:
            self.charged = max(self.charged, self.pending[-1].last)
        self.pending = []

    def _append(self, parts: Sequence[Sequence[Span]], more: Sequence[LedgerEntry]) -> None:
        """An append for each span: how many of them were written together is not told."""
        self.chain.append_groups([*map(self._entries, _joined(parts)), more])

    def _entries(self, span: Span) -> Iterator[ReleaseEntry]:
        return release_entries(span.events, self.batch.labels(), self.agents, span.first, span.last, self.session)

    def _refuse_uncovered(self, done: Round) -> None:
        """Where the round is uncovered, the ledger keeps what was drawn and why the run stopped: it cannot go on."""
        try:
            sent = len(done.state.agents)
            self.group.run_on_all(lambda: refuse_uncovered(self.batch, self.plans, done.t, done.events, sent))
        except PrivacyViolation as violation:
            self.write_ledger(ViolationEntry(algorithm=self.batch.algorithm, round=done.t, reason=str(violation)))
            raise

    def checkpoint(self, done: Round, rows: Sequence[MetricsRow] = ()) -> None:
        """The state that knows how long the files were, what the ledger does not have yet, and `rows` for the metrics.

        It is private, and comes before ledger and metrics: whenever a crash comes, the rest is written from it.
        """
        began = time.monotonic()
        parts, pending = self.group.gather(to_arrays(done.state)), self.group.gather(self.pending)
        self.group.broadcast(
            lambda: self._save(done, joined(parts), _joined(pending), rows)
        )  # who stops now stops after it
        self.schedule(time.monotonic() - began)

    def _save(self, done: Round, state: dict[str, Array], pending: Sequence[Span], rows: Sequence[MetricsRow]) -> None:
        files = [self.folder.metrics, self.folder.local_metrics]
        place = [flushed_size(path) if path.exists() else 0 for path in files]
        books = {"seconds": np.array(self.seconds), "place": np.array(place), "w": to_numpy(done.w)}
        books["session"] = np.array(self.session)
        kept = {"pending": to_json([_to_json(span) for span in pending]), "rows": to_json(rows)}
        write_arrays(self.file, state | books | {name: np.array(text) for name, text in kept.items()})

    def schedule(self, cost: float = 0.0) -> None:
        """The next checkpoint, so that writing large states takes at most a tenth of the time."""
        self.due = time.monotonic() + max(self.every, 10.0 * cost)


def _joined(parts: Sequence[Sequence[Span]]) -> list[Span]:
    """The spans of all processes, which have the same rounds."""
    return [
        Span(spans[0].first, spans[0].last, sum((span.events for span in spans), start=Counter()))
        for spans in zip(*parts, strict=True)
    ]


def _to_json(span: Span) -> list[Any]:
    events = [[p, count, [asdict(one) for one in event.runs]] for (p, event), count in span.events.items()]
    return [span.first, span.last, events]


def _from_json(kept: Sequence[Any]) -> Span:
    first, last, events = kept
    return Span(first, last, Counter({(p, BatchEvent(tuple(map(event_of, runs)))): count for p, count, runs in events}))
