"""The status file is private, whole and cheap; a process that is dead or frozen is not connected."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taciturn.core.locks import is_locked
from taciturn.federation import status
from taciturn.federation.site_operations import site_status
from taciturn.federation.status import (
    AGENT_LOCK,
    STATUS_FILE,
    AgentStatus,
    CoordinatorStatus,
    is_connected,
    publish_status,
    read_status,
)
from tests.federation.helpers import Federation
from tests.federation.stations import CONNECTS, vault_with, whole_federation


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a running process."""
    with (folder / AGENT_LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_the_file_is_private_and_follows_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "WRITE_SECONDS", 0.01)
    life = AgentStatus()
    with held(tmp_path), publish_status(life, tmp_path / STATUS_FILE):
        assert (tmp_path / STATUS_FILE).stat().st_mode & 0o777 == 0o600
        seen = read_status(tmp_path, AGENT_LOCK, AgentStatus)
        assert seen.running and not is_connected(seen) and seen.status.pid == os.getpid()
        life.connected, life.rounds = time.time(), 3
        end = time.monotonic() + 5.0
        while not is_connected(read_status(tmp_path, AGENT_LOCK, AgentStatus)):
            assert time.monotonic() < end
        assert read_status(tmp_path, AGENT_LOCK, AgentStatus).status.rounds == 3
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "WRITE_SECONDS", 0.0005)
    life = CoordinatorStatus()
    with held(tmp_path), publish_status(life, tmp_path / STATUS_FILE):
        for number in range(1500):
            life.sites[f"site-{number % 40}"] = time.time()
            life.sites.pop(f"site-{(number + 20) % 40}", None)
            assert read_status(tmp_path, AGENT_LOCK, CoordinatorStatus).running


def test_it_is_written_at_most_once_a_second(tmp_path: Path) -> None:
    life, written = AgentStatus(), set()
    with publish_status(life, tmp_path / STATUS_FILE):
        end = time.monotonic() + 1.3
        while time.monotonic() < end:
            life.rounds += 1
            written.add(json.loads((tmp_path / STATUS_FILE).read_text())["written"])
            time.sleep(0.01)
    assert len(written) <= 2


def test_a_full_disk_costs_the_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "WRITE_SECONDS", 0.01)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with publish_status(AgentStatus(), tmp_path / STATUS_FILE):
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", full)
            time.sleep(0.05)
        assert any(thread.name == "status" for thread in threading.enumerate())


@pytest.mark.parametrize("how", ["dead", "frozen", "nobody", "damaged", "foreign"])
def test_a_process_that_is_not_there_is_not_connected(federation: Federation, how: str) -> None:
    state = federation.site("north").state
    state.mkdir(mode=0o700)
    life = AgentStatus(connected=time.time(), heartbeat=time.time(), study="tiny")
    with held(state), publish_status(life, state / STATUS_FILE):
        assert site_status(federation.file("north"))["connected"] is True
    if how == "damaged":
        (state / STATUS_FILE).write_text('{"pid": 1, "wri')
    if how == "foreign":
        (state / STATUS_FILE).write_text(json.dumps({"written": time.time(), "rounds": "many", "connected": []}))
    if how == "nobody":
        (state / STATUS_FILE).unlink()
    if how == "frozen":
        old = json.loads((state / STATUS_FILE).read_text()) | {"written": time.time() - 60}
        (state / STATUS_FILE).write_text(json.dumps(old))
        with held(state):
            found = site_status(federation.file("north"))
    else:
        found = site_status(federation.file("north"))
    assert (found["running"], found["connected"], found["connected_since"], found["pid"]) == (False, False, None, None)
    assert found["active_study"] == ""
    assert bool(found["last_heartbeat"]) == (how in ("dead", "frozen"))
    assert found["epsilon_next"] == pytest.approx(3.0, rel=1e-5)


def test_a_vaults_status_says_that_it_is_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation, _ = whole_federation(tmp_path)
    with vault_with(federation, CONNECTS, monkeypatch) as found:
        found.until(lambda: site_status(federation.file("north"))["connected"])
        now = site_status(federation.file("north"))
        assert now["pid"] == os.getpid() and now["last_heartbeat"] and now["last_answer"] is None
        state = federation.site("north").state
        assert (state / STATUS_FILE).stat().st_mode & 0o777 == 0o600
    assert not site_status(federation.file("north"))["running"]


def test_looking_never_keeps_an_agent_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process queries the lock continuously while an agent starts."""
    federation, _ = whole_federation(tmp_path)
    state = federation.site("north").state
    state.mkdir(mode=0o700)
    (state / AGENT_LOCK).touch()
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            is_locked(state / AGENT_LOCK)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        with vault_with(federation, CONNECTS, monkeypatch) as found:
            found.until(lambda: "connected to the coordinator" in found.said)
    finally:
        ended.set()
        asking.join()
