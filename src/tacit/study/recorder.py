"""The books of one batch: what was released, and where everything stood at the last checkpoint."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from tacit.arrays import to_numpy
from tacit.engine.checkpoint import divided, from_arrays, joined, to_arrays
from tacit.engine.simulate import Round, State
from tacit.engine.team import Team
from tacit.errors import Everywhere
from tacit.privacy.events import NON_PRIVATE, BatchEvent
from tacit.privacy.ledger import entries
from tacit.results.chain import Chain
from tacit.results.files import flushed_size, read_arrays, write_arrays
from tacit.results.folder import RunFolder
from tacit.study.batches import Batch
from tacit.study.protect import Plan
from tacit.types import Array


def refuse_uncovered(batch: Batch, plans: Sequence[Plan], done: Round) -> None:
    """Stop a run that means to keep a budget where it released something without noise, or more often than planned.

    Neither is ever to happen; an algorithm whose steps and whose charge do not agree would do it.
    """
    by_agent: Counter[int] = Counter()
    for (p, _), count in done.events.items():
        by_agent[p] += count
    draws = max(by_agent.values(), default=0)
    if plans and not draws:
        raise Everywhere(
            f"{batch.algorithm} sent something in round {done.t} without an event: nothing of it may be shown"
        )
    planned = max((math.ceil(sum(plan.events.values()) / plan.rounds) for plan in plans), default=draws)
    if draws > planned:
        raise Everywhere(
            f"{batch.algorithm} released {draws} times in round {done.t}, and its plan has {planned}: the run stops, "
            "and nothing of it may be shown"
        )
    for event in {event for _, event in done.events}:
        for budget, one in zip(batch.budgets, event.runs, strict=True):
            if math.isfinite(budget) and one == NON_PRIVATE:
                raise Everywhere(
                    f"{batch.algorithm} released something without noise in round {done.t}, and its total-epsilon is "
                    f"{budget:g}: the run stops, and nothing of it may be shown"
                )


@dataclass
class Recorder:
    """Ledger and checkpoints of one batch.

    The ledger only grows. Noise from seeds is the same when a round is made again after a crash, so a round that was
    charged is not charged twice; fresh noise is another release, and is. In a team, the first process alone reads and
    writes; the others keep their agents' events until they are collected.
    """

    folder: RunFolder
    batch: Batch
    agents: tuple[str, ...]
    every: float  # seconds between two checkpoints
    fresh: bool  # whether noise is drawn anew when a round is made again
    team: Team
    plans: Sequence[Plan] = ()  # what every run means to spend; none in mode paper
    seconds: float = 0.0
    events: Counter[tuple[int, BatchEvent]] = field(default_factory=Counter)  # since the ledger's last lines
    charged: int = 0  # the last round the ledger has
    first: int = 1  # the first round the events are of
    session: int = 1  # counts the processes that worked on the batch
    due: float = 0.0  # when the next checkpoint is to be written

    @cached_property
    def chain(self) -> Chain:
        """The ledger."""
        return self.folder.chain

    @property
    def file(self) -> Path:
        """The batch's checkpoint."""
        return self.folder.checkpoints / f"{self.batch.algorithm}.npz"

    def resumed(self, before: State) -> State:
        """Where the last checkpoint left off; where there is none, `before`, the state of the agents here."""
        arrays = self.team.dealt(self._saved)
        if not arrays:
            return before
        self.seconds = float(arrays["seconds"])
        return self.team.together(lambda: from_arrays(arrays, before))

    def _saved(self) -> list[dict[str, Array]]:
        """What the checkpoint has for every process, which is nothing where there is no checkpoint."""
        blocks = self.team.parts(len(self.agents))
        return divided(read_arrays(self.file), blocks) if self.file.exists() else [{} for _ in blocks]

    def begin(self, done: int, rounds: int, limited: bool) -> int:
        """Take the ledger up where it stands, and say how many rounds the budget allows from there."""
        spans = self.team.told(self._spans)
        self.charged = max((last for _, last, _ in spans), default=0)
        self.session = 1 + max((session for _, _, session in spans), default=0)
        self.first = done + 1
        self.schedule()
        if not (self.fresh and limited):
            return rounds
        charged = sum(int(last) - int(first) + 1 for first, last, _ in spans)
        return rounds - (charged - done)  # what was charged beyond the checkpoint has been lost

    def _spans(self) -> set[tuple[int, int, int]]:
        """First and last round of the batch's lines in the ledger, and the session they are of."""
        mine = [e for e in self.chain.read() if e["kind"] == "release" and e["run"] == self.batch.first]
        return {(entry["first"], entry["last"], entry["session"]) for entry in mine}

    def charge(self, done: Round) -> None:
        """Take note of a round; fresh noise goes into the ledger before anybody sees what it was added to."""
        refuse_uncovered(self.batch, self.plans, done)
        if self.fresh or done.t > self.charged:
            self.events += done.events
        if self.fresh:
            self._write(done.t)

    def checkpoint(self, done: Round) -> None:
        """The ledger first, then the state that knows how long the files were: a crash in between loses nothing."""
        began = time.monotonic()
        self._write(done.t)
        parts = self.team.collected(to_arrays(done.state))
        self.team.told(lambda: self._save(done, joined(parts)))  # who stops now stops after it is written
        self.schedule(time.monotonic() - began)

    def _save(self, done: Round, state: dict[str, Array]) -> None:
        files = [self.folder.metrics, self.folder.local_metrics]
        place = [flushed_size(path) if path.exists() else 0 for path in files]
        books = {"seconds": np.array(self.seconds), "place": np.array(place), "w": to_numpy(done.w)}
        write_arrays(self.file, state | books)

    def schedule(self, cost: float = 0.0) -> None:
        """The next checkpoint, so that writing large states takes at most a tenth of the time."""
        self.due = time.monotonic() + (0.0 if self.fresh else max(self.every, 10.0 * cost))

    def _write(self, last: int) -> None:
        first = self.first if self.fresh else max(self.first, self.charged + 1)
        span = {"first": first, "last": last, "session": self.session}
        parts = self.team.collected(self.events)
        if self.team.leads:
            events = sum(parts, start=Counter())
            self.chain.append(entry | span for entry in entries(events, self.batch.labels(), self.agents))
        self.events.clear()
        self.first, self.charged = last + 1, max(self.charged, last)
