"""File locks that the operating system releases when the process that holds them ends, however it ends."""

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

READER_PATIENCE = 1.0  # seconds to wait for processes that only test the lock, which they hold for an instant
POLL_SECONDS = 0.01


@contextmanager
def locked(path: Path, refusal: str, content: str = "", timeout: float = 0.0) -> Iterator[None]:
    """Hold an exclusive lock on a file within the block; the file is created if it does not exist.

    Parameters
    ----------
    path
        The lock file.
    refusal
        The error message if another process holds the lock.
    content
        What to write into the file for other processes to read, such as the process ID; empty: nothing.
    timeout
        Seconds to wait for another process to release the lock; `math.inf` waits as long as it takes.

    Raises
    ------
    InputError
        If another process still holds the lock after `timeout` seconds.
    """
    handle = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        if math.isinf(timeout):
            fcntl.flock(handle, fcntl.LOCK_EX)
        elif not _acquire(handle, timeout):
            raise InputError(refusal)
        if content:
            os.ftruncate(handle, 0)
            os.pwrite(handle, content.encode(), 0)
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on a file now; a missing file is not locked."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


@contextmanager
def run_lock(identity: str, folder: Path) -> Iterator[None]:
    """Hold the lock of a run's identity, so that no copy of its folder on this machine runs at the same time.

    If the file system of the state folder does not support locks, the block runs without one; the ledger's head, which
    is stored there, then detects a copy at its next line.

    Raises
    ------
    InputError
        If another process is working on the run, in this folder or in a copy of it.
    """
    file = state_folder() / "runs" / f"{identity}.lock"
    make_folder(file.parent, exist_ok=True)
    if not _supports_locks(file):
        yield
        return
    holder = _content(file)
    refusal = (
        f"{folder} is a run that another process is working on{f' ({holder})' if holder else ''}; "
        "two copies of a run cannot both continue, because only one of them is charged"
    )
    with locked(file, refusal, f"process {os.getpid()} in {folder.resolve()}"):
        yield


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _supports_locks(file: Path) -> bool:
    handle = open_file(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(handle)
    return True


def _acquire(handle: int, timeout: float) -> bool:
    """Take the exclusive lock; processes that only test it, with a shared lock, are always waited for."""
    begin = time.monotonic()
    while not _try_lock(handle, fcntl.LOCK_EX):
        only_readers = _try_lock(handle, fcntl.LOCK_SH)
        if time.monotonic() - begin >= (max(timeout, READER_PATIENCE) if only_readers else timeout):
            return False
        fcntl.flock(handle, fcntl.LOCK_UN)  # or two waiting processes would wait for each other's shared lock
        time.sleep(POLL_SECONDS)
    return True


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
