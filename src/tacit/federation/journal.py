"""A site's journal: what it answered, and the state it goes on from. It holds what noise hides, and never leaves.

It is SQLite with every commit on the disk: event, upload and new state of a round are one transaction, found again by
experiment and round, and old states are struck out in the same stroke. Append-only files would need their own index,
their own repair of torn writes, and a second file for the striking out.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.algorithms.base import Agent
from tacit.errors import InputError
from tacit.federation.wire import array_digest, digest
from tacit.results.files import make_folder
from tacit.types import Array

TABLES = """
create table if not exists experiments (
    id text primary key, study text not null, terms text not null, reservation text not null,
    non_private text not null, begun text not null, closed text);
create table if not exists rounds (
    experiment text not null references experiments(id), round integer not null, base integer not null,
    w text not null, events text not null, dual text not null, upload blob, z blob, lam blob,
    primary key (experiment, round));
create table if not exists departures (
    number integer primary key autoincrement, time text not null, experiment text not null, kind text not null,
    round integer, sha256 text not null, bytes integer not null);
"""


class Experiment(NamedTuple):
    """One study at this site."""

    id: str
    study: str
    terms: str
    reservation: str
    non_private: str
    begun: str
    closed: str | None


class Answered(NamedTuple):
    """A round this site has answered."""

    round: int
    base: int
    w: str  # hash
    events: list[dict[str, Any]]
    upload: bytes | None  # None once the server has gone on from it


class Departure(NamedTuple):
    """A byte string that left, or was about to when the process died."""

    number: int
    time: str
    experiment: str
    kind: str
    round: int | None
    sha256: str
    bytes: int


@dataclass
class Journal:
    """The journal of one site; only one process works with it."""

    path: Path
    _connection: sqlite3.Connection

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
            connection = _connect(path)
            try:
                yield cls(path, connection)
            finally:
                connection.close()

    @classmethod
    @contextmanager
    def read(cls, folder: Path) -> Iterator[Journal]:
        """The journal for reading, while an agent may be at work."""
        path = folder / "journal.sqlite"
        if not path.is_file():
            raise InputError(f"there is no journal in {folder}: this site has not taken part in a study yet")
        connection = _connect(path)
        try:
            yield cls(path, connection)
        finally:
            connection.close()

    def experiment(self, name: str) -> Experiment | None:
        """A study that was begun here."""
        row = self._connection.execute("select * from experiments where id = ?", (name,)).fetchone()
        return Experiment(*row) if row else None

    def experiments(self) -> list[Experiment]:
        """All studies that were begun here, the oldest first."""
        return [Experiment(*row) for row in self._connection.execute("select * from experiments order by begun, rowid")]

    def begin(self, name: str, study: str, terms: str, reservation: str, non_private: str) -> Experiment:
        """A study begins; its whole plan is set aside already."""
        begun = Experiment(name, study, terms, reservation, non_private, now(), None)
        with self._connection:
            self._connection.execute("insert into experiments values (?, ?, ?, ?, ?, ?, ?)", begun)
        return begun

    def close(self, name: str) -> None:
        """A study has ended; its private state is struck out."""
        with self._connection:
            self._connection.execute("update experiments set closed = ? where id = ? and closed is null", (now(), name))
            self._strike(name, "round >= 0")
        self._fold()

    def last(self, name: str) -> Answered | None:
        """The last round this site has answered."""
        return next(self.answered(name, newest=True), None)

    def answered(self, name: str, newest: bool = False) -> Iterator[Answered]:
        """The rounds this site has answered, in order."""
        order = "desc" if newest else "asc"
        query = f"select round, base, w, events, upload from rounds where experiment = ? order by round {order}"
        for number, base, w, events, upload in self._connection.execute(query, (name,)):
            yield Answered(number, base, w, json.loads(events), upload)

    def state(self, name: str, base: int, zero: Array) -> Agent | None:
        """The state after round `base`, of the shape and precision of `zero`; before the first round it is zero."""
        if base == 0:
            return Agent(zero, zero)
        query = "select z, lam from rounds where experiment = ? and round = ?"
        row = self._connection.execute(query, (name, base)).fetchone()
        if row is None or row[0] is None:
            return None
        return Agent(*(np.frombuffer(blob, dtype=zero.dtype).reshape(zero.shape) for blob in row))

    def dual(self, name: str, number: int) -> str | None:
        """The hash of the dual after a round: it is kept, and anybody can compute it from what was sent."""
        query = "select dual from rounds where experiment = ? and round = ?"
        row = self._connection.execute(query, (name, number)).fetchone()
        return str(row[0]) if row else None

    def write(self, name: str, answer: Answered, agent: Agent) -> None:
        """A round's answer and the state behind it, before a byte of it leaves; what no round can start from goes.

        States before the base are behind the server, and those after it were never accepted by it.
        """
        with self._connection:
            self._strike(name, "round != ?", answer.base)
            row = (name, answer.round, answer.base, answer.w, json.dumps(answer.events), array_digest(agent.lam))
            state = (answer.upload, agent.z.tobytes(), agent.lam.tobytes())
            self._connection.execute("insert into rounds values (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, *state))
            self._depart(name, "answer", answer.round, answer.upload or b"")
        self._fold()

    def depart(self, name: str, kind: str, number: int | None, data: bytes) -> None:
        """Take note of bytes that are about to leave."""
        with self._connection:
            self._depart(name, kind, number, data)

    def departures(self, after: int = 0) -> list[Departure]:
        """Every byte string that left, in order, after some number."""
        query = "select * from departures where number > ? order by number"
        return [Departure(*row) for row in self._connection.execute(query, (after,))]

    def has_departed(self, sha256: str) -> bool:
        """Whether these bytes were noted before."""
        query = "select 1 from departures where sha256 = ? limit 1"
        return self._connection.execute(query, (sha256,)).fetchone() is not None

    def _fold(self) -> None:
        """Empty the log of changes, where what was struck out would still be read."""
        self._connection.execute("pragma wal_checkpoint(truncate)")

    def _depart(self, name: str, kind: str, number: int | None, data: bytes) -> None:
        self._connection.execute(
            "insert into departures (time, experiment, kind, round, sha256, bytes) values (?, ?, ?, ?, ?, ?)",
            (now(), name, kind, number, digest(data), len(data)),
        )

    def _strike(self, name: str, which: str, *values: int) -> None:
        query = (
            f"update rounds set upload = null, z = null, lam = null where experiment = ? and z is not null and {which}"
        )
        self._connection.execute(query, (name, *values))


def now() -> str:
    """The time, to be written down."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30.0, check_same_thread=False)
    connection.execute("pragma journal_mode = wal")  # so that a reader never makes the agent wait
    connection.execute("pragma synchronous = full")  # a commit is on the disk
    connection.execute("pragma secure_delete = on")  # what is struck out is overwritten
    connection.executescript(TABLES)
    return connection


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
