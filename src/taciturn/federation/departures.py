"""What left a site: a line for every byte string, and no more lines a day than a site can bear."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from taciturn.federation.messages import digest
from taciturn.federation.site_database import Store

TABLES = """
create table if not exists departures (
    number integer primary key autoincrement, time text not null, experiment text not null, kind text not null,
    round integer, sha256 text not null, bytes integer not null, fate text not null default 'pending');
create index if not exists departed on departures (sha256);
create table if not exists repeats (day text primary key, lines integer not null, more integer not null);
"""
DAILY = 200  # lines a day for what a coordinator can make a site say as often as it likes
PERIOD = 60.0  # seconds between two writes of how often more was said
PENDING, LEFT, KEPT_BACK = "pending", "left", "kept back"


class Departure(NamedTuple):
    """A byte string that left, or was about to when the process died; `fate` is "kept back" where it did not."""

    number: int
    time: str
    experiment: str
    kind: str
    round: int | None
    sha256: str
    bytes: int
    fate: str


class DepartedBytes(NamedTuple):
    """What leaves, and whether it has a line of its own."""

    data: bytes
    noted: bool


@dataclass
class Departures:
    """The list of what left."""

    store: Store
    _full: str = ""  # the day on which no more lines are written
    _more: int = 0  # counted and not written yet
    _written: float = 0.0

    def note(self, name: str, kind: str, number: int | None, data: bytes) -> None:
        """Take note of bytes that are about to leave."""
        with self.store.alone():
            self.store.connection.execute(
                "insert into departures (time, experiment, kind, round, sha256, bytes) values (?, ?, ?, ?, ?, ?)",
                (now(), name, kind, number, digest(data), len(data)),
            )

    def again(self, name: str, kind: str, number: int | None, data: bytes, spare: bytes | None = None) -> DepartedBytes:
        """Take note of bytes that a coordinator can ask for without end, and give those that leave.

        On one day DAILY of them get a line, whatever studies the coordinator makes up. Beyond that, bytes which have
        a line already are only counted, and the count reaches the disk once a minute. Bytes that have none get one;
        where there is a `spare`, it leaves in their place, always the same. So every byte string that leaves has a
        line, and the lines are as few as studies, rounds and days make them.
        """
        day = time.strftime("%Y-%m-%d", time.gmtime())
        if self._full != day:
            with self.store.alone():
                if self._lines(day) < DAILY:
                    self._add(day, lines=1)
                    self.note(name, kind, number, data)
                    return DepartedBytes(data, noted=True)
            self._full = day
        if spare is not None and not self.known(digest(data)):
            data = spare
        if not self.known(digest(data)):
            self.note(name, kind, number, data)
            return DepartedBytes(data, noted=True)
        self._more += 1
        if time.monotonic() - self._written > PERIOD:
            self.flush()
        return DepartedBytes(data, noted=False)

    def flush(self) -> None:
        """Write down how often more was said."""
        if self._more:
            more, self._more, self._written = self._more, 0, time.monotonic()
            with self.store.alone():
                self._add(self._full, more=more)

    def known(self, sha256: str) -> bool:
        """Whether bytes with this hash have a line."""
        query = "select 1 from departures where sha256 = ? limit 1"
        return self.store.connection.execute(query, (sha256,)).fetchone() is not None

    def listed(self, after: int = 0) -> list[Departure]:
        """Every line, in order, after some number."""
        query = "select * from departures where number > ? order by number"
        return [Departure(*row) for row in self.store.connection.execute(query, (after,)).fetchall()]

    def newest(self, count: int) -> list[Departure]:
        """The last lines, the newest first."""
        query = "select * from departures order by number desc limit ?"
        return [Departure(*row) for row in self.store.connection.execute(query, (count,)).fetchall()]

    def totals(self) -> dict[str, tuple[int, int]]:
        """For every kind how many byte strings left with a line of their own, and how many bytes they were."""
        query = "select kind, count(*), sum(bytes) from departures where fate != ? group by kind order by kind"
        return {kind: (count, size) for kind, count, size in self.store.connection.execute(query, (KEPT_BACK,))}

    def more(self) -> int:
        """How often one of the listed byte strings left once more without a line: at least so often."""
        (total,) = self.store.connection.execute("select coalesce(sum(more), 0) from repeats").fetchone()
        return int(total)

    def settle(self, sha256: str, fate: str) -> None:
        """What became of the bytes with this hash that were about to leave; where it cannot be written, they left."""
        query = "update departures set fate = ? where sha256 = ? and fate = ?"
        with suppress(sqlite3.Error), self.store.alone() if fate == KEPT_BACK else self.store.lightly():
            self.store.connection.execute(query, (fate, sha256, PENDING))

    def settle_all(self) -> None:
        """Whatever was about to leave when a process ended counts as left."""
        with self.store.alone():
            self.store.connection.execute("update departures set fate = ? where fate = ?", (LEFT, PENDING))

    def _lines(self, day: str) -> int:
        row = self.store.connection.execute("select lines from repeats where day = ?", (day,)).fetchone()
        return int(row[0]) if row else 0

    def _add(self, day: str, lines: int = 0, more: int = 0) -> None:
        self.store.connection.execute(
            "insert into repeats values (?, ?, ?) "
            "on conflict (day) do update set lines = lines + excluded.lines, more = more + excluded.more",
            (day, lines, more),
        )


def now() -> str:
    """The time, to be written down."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
