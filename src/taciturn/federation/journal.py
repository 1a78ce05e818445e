"""A site's journal: the rounds it answered, the state it continues from, and every byte string that left the site.

It contains values without noise and never leaves the site. The journal is an SQLite file with every commit flushed to
disk: event, upload and new state of a round are one transaction, and outdated states are deleted in the same one.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from taciturn.algorithms.base import Agent
from taciturn.core.locks import locked
from taciturn.core.storage import make_folder, to_json
from taciturn.errors import InputError
from taciturn.federation.messages import array_digest, digest
from taciturn.federation.site_database import LogInUse, SiteDatabase
from taciturn.runs.records import ReleaseEntry
from taciturn.types import Array

TABLES = """
create table if not exists experiments (
    id text primary key, study text not null, terms text not null, reservation text not null,
    non_private text not null, begun text not null, closed text, broken text);
create table if not exists rounds (
    experiment text not null references experiments(id), round integer not null, base integer not null,
    w text not null, events text, dual text, upload blob, z blob, lam blob,
    primary key (experiment, round));
create index if not exists kept on rounds (experiment, round) where z is not null;
create table if not exists evaluations (
    experiment text not null references experiments(id), round integer not null, w text not null, events text not null,
    upload blob, primary key (experiment, round));
create table if not exists departures (
    number integer primary key autoincrement, time text not null, experiment text not null, kind text not null,
    round integer, sha256 text not null, bytes integer not null, fate text not null default 'pending');
create index if not exists departed on departures (sha256);
create table if not exists repeats (day text primary key, lines integer not null, more integer not null);
create table if not exists sum_announcements (
    experiment text not null references experiments(id), epoch integer not null, announcement blob, box_key blob,
    primary key (experiment, epoch));
create table if not exists sum_deals (
    experiment text not null, epoch integer not null, directory blob not null, kept blob, deal blob,
    primary key (experiment, epoch));
create table if not exists sum_begun (
    experiment text not null, epoch integer not null, primary key (experiment, epoch));
create table if not exists sum_steps (experiment text primary key, steps integer not null);
create table if not exists sum_secrets (
    experiment text not null, epoch integer not null, slot integer not null, secrets blob not null,
    primary key (experiment, epoch, slot));
create table if not exists sum_shares (
    experiment text not null, epoch integer not null, slot integer not null, shares blob not null,
    primary key (experiment, epoch, slot));
create table if not exists sum_uploads (
    experiment text not null, epoch integer not null, slot integer not null, round integer not null,
    context blob not null, events text not null, upload blob, subject integer not null,
    primary key (experiment, epoch, slot));
create table if not exists sum_opinions (
    experiment text not null, epoch integer not null, slot integer not null, context blob not null,
    alive text not null, primary key (experiment, epoch, slot));
