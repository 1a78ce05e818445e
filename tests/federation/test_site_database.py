"""A site's SQLite file is opened by an agent and by a process that looks at it, possibly at the same moment."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from taciturn.federation import site_database
from taciturn.federation.site_database import VERSION, SiteDatabase


class Contended(sqlite3.Connection):
    """A connection whose first attempts at a write-ahead log find another one at it: SQLite does not wait then."""

    failures = 2
    code = sqlite3.SQLITE_BUSY

    def execute(self, statement: str, *more: Any) -> sqlite3.Cursor:
        """Fail as SQLite does, or execute the statement."""
        if "journal_mode" in statement and Contended.failures:
            Contended.failures -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = Contended.code
            raise error
        return super().execute(statement, *more)


@pytest.fixture
def contended(monkeypatch: pytest.MonkeyPatch) -> type[Contended]:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, **more, factory=Contended))
    monkeypatch.setattr(Contended, "failures", 2)
    return Contended


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY | (1 << 8)])
def test_a_new_file_can_be_opened_by_two_processes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contended: type[Contended], code: int
) -> None:
    monkeypatch.setattr(Contended, "code", code)
    database = SiteDatabase.open(tmp_path / "journal.sqlite", "create table notes (name text);", durable=True)
    try:
        assert contended.failures == 0
        assert database.connection.execute("pragma journal_mode").fetchone() == ("wal",)
        assert database.connection.execute("pragma user_version").fetchone() == (VERSION,)
    finally:
        database.close()


def test_it_does_not_wait_for_ever_nor_for_other_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contended: type[Contended]
) -> None:
    monkeypatch.setattr(Contended, "code", sqlite3.SQLITE_IOERR)
    with pytest.raises(sqlite3.OperationalError):
        SiteDatabase.open(tmp_path / "a.sqlite", "", durable=True)
    assert contended.failures == 1
    monkeypatch.setattr(Contended, "code", sqlite3.SQLITE_BUSY)
    monkeypatch.setattr(site_database, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(Contended, "failures", 1000)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        SiteDatabase.open(tmp_path / "b.sqlite", "", durable=True)
