"""The books of one batch: what was released, and where everything stood at the last checkpoint."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tacit.arrays import to_numpy
from tacit.engine.checkpoint import to_arrays
from tacit.engine.simulate import Round
from tacit.privacy.events import BatchEvent
from tacit.privacy.ledger import entries
from tacit.results.chain import Chain
from tacit.results.files import write_arrays
from tacit.results.folder import RunFolder, flushed_size
from tacit.study.batches import Batch


@dataclass
class Recorder:
    """Ledger and checkpoints of one batch.

    The ledger only grows. Noise from seeds is the same when a round is made again after a crash, so a round that was
    charged is not charged twice; fresh noise is another release, and is.
    """

    folder: RunFolder
    batch: Batch
    agents: tuple[str, ...]
    every: float  # seconds between two checkpoints
    fresh: bool  # whether noise is drawn anew when a round is made again
    seconds: float = 0.0
    events: Counter[tuple[int, BatchEvent]] = field(default_factory=Counter)  # since the ledger's last lines
    charged: int = 0  # the last round the ledger has
    first: int = 1  # the first round the events are of
    session: int = 1  # counts the processes that worked on the batch
    due: float = 0.0  # when the next checkpoint is to be written
    chain: Chain = field(init=False)

    def __post_init__(self) -> None:
        self.chain = self.folder.chain

    @property
    def file(self) -> Path:
        """The batch's checkpoint."""
        return self.folder.checkpoints / f"{self.batch.algorithm}.npz"

    def begin(self, done: int, rounds: int, limited: bool) -> int:
        """Take the ledger up where it stands, and say how many rounds the budget allows from there."""
        mine = [e for e in self.chain.read() if e["kind"] == "release" and e["run"] == self.batch.first]
        spans = {(entry["first"], entry["last"], entry["session"]) for entry in mine}
        self.charged = max((last for _, last, _ in spans), default=0)
        self.session = 1 + max((session for _, _, session in spans), default=0)
        self.first = done + 1
        self.schedule()
        if not (self.fresh and limited):
            return rounds
        charged = sum(int(last) - int(first) + 1 for first, last, _ in spans)
        return rounds - (charged - done)  # what was charged beyond the checkpoint has been lost

    def charge(self, done: Round) -> None:
        """Take note of a round; fresh noise goes into the ledger before anybody sees what it was added to."""
        if self.fresh or done.t > self.charged:
            self.events += done.events
        if self.fresh:
            self._write(done.t)

    def checkpoint(self, done: Round) -> None:
        """The ledger first, then the state that knows how long the files were: a crash in between loses nothing."""
        began = time.monotonic()
        self._write(done.t)
        files = [self.folder.metrics, self.folder.local_metrics]
        place = [flushed_size(path) if path.exists() else 0 for path in files]
        books = {"seconds": np.array(self.seconds), "place": np.array(place), "w": to_numpy(done.w)}
        write_arrays(self.file, to_arrays(done.state) | books)
        self.schedule(time.monotonic() - began)

    def schedule(self, cost: float = 0.0) -> None:
        """The next checkpoint, so that writing large states takes at most a tenth of the time."""
        self.due = time.monotonic() + (0.0 if self.fresh else max(self.every, 10.0 * cost))

    def _write(self, last: int) -> None:
        first = self.first if self.fresh else max(self.first, self.charged + 1)
        span = {"first": first, "last": last, "session": self.session}
        self.chain.append(entry | span for entry in entries(self.events, self.batch.labels(), self.agents))
        self.events.clear()
        self.first, self.charged = last + 1, max(self.charged, last)