"""
EPOCH_TABLES = ("sum_secrets", "sum_shares", "sum_deals", "sum_opinions")  # whose rows are deleted with their epoch
DAILY_LINES = 200  # departures a day that get their own line although the coordinator can cause any number of them
FLUSH_SECONDS = 60.0  # between two writes of the count of departures without a line
UPLOAD_KINDS = ("answer", "sum upload", "measures")  # departures that hold something computed from records
PENDING, LEFT, KEPT_BACK = "pending", "left", "kept back"


class Experiment(NamedTuple):
    """One study at this site."""

    id: str
    study: str
    terms: str  # SHA-256
    reservation: str
    non_private: str
    started_at: str
    closed_at: str | None
    violated_at: str | None = None  # when a privacy violation ended it here: no request in it is answered any more


Place: TypeAlias = int | str
"""Where an upload belongs: a round, "evaluation" and a round, or "epoch/slot" of a secure sum. Each has one upload."""


class Slot(NamedTuple):
    """A slot of a secure sum, as ledgers and messages for people name it.

    >>> str(Slot(2, 7)), Slot.parse("2/7").slot
    ('2/7', 7)
    """

    epoch: int
    slot: int

    def __str__(self) -> str:
        return f"{self.epoch}/{self.slot}"

    @classmethod
    def parse(cls, text: str) -> Slot:
        """Return the slot that a ledger names."""
        return cls(*map(int, text.split("/")))


def evaluation_place(t: int) -> Place:
    """Return the place of an evaluation upload outside a secure sum."""
    return f"evaluation {t}"


def place_of(entry: ReleaseEntry) -> Place:
    """Return where the upload of a release belongs, from its ledger entry."""
    return entry.slot or (evaluation_place(entry.first) if entry.held_out else entry.first)


class Charge(NamedTuple):
    """What an upload of the journal costs.

    Parameters
    ----------
    place : Place
        Its round or slot.
    entries : tuple of ReleaseEntry
        Its ledger entries; each names the upload's hash.
    """

    place: Place
    entries: tuple[ReleaseEntry, ...]

    @property
    def upload(self) -> str:
        """SHA-256 of the message that carries the upload."""
        return self.entries[0].upload or ""

    def __str__(self) -> str:
        if isinstance(self.place, int):
            return f"round {self.place}"
        return f"slot {self.place}" if "/" in self.place else self.place


class RoundRecord(NamedTuple):
    """A round that this site has answered."""

    round: int
    base: int
    w: str  # SHA-256
    events: tuple[ReleaseEntry, ...]
    upload: bytes | None  # None once the server has moved on from it

    @property
    def charge(self) -> Charge:
        """What the round costs."""
        return Charge(self.round, self.events)


class EvaluationRecord(NamedTuple):
    """An evaluation that this site has answered with its own noise added."""

    round: int
    w: str  # SHA-256 of the model
    events: tuple[ReleaseEntry, ...]
    upload: bytes | None  # None once the study has ended

    @property
    def charge(self) -> Charge:
        """What the evaluation costs."""
        return Charge(place_of(self.events[0]), self.events)


class Departure(NamedTuple):
    """A byte string that left the site, or was about to when the process died.

    `fate` is "kept back" if the release gate stopped it.
    """

    number: int
    time: str
    experiment: str
    kind: str
    round: int | None
    sha256: str
    bytes: int
    fate: str

    @property
    def is_upload(self) -> bool:
        """Whether the bytes hold something computed from records, for the first time or again."""
        return self.kind.removesuffix(" again") in UPLOAD_KINDS


class RecordedReply(NamedTuple):
    """The bytes that may leave, and whether they got their own line in the journal."""

    data: bytes
    has_line: bool


@dataclass
class Journal:
    """The journal of one site; only one process at a time may write to it.

    Use `Journal.open` to write and `Journal.read` to read.
    """

    path: Path
    database: SiteDatabase
    _full_day: str = ""  # the day on which no more lines are written
    _unwritten_repeats: int = 0
    _flushed: float = 0.0

    @classmethod
    def connect(cls, path: Path, durable: bool = True) -> Journal:
        """Connect to a journal file without locking it; see `SiteDatabase.open`."""
        return cls(path, SiteDatabase.open(path, TABLES, durable))

    @classmethod
    @contextmanager
    def open(cls, folder: Path, patience: float = 20.0) -> Iterator[Journal]:
        """Open the journal in a site's state folder for writing.

        Parameters
        ----------
        folder : Path
            The state folder; it is created if necessary.
        patience : float
            Seconds to wait for an agent that is shutting down.

        Raises
        ------
        InputError
            If another agent uses the journal, or another process reads it all the time.
        """
        make_folder(folder, exist_ok=True, private=True)
        with locked(folder / "lock", f"{folder} is in use by another agent of this site", timeout=patience):
            path = journal_path(folder)
            path.touch(mode=0o600)
            path.chmod(0o600)
            journal = cls.connect(path)
            with closing(journal.database):
                with journal.exclusive():  # what was pending when a process died may have left
                    journal._execute("update departures set fate = ? where fate = ?", LEFT, PENDING)
                try:
                    journal.database.truncate_log()  # the log of a process that died may hold deleted secrets
                except LogInUse as error:
                    raise InputError(f"{path}: {error}") from error
                yield journal
                journal.flush_repeats()

    @classmethod
    @contextmanager
    def read(cls, folder: Path) -> Iterator[Journal]:
        """Open the journal for reading; an agent may be writing to it.

        Raises
        ------
        InputError
            If the site has no journal yet.
        """
        path = journal_path(folder)
        if not path.is_file():
            raise InputError(f"there is no journal in {folder}: this site has not taken part in a study yet")
        journal = cls.connect(path, durable=False)
        with closing(journal.database):
            yield journal

    def exclusive(self) -> AbstractContextManager[None]:
        """Run a block as one transaction without any other writer; see `SiteDatabase.exclusive`."""
        return self.database.exclusive()

    def experiment(self, experiment: str) -> Experiment | None:
        """Return a study that was begun here, or None."""
        row = self._execute("select * from experiments where id = ?", experiment).fetchone()
        return Experiment(*row) if row else None

    def experiments(self) -> list[Experiment]:
        """Return all studies that were begun here, oldest first."""
        return [Experiment(*row) for row in self._execute("select * from experiments order by begun, rowid").fetchall()]

    def begin(self, experiment: str, study: str, terms: str, reservation: str, non_private: str) -> Experiment:
        """Record a new study. Its whole plan must be reserved in the budget ledger next.

        Parameters
        ----------
        experiment : str
            The experiment, 32 hexadecimal digits.
        study, terms : str
            The study's name, and the hash of its terms.
        reservation : str
            The identifier under which its budget will be reserved.
        non_private : str
            Why its noise gives no protection; empty if it does.
        """
        begun = Experiment(experiment, study, terms, reservation, non_private, timestamp(), None)
        with self.exclusive():
            self._execute("insert into experiments values (?, ?, ?, ?, ?, ?, ?, ?)", *begun)
        return begun

    def close(self, experiment: str) -> None:
        """Record the end of a study and delete its private state."""
        with self.exclusive():
            self._execute("update experiments set closed = ? where id = ? and closed is null", timestamp(), experiment)
            self._delete_states(experiment)
            self._execute("update evaluations set upload = null where experiment = ?", experiment)
            self.delete_sums(experiment)
        self.database.truncate_log()

    def mark_broken(self, experiment: str) -> None:
        """Record a privacy violation in a study: no process answers in it any longer."""
        with self.exclusive():
            self._execute("update experiments set broken = ? where id = ? and broken is null", timestamp(), experiment)
            self.delete_sums(experiment)
        self.database.truncate_log()

    def last_round(self, experiment: str) -> RoundRecord | None:
        """Return the last round that this site has answered in a study, or None."""
        return next(self.rounds(experiment, newest=True), None)

    def rounds(self, experiment: str, newest: bool = False) -> Iterator[RoundRecord]:
        """Yield the rounds that this site has answered in a study, in order, or only the newest."""
        order = "desc limit 1" if newest else "asc"
        query = f"select round, base, w, events, upload from rounds where experiment = ? order by round {order}"
        for number, base, w, events, upload in self._execute(query, experiment).fetchall():
            yield RoundRecord(number, base, w, self._entries(events), upload)

    def charges(self, experiment: str) -> Iterator[Charge]:
        """Yield what each upload of this site in a study costs, in the order of the uploads."""
        for record in self.rounds(experiment):
            yield record.charge
        for evaluation in self.evaluations(experiment):
            yield evaluation.charge
        query = "select epoch, slot, events from sum_uploads where experiment = ? order by epoch, slot"
        for epoch, slot, events in self._execute(query, experiment).fetchall():
            yield Charge(str(Slot(epoch, slot)), self._entries(events))

    def evaluations(self, experiment: str) -> list[EvaluationRecord]:
        """Return the evaluations that this site has answered in a study with its own noise, in order."""
        query = "select round, w, events, upload from evaluations where experiment = ? order by round"
        rows = self._execute(query, experiment).fetchall()
        return [EvaluationRecord(number, w, self._entries(events), upload) for number, w, events, upload in rows]

    def write_evaluation(self, experiment: str, record: EvaluationRecord) -> None:
        """Store the only answer to an evaluation, before a byte leaves.

        Raises
        ------
        sqlite3.IntegrityError
            If there is one already.
        """
        values = (experiment, record.round, record.w, to_json(record.events), record.upload)
        with self.exclusive():
            self._execute("insert into evaluations values (?, ?, ?, ?, ?)", *values)
            if record.upload is not None:
                self.record_departure(experiment, "measures", record.round, record.upload)

    def newest_slot(self, experiment: str) -> str:
        """Return the slot of this site's last upload to a secure sum, as "epoch/slot", or ""."""
        query = "select epoch, slot from sum_uploads where experiment = ? order by epoch desc, slot desc limit 1"
        row = self._execute(query, experiment).fetchone()
        return str(Slot(*row)) if row else ""

    def answered_rounds(self, experiment: str) -> list[int]:
        """Return the round of each upload of training records; a round may have several in a secure sum."""
        entries = [charge.entries[0] for charge in self.charges(experiment) if charge.entries]
        return [entry.first for entry in entries if not entry.held_out]

    def delete_sums(self, experiment: str, *, before: int | None = None, keep: int | None = None) -> None:
        """Delete what a site keeps of the epochs of a study: secrets, shares, directories, opinions and uploads.

        The numbers of its epochs, and what its uploads cost, stay.

        Parameters
        ----------
        experiment : str
            The study.
        before : int, optional
            Delete only epochs before this one.
        keep : int, optional
            An epoch that is not deleted.
        """
        which = "experiment = ? and (? is null or epoch < ?) and (? is null or epoch != ?)"
        statements = (
            *(f"delete from {table} where" for table in EPOCH_TABLES),
            "update sum_announcements set announcement = null, box_key = null where announcement is not null and",
            "update sum_uploads set upload = null where upload is not null and",
        )
        with self.exclusive():
            for statement in statements:
                self._execute(f"{statement} {which}", experiment, before, before, keep, keep)

    def agent_state(self, experiment: str, base: int, zero: Array) -> Agent | None:
        """Return the agent's state after round `base`, or None if it was never answered or is deleted.

        Parameters
        ----------
        experiment : str
            The study.
        base : int
            A round; 0 for the state before the first round.
        zero : ndarray of shape [J, 1, K]
            The initial parameters, whose shape and precision the state has.
        """
        if base == 0:
            return Agent(zero, zero)
        query = "select z, lam from rounds where experiment = ? and round = ?"
        row = self._execute(query, experiment, base).fetchone()
        if row is None or row[0] is None:
            return None
        return Agent(*(np.frombuffer(blob, dtype=zero.dtype).reshape(zero.shape) for blob in row))

    def dual_digest(self, experiment: str, number: int) -> str | None:
        """Return the hash of the dual after a round. It is public: it follows from the uploads."""
        row = self._execute("select dual from rounds where experiment = ? and round = ?", experiment, number).fetchone()
        return str(row[0]) if row else None

    def claim_round(self, experiment: str, number: int, base: int, w: str) -> None:
        """Claim a round for its only answer, before noise is drawn.

        Call it in the `exclusive` block in which `write_round` stores the answer. If the block fails, nothing is
        claimed.

        Raises
        ------
        sqlite3.IntegrityError
            If the round is claimed already.
        """
        if not self.database.connection.in_transaction:
            raise RuntimeError("a round must be claimed in the transaction that answers it")
        query = "insert into rounds (experiment, round, base, w) values (?, ?, ?, ?)"
        self._execute(query, experiment, number, base, w)

    def write_round(self, experiment: str, record: RoundRecord, agent: Agent) -> None:
        """Store the answer of a claimed round and the agent's new state, before a byte leaves.

        States from which no round can start are deleted: the server has moved on from those before the base, and has
        never accepted those after it.

        Parameters
        ----------
        experiment : str
            The study.
        record : RoundRecord
            The round, with its ledger entries and its upload.
        agent : Agent
            The state after the round.
        """
        with self.exclusive():
            self._delete_states(experiment, keep_base=record.base)
            query = (
                "update rounds set events = ?, dual = ?, upload = ?, z = ?, lam = ? "
                "where experiment = ? and round = ? and base = ? and w = ? and events is null"
            )
            values = (to_json(record.events), array_digest(agent.lam), record.upload, agent.z.tobytes())
            key = (experiment, record.round, record.base, record.w)
            if self._execute(query, *values, agent.lam.tobytes(), *key).rowcount != 1:
                raise RuntimeError(f"round {record.round} is written without a claim")
            if record.upload is not None:
                self.record_departure(experiment, "answer", record.round, record.upload)
        self.database.truncate_log()

    def record_departure(self, experiment: str, kind: str, number: int | None, data: bytes) -> None:
        """Write a line for bytes that are about to leave.

        Parameters
        ----------
        experiment : str
            The study; may be empty.
        kind : str
            The kind of message.
        number : int or None
            The round, if there is one.
        data : bytes
            The bytes.
        """
        with self.exclusive():
            self._execute(
                "insert into departures (time, experiment, kind, round, sha256, bytes) values (?, ?, ?, ?, ?, ?)",
                *(timestamp(), experiment, kind, number, digest(data), len(data)),
            )

    def record_repeatable(
        self, experiment: str, kind: str, number: int | None, data: bytes, fallback: bytes | None = None
    ) -> RecordedReply:
        """Record bytes that a coordinator can request without limit, and return those that may leave.

        On one day `DAILY_LINES` of them get a line, whatever studies the coordinator invents. Beyond that, bytes that
        have a line already are only counted, and the count is written once a minute. Bytes without a line get one. So
        every byte string that leaves has a line, and the number of lines is bounded by studies, rounds and days.

        Parameters
        ----------
        experiment, kind, number, data
            As for `record_departure`.
        fallback : bytes, optional
            Fixed bytes that leave instead of new ones on a day that is full.
        """
        day = time.strftime("%Y-%m-%d", time.gmtime())
        if self._full_day != day:
            with self.exclusive():
                row = self._execute("select lines from repeats where day = ?", day).fetchone()
                if row is None or row[0] < DAILY_LINES:
                    self._count_repeats(day, lines=1)
                    self.record_departure(experiment, kind, number, data)
                    return RecordedReply(data, has_line=True)
            self._full_day = day
        if fallback is not None and not self.has_departure(digest(data)):
            data = fallback
        if not self.has_departure(digest(data)):
            self.record_departure(experiment, kind, number, data)
            return RecordedReply(data, has_line=True)
        self._unwritten_repeats += 1
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush_repeats()
        return RecordedReply(data, has_line=False)

    def flush_repeats(self) -> None:
        """Write the count of departures without a line."""
        if self._unwritten_repeats:
            count, self._unwritten_repeats, self._flushed = self._unwritten_repeats, 0, time.monotonic()
            with self.exclusive():
                self._count_repeats(self._full_day, more=count)

    def settle_departure(self, sha256: str, fate: str) -> None:
        """Record whether pending bytes left. If that cannot be written, they count as left.

        Parameters
        ----------
        sha256 : str
            The hash of the bytes.
        fate : str
            LEFT or KEPT_BACK.
        """
        database = self.database
        block = database.exclusive() if fate == KEPT_BACK else database.exclusive_unflushed()
        with suppress(sqlite3.Error), block:
            self._execute("update departures set fate = ? where sha256 = ? and fate = ?", fate, sha256, PENDING)

    def has_departure(self, sha256: str) -> bool:
        """Return whether bytes with this hash have a line."""
        return self._execute("select 1 from departures where sha256 = ? limit 1", sha256).fetchone() is not None

    def departures(self) -> list[Departure]:
        """Return a line for every byte string that left, in order."""
        return [Departure(*row) for row in self._execute("select * from departures order by number").fetchall()]

    def newest_departures(self, count: int) -> list[Departure]:
        """Return the last `count` lines, newest first."""
        query = "select * from departures order by number desc limit ?"
        return [Departure(*row) for row in self._execute(query, count).fetchall()]

    def departure_totals(self) -> dict[str, tuple[int, int]]:
        """Return for every kind how many byte strings left with their own line, and their total size in bytes."""
        query = "select kind, count(*), sum(bytes) from departures where fate != ? group by kind order by kind"
        return {kind: (count, size) for kind, count, size in self._execute(query, KEPT_BACK)}

    def repeats(self) -> int:
        """Return how many times, at least, a listed byte string left again without its own line."""
        (total,) = self._execute("select coalesce(sum(more), 0) from repeats").fetchone()
        return int(total)

    def _execute(self, query: str, *values: Any) -> Any:
        return self.database.connection.execute(query, values)

    def _entries(self, text: str) -> tuple[ReleaseEntry, ...]:
        return tuple(ReleaseEntry.from_json(row, self.path) for row in json.loads(text))

    def _delete_states(self, experiment: str, *, keep_base: int | None = None) -> None:
        """Delete the uploads and states of all rounds, except those of the base."""
        query = "update rounds set upload = null, z = null, lam = null where experiment = ? and z is not null"
        self._execute(f"{query} and (? is null or round != ?)", experiment, keep_base, keep_base)

    def _count_repeats(self, day: str, lines: int = 0, more: int = 0) -> None:
        self._execute(
            "insert into repeats values (?, ?, ?) "
            "on conflict (day) do update set lines = lines + excluded.lines, more = more + excluded.more",
            *(day, lines, more),
        )


def journal_path(state: Path) -> Path:
    """Return the journal in a site's state folder."""
    return state / "journal.sqlite"


def timestamp() -> str:
    """Return the local time with its UTC offset, as in 2025-01-31T12:00:00+0100."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
