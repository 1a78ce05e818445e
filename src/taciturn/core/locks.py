"""Locks that go with the process which holds them, however it ends; one that is paused holds them still."""

from __future__ import annotations

import fcntl
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taciturn.core.storage import make_folder, open_file, state_folder
from taciturn.errors import InputError

PATIENCE, MOMENT = 1.0, 0.01  # seconds: for those who only ask whether a lock is held, and between two looks


@contextmanager
def locked(path: Path, refusal: str, content: str = "", timeout: float = 0.0) -> Iterator[None]:
    """Hold a lock file for this process alone, with some words in it for those who are refused.

    With `timeout` `math.inf` it waits for as long as another process holds the lock.

    Raises
    ------
    InputError
        Where another holds it: the refusal.
    """
    handle = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        if math.isinf(timeout):
            fcntl.flock(handle, fcntl.LOCK_EX)
        elif not _alone(handle):
            raise InputError(refusal)
        if content:
            os.ftruncate(handle, 0)
            os.pwrite(handle, content.encode(), 0)
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock file now; asking leaves no trace."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)  # where there is no lock to read, nobody works
    return False


@contextmanager
def holding(identity: str, place: Path) -> Iterator[None]:
    """Hold a run's identity while it is worked at in its folder: a copy of the folder is refused.

    Where the state folder's file system knows no locks, the ledger's head that is kept there tells copies apart at
    their next line.
    """
    file = _identity_file(identity)
    make_folder(file.parent, exist_ok=True)
    if not _knows_locks(file):
        yield
        return
    holder = _words(file)
    refusal = (
        f"{place} is a run that another process is working on{f' ({holder})' if holder else ''}: "
        "two copies of a run cannot both go on, for only one of them is charged"
    )
    with locked(file, refusal, f"process {os.getpid()} in {place.resolve()}"):
        yield


def is_held(identity: str) -> bool:
    """Whether a process on this machine works at the run with this identity, in whichever folder."""
    return is_locked(_identity_file(identity))


def _identity_file(identity: str) -> Path:
    return state_folder() / "runs" / f"{identity}.lock"


def _words(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _knows_locks(file: Path) -> bool:
    handle = open_file(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _alone(handle: int) -> bool:
    """Whether this process got the lock for itself; those who only look share theirs, and are waited for."""
    end = time.monotonic() + PATIENCE
    while not _locks(handle, fcntl.LOCK_EX):
        if not _locks(handle, fcntl.LOCK_SH) or time.monotonic() > end:
            return False
        fcntl.flock(handle, fcntl.LOCK_UN)  # or two who wait would wait for each other
        time.sleep(MOMENT)
    return True


def _locks(handle: int, kind: int) -> bool:
    """Whether the lock can be had at once."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
