"""Asking whether a run is busy never prevents another process from working on it."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

import pytest

from taciturn.core import locks
from taciturn.errors import InputError
from taciturn.runs.folder import RunFolder

LONG = 30.0  # seconds: nobody in these tests waits so long


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "lock").touch()
    return tmp_path / "checkpoint" / "lock"


def test_a_lock_waits_for_processes_that_only_test_it(
    tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "READER_PATIENCE", LONG)
    with lock.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        ends = threading.Timer(0.3, fcntl.flock, (reader, fcntl.LOCK_UN))
        ends.start()
        with RunFolder(tmp_path).locked():
            assert RunFolder(tmp_path).busy
        ends.join()
    assert not RunFolder(tmp_path).busy


def test_a_lock_does_not_wait_for_a_holder_or_for_endless_tests(
    tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, patience, least in ((fcntl.LOCK_EX, LONG, 0.0), (fcntl.LOCK_SH, 0.3, 0.3)):
        monkeypatch.setattr(locks, "READER_PATIENCE", patience)
        with lock.open("rb") as other:
            fcntl.flock(other, kind)
            began = time.monotonic()
            with pytest.raises(InputError, match="is being worked on by another process"), RunFolder(tmp_path).locked():
                pass
            assert least <= time.monotonic() - began < LONG


def test_exactly_one_of_two_waiting_processes_gets_the_lock(
    tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "READER_PATIENCE", LONG)
    got: list[bool] = []
    lost = threading.Event()

    def work() -> None:
        try:
            with RunFolder(tmp_path).locked():
                lost.wait(LONG)
            got.append(True)
        except InputError:
            got.append(False)
            lost.set()

    began = time.monotonic()
    with lock.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        both = [threading.Thread(target=work) for _ in range(2)]
        for one in both:
            one.start()
        time.sleep(0.1)
    for one in both:
        one.join()
    assert sorted(got) == [False, True]
    assert time.monotonic() - began < LONG, "they did not wait for each other"
