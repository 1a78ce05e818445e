"""A lock is held by one process at a time, and by none after the process ends."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taciturn.core.locks import is_locked, locked
from taciturn.errors import InputError


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A lock file on which another open file description holds the lock."""
    path = tmp_path / "lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield path, handle
    os.close(handle)


def test_a_lock_is_refused_while_it_is_held(held: tuple[Path, int]) -> None:
    path, handle = held
    assert is_locked(path)
    with pytest.raises(InputError, match="busy"), locked(path, "busy"):
        pass
    fcntl.flock(handle, fcntl.LOCK_UN)
    with locked(path, "busy", "process 1"):
        assert is_locked(path) and path.read_text() == "process 1"
    assert not is_locked(path) and not is_locked(path.with_name("missing"))


@pytest.mark.parametrize("timeout", [60.0, float("inf")])
def test_a_timeout_waits_for_the_holder(held: tuple[Path, int], timeout: float) -> None:
    path, handle = held
    release = threading.Timer(0.2, fcntl.flock, (handle, fcntl.LOCK_UN))
    begin = time.monotonic()
    release.start()
    with locked(path, "busy", timeout=timeout):
        assert time.monotonic() - begin >= 0.2
    release.join()
