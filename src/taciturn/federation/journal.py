"""A site's journal: what it answered, and the state it goes on from. It holds what noise hides, and never leaves.

It is SQLite with every commit on the disk: event, upload and new state of a round are one transaction, found again by
experiment and round, and old states are struck out in the same stroke. Append-only files would need their own index,
their own repair of torn writes, and a second file for the striking out.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn.algorithms.base import Agent
from taciturn.core.storage import make_folder
from taciturn.errors import InputError
from taciturn.federation import departures
from taciturn.federation.departures import DepartedBytes, Departure, Departures, now
from taciturn.federation.messages import array_digest
from taciturn.federation.site_database import Store
from taciturn.types import Array

TABLES = (
    """
create table if not exists experiments (
    id text primary key, study text not null, terms text not null, reservation text not null,
    non_private text not null, begun text not null, closed text, broken text);
create table if not exists rounds (
    experiment text not null references experiments(id), round integer not null, base integer not null,
    w text not null, events text, dual text, upload blob, z blob, lam blob,
    primary key (experiment, round));
create index if not exists kept on rounds (experiment, round) where z is not null;
"""
    + departures.TABLES
)


class Experiment(NamedTuple):
    """One study at this site."""

    id: str
    study: str
    terms: str
    reservation: str
    non_private: str
    begun: str
    closed: str | None
    broken: str | None = None  # when it broke its promise here: nothing more is answered in it


class Answered(NamedTuple):
    """A round this site has answered."""

    round: int
    base: int
    w: str  # hash
    events: list[dict[str, Any]]
    upload: bytes | None  # None once the server has gone on from it


@dataclass
class Journal:
    """The journal of one site; only one process works with it."""

    path: Path
    _store: Store
    _left: Departures

    @classmethod
    def at(cls, path: Path, durable: bool = True) -> Journal:
        """The journal in a file that others may work with at the same time."""
        store = Store.open(path, TABLES, durable)
        return cls(path, store, Departures(store))

    @classmethod
    @contextmanager
    def open(cls, folder: Path, patience: float = 20.0) -> Iterator[Journal]:
        """The journal in a site's state folder; an agent that is going down is waited for."""
        make_folder(folder, exist_ok=True, private=True)
        with (folder / "lock").open("w") as lock:
            _lock(lock.fileno(), folder, patience)
            path = folder / "journal.sqlite"
            path.touch(mode=0o600)
            path.chmod(0o600)
            journal = cls.at(path)
            try:
                journal._left.settle_all()
                yield journal
                journal._left.flush()
            finally:
                journal._store.close()

    @classmethod
    @contextmanager
    def read(cls, folder: Path) -> Iterator[Journal]:
        """The journal for reading, while an agent may be at work."""
        path = folder / "journal.sqlite"
        if not path.is_file():
            raise InputError(f"there is no journal in {folder}: this site has not taken part in a study yet")
        journal = cls.at(path, durable=False)
        try:
            yield journal
        finally:
            journal._store.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A block with no other writer, in which a round is looked up, claimed, answered and written."""
        with self._store.alone():
            yield

    def experiment(self, name: str) -> Experiment | None:
        """A study that was begun here."""
        row = self._execute("select * from experiments where id = ?", name).fetchone()
        return Experiment(*row) if row else None

    def experiments(self) -> list[Experiment]:
        """All studies that were begun here, the oldest first."""
        return [Experiment(*row) for row in self._execute("select * from experiments order by begun, rowid").fetchall()]

    def begin(self, name: str, study: str, terms: str, reservation: str, non_private: str) -> Experiment:
        """A study begins; its whole plan is set aside next."""
        begun = Experiment(name, study, terms, reservation, non_private, now(), None)
        with self._store.alone():
            self._execute("insert into experiments values (?, ?, ?, ?, ?, ?, ?, ?)", *begun)
        return begun

    def close(self, name: str) -> None:
        """A study has ended; its private state is struck out."""
        with self._store.alone():
            self._execute("update experiments set closed = ? where id = ? and closed is null", now(), name)
            self._strike(name, "round >= 0")
        self._store.fold()

    def break_off(self, name: str) -> None:
        """A study has broken its promise: nothing more is answered in it, by this process or a later one."""
        with self._store.alone():
            self._execute("update experiments set broken = ? where id = ? and broken is null", now(), name)

    def last(self, name: str) -> Answered | None:
        """The last round this site has answered."""
        return next(self.answered(name, newest=True), None)

    def answered(self, name: str, newest: bool = False) -> Iterator[Answered]:
        """The rounds this site has answered, in order."""
        order = "desc limit 1" if newest else "asc"
        query = f"select round, base, w, events, upload from rounds where experiment = ? order by round {order}"
        for number, base, w, events, upload in self._execute(query, name).fetchall():
            yield Answered(number, base, w, json.loads(events), upload)

    def state(self, name: str, base: int, zero: Array) -> Agent | None:
        """The state after round `base`, of the shape and precision of `zero`; before the first round it is zero."""
        if base == 0:
            return Agent(zero, zero)
        row = self._execute("select z, lam from rounds where experiment = ? and round = ?", name, base).fetchone()
        if row is None or row[0] is None:
            return None
        return Agent(*(np.frombuffer(blob, dtype=zero.dtype).reshape(zero.shape) for blob in row))

    def dual(self, name: str, number: int) -> str | None:
        """The hash of the dual after a round: it is kept, and anybody can compute it from what was sent."""
        row = self._execute("select dual from rounds where experiment = ? and round = ?", name, number).fetchone()
        return str(row[0]) if row else None

    def claim(self, name: str, number: int, base: int, w: str) -> None:
        """Take a round for its one answer, before noise is drawn: a second claim is an error of the database.

        It is part of the block (`alone`) in which `write` brings the answer; a block that fails has claimed nothing.
        """
        if not self._store.connection.in_transaction:
            raise RuntimeError("a round is claimed in the block that answers it")
        query = "insert into rounds (experiment, round, base, w) values (?, ?, ?, ?)"
        self._execute(query, name, number, base, w)

    def write(self, name: str, answer: Answered, agent: Agent) -> None:
        """A claimed round's answer and the state behind it, before a byte leaves; what no round can start from goes.

        States before the base are behind the server, and those after it were never accepted by it.
        """
        with self._store.alone():
            self._strike(name, "round != ?", answer.base)
            row = (json.dumps(answer.events), array_digest(agent.lam), answer.upload, agent.z.tobytes())
            query = "update rounds set events = ?, dual = ?, upload = ?, z = ?, lam = ? "
            claimed = "where experiment = ? and round = ? and base = ? and w = ? and events is null"
            key = (name, answer.round, answer.base, answer.w)
            if self._execute(query + claimed, *row, agent.lam.tobytes(), *key).rowcount != 1:
                raise RuntimeError(f"round {answer.round} is written without a claim")
            if answer.upload is not None:
                self._left.note(name, "answer", answer.round, answer.upload)
        self._store.fold()

    def depart(self, name: str, kind: str, number: int | None, data: bytes) -> None:
        """Take note of bytes that are about to leave."""
        self._left.note(name, kind, number, data)

    def depart_again(
        self, name: str, kind: str, number: int | None, data: bytes, spare: bytes | None = None
    ) -> DepartedBytes:
        """The same for what a coordinator can ask for without end: see `Departures.again`."""
        return self._left.again(name, kind, number, data, spare)

    def departed(self, sha256: str, fate: str) -> None:
        """What became of the bytes with this hash that were about to leave: LEFT or KEPT_BACK."""
        self._left.settle(sha256, fate)

    def departures(self, after: int = 0) -> list[Departure]:
        """Every byte string that left, in order, after some number."""
        return self._left.listed(after)

    def newest_departures(self, count: int) -> list[Departure]:
        """The last of them, the newest first."""
        return self._left.newest(count)

    def departure_totals(self) -> dict[str, tuple[int, int]]:
        """For every kind of them: how many, and how many bytes."""
        return self._left.totals()

    def repeats(self) -> int:
        """How often one of them left once more without a line of its own, at least."""
        return self._left.more()

    def has_departed(self, sha256: str) -> bool:
        """Whether these bytes were noted before."""
        return self._left.known(sha256)

    def _execute(self, query: str, *values: Any) -> Any:
        return self._store.connection.execute(query, values)

    def _strike(self, name: str, which: str, *values: int) -> None:
        query = (
            f"update rounds set upload = null, z = null, lam = null where experiment = ? and z is not null and {which}"
        )
        self._execute(query, name, *values)


def _lock(handle: int, folder: Path, patience: float) -> None:
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > end:
                raise InputError(f"{folder} is in use by another agent of this site") from None
            time.sleep(0.1)
        else:
            return
