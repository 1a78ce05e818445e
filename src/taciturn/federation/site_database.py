"""A site's SQLite file with one writer at a time, among the threads of a process and among processes."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from taciturn.errors import InputError

VERSION = 3
WAIT_SECONDS = 30.0  # for another writer to finish
BRIEF_WAIT_SECONDS = 1.0  # for a write on which nothing depends
RETRY_SECONDS = 0.01  # between attempts to give a file a log
TRUNCATE_SECONDS = 10.0  # for readers of other processes, before the log is emptied


class LogInUse(sqlite3.OperationalError):
    """The log cannot be emptied, so what was deleted can still be read in it. Another attempt may succeed."""


@dataclass
class SiteDatabase:
    """One connection to a site's database. Every write happens inside `exclusive` or `exclusive_unflushed`."""

    connection: sqlite3.Connection
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _truncate_later: bool = False

    @classmethod
    def open(cls, path: Path, tables: str, durable: bool) -> SiteDatabase:
        """Open a file, creating its tables if it is new.

        Parameters
        ----------
        path : Path
            The SQLite file.
        tables : str
            SQL statements that create the tables.
        durable : bool
            Whether every commit is flushed to disk.

        Raises
        ------
        InputError
            If another version of Taciturn wrote the file.
        """
        connection = sqlite3.connect(path, timeout=WAIT_SECONDS, check_same_thread=False, isolation_level=None)
        try:
            _write_ahead(connection)  # a reader never makes the agent wait
            connection.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
            connection.execute("pragma secure_delete = on")  # deleted values are overwritten
            database = cls(connection)
            database._create_tables(path, tables)
        except BaseException:
            connection.close()
            raise
        return database

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Run a block as one transaction without any other writer.

        The file lock is taken before anything is read, so values read inside the block stay true until it ends. A
        second writer waits and then sees what was written. A nested block is part of the outer one.
        """
        with self._lock:
            if self.connection.in_transaction:
                yield
                return
            self.connection.execute("begin immediate")
            try:
                yield
                self.connection.execute("commit")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has ended the transaction already
                    self.connection.execute("rollback")
                raise
            finally:
                truncate, self._truncate_later = self._truncate_later, False
            if truncate:
                self.truncate_log()

    @contextmanager
    def exclusive_unflushed(self) -> Iterator[None]:
        """Run a block like `exclusive`, but wait only briefly and do not flush: a power cut may undo it.

        Its changes reach the disk with the next flushed block. Use it only for writes on which nothing depends.
        """
        with self._lock:
            (level,) = self.connection.execute("pragma synchronous").fetchone()
            self._set_pragmas("normal", BRIEF_WAIT_SECONDS)  # with a write-ahead log: no flush at a commit
            try:
                with self.exclusive():
                    yield
            finally:
                self._set_pragmas(level, WAIT_SECONDS)

    def truncate_log(self) -> None:
        """Empty the write-ahead log, where deleted values could still be read; inside a block, when the block ends.

        Raises
        ------
        LogInUse
            If another process reads the file all the time. What was written stays written.
        """
        if self.connection.in_transaction:
            self._truncate_later = True
            return
        (wait,) = self.connection.execute("pragma busy_timeout").fetchone()
        self.connection.execute(f"pragma busy_timeout = {int(1000 * TRUNCATE_SECONDS)}")
        try:
            busy, *_ = self.connection.execute("pragma wal_checkpoint(truncate)").fetchone()
        finally:
            self.connection.execute(f"pragma busy_timeout = {wait}")
        if busy:
            raise LogInUse(
                f"another process has been reading this site's journal for {TRUNCATE_SECONDS:g} seconds, so deleted "
                "secrets are still on the disk and nothing leaves; end that process"
            )

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _set_pragmas(self, synchronous: str | int, wait: float) -> None:
        self.connection.execute(f"pragma synchronous = {synchronous}")
        self.connection.execute(f"pragma busy_timeout = {int(1000 * wait)}")

    def _create_tables(self, path: Path, tables: str) -> None:
        if self._version() == VERSION:
            return
        with self.exclusive():
            (existing,) = self.connection.execute("select count(*) from sqlite_master").fetchone()
            if existing and self._version() != VERSION:
                raise InputError(f"{path} was written by another version of Taciturn; finish its studies with that one")
            for statement in filter(str.strip, tables.split(";")):
                self.connection.execute(statement)
            self.connection.execute(f"pragma user_version = {VERSION}")

    def _version(self) -> int:
        (version,) = self.connection.execute("pragma user_version").fetchone()
        return int(version)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Give a file a write-ahead log; SQLite does not wait by itself where two connections do so at the same time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the rest of the code says why
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
