"""Who only asks whether a run is busy never keeps it from being worked on."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

import pytest

from tacit.errors import InputError
from tacit.results.folder import RunFolder


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "lock").touch()
    return tmp_path / "checkpoint" / "lock"


def test_those_who_only_look_are_waited_for(tmp_path: Path, lock: Path) -> None:
    with lock.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        ends = threading.Timer(0.3, fcntl.flock, (reader, fcntl.LOCK_UN))
        ends.start()
        with RunFolder(tmp_path).locked():
            assert RunFolder(tmp_path).busy
        ends.join()
    assert not RunFolder(tmp_path).busy


def test_who_works_is_not_waited_for_and_who_looks_for_ever_not_either(tmp_path: Path, lock: Path) -> None:
    for kind, least, most in ((fcntl.LOCK_EX, 0.0, 0.5), (fcntl.LOCK_SH, 0.9, 2.0)):
        with lock.open("rb") as other:
            fcntl.flock(other, kind)
            began = time.monotonic()
            with pytest.raises(InputError, match="is being worked on by another process"), RunFolder(tmp_path).locked():
                pass
            assert least <= time.monotonic() - began < most


def test_of_two_who_wait_one_gets_it(tmp_path: Path, lock: Path) -> None:
    got: list[bool] = []

    def work() -> None:
        try:
            with RunFolder(tmp_path).locked():
                time.sleep(0.2)
            got.append(True)
        except InputError:
            got.append(False)

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
    assert time.monotonic() - began < 0.8, "they did not wait for each other"
