"""A site's SQLite file is opened by an agent and by a process that looks at it, possibly at the same moment."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from taciturn.federation.site_database import VERSION, SiteDatabase


def test_a_new_file_can_be_opened_while_another_connection_still_reads_it(tmp_path: Path) -> None:
    """SQLite gives up at once where a file gets its log while another connection holds a lock for reading."""
    path = tmp_path / "journal.sqlite"
    other = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    other.execute("create table seen (name text)")
    other.execute(f"pragma user_version = {VERSION}")
    other.execute("begin")
    other.execute("select * from seen").fetchall()
    done = threading.Timer(0.3, other.execute, ["commit"])
    done.start()
    try:
        SiteDatabase.open(path, "", durable=True).close()
    finally:
        done.join()
        other.close()
