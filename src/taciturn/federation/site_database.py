"""A site's SQLite file, with one writer at a time: among the threads of a process, and among processes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from taciturn.errors import InputError

VERSION = 2
WAIT = 30.0  # seconds for another writer to end
BRIEFLY = 1.0  # seconds, where nothing depends on it


@dataclass
class Store:
    """One connection; all writing is done in `alone`."""

    connection: sqlite3.Connection
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _folding: bool = False

    @classmethod
    def open(cls, path: Path, tables: str, durable: bool) -> Store:
        """The file with these tables; where it is `durable`, a commit is on the disk."""
        connection = sqlite3.connect(path, timeout=WAIT, check_same_thread=False, isolation_level=None)
        try:
            connection.execute("pragma journal_mode = wal")  # so that a reader never makes the agent wait
            connection.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
            connection.execute("pragma secure_delete = on")  # what is struck out is overwritten
            store = cls(connection)
            store._prepare(path, tables)
        except BaseException:
            connection.close()
            raise
        return store

    @contextmanager
    def lightly(self) -> Iterator[None]:
        """As `alone`, for what nothing depends on: it waits only briefly, and a power cut may take it back.

        It reaches the disk with the next block that is not light.
        """
        with self._lock:
            (level,) = self.connection.execute("pragma synchronous").fetchone()
            self._set("normal", BRIEFLY)  # in a write-ahead log: no flush at a commit, and flushes around a checkpoint
            try:
                with self.alone():
                    yield
            finally:
                self._set(level, WAIT)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """All or nothing, with no other writer in between: one that comes second waits, and then sees what was written.

        The lock of the file is taken before anything is read, so that what is read stays true until the block ends. A
        block within a block is part of it.
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
                with suppress(sqlite3.Error):  # a disk that is full has ended the transaction already
                    self.connection.execute("rollback")
                raise
            finally:
                folding, self._folding = self._folding, False
            if folding:
                self.fold()

    def fold(self) -> None:
        """Empty the log of changes, where what was struck out would still be read; within a block, when it ends."""
        if self.connection.in_transaction:
            self._folding = True
        else:
            self.connection.execute("pragma wal_checkpoint(truncate)")

    def _set(self, synchronous: str | int, wait: float) -> None:
        self.connection.execute(f"pragma synchronous = {synchronous}")
        self.connection.execute(f"pragma busy_timeout = {int(1000 * wait)}")

    def close(self) -> None:
        """Nothing more is read or written."""
        self.connection.close()

    def _prepare(self, path: Path, tables: str) -> None:
        (version,) = self.connection.execute("pragma user_version").fetchone()
        if version == VERSION:
            return
        with self.alone():
            (there,) = self.connection.execute("select count(*) from sqlite_master").fetchone()
            (version,) = self.connection.execute("pragma user_version").fetchone()
            if there and version != VERSION:
                raise InputError(
                    f"{path} was written by another version of Taciturn: let its studies end with that one"
                )
            for statement in filter(str.strip, tables.split(";")):
                self.connection.execute(statement)
            self.connection.execute(f"pragma user_version = {VERSION}")
