"""Background threads, so that reading and computing does not block the server's event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
REST = 3.0  # a result is recomputed at the earliest after this many times its computing time


class Workers:
    """A few daemon threads; unlike those of `ThreadPoolExecutor`, they do not keep the program from ending.

    Parameters
    ----------
    threads : int
        Number of threads.
    """

    def __init__(self, threads: int) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        for _ in range(threads):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            future, task = self._tasks.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(task())
            except BaseException as error:  # also SystemExit: no task may end the thread
                future.set_exception(error)

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """Run a task in one of the threads and return its future result."""
        future: Future[T] = Future()
        self._tasks.put((future, task))
        return future

    async def run(self, task: Callable[[], T]) -> T:
        """Run a task in one of the threads and wait for its result without blocking the event loop."""
        return await asyncio.wrap_future(self.submit(task))


@dataclass
class CachedResult(Generic[T]):
    """The newest result for one key, and the version of the data it was computed from."""

    value: T | None = None
    version: str = ""
    seconds: float = 0.0  # that computing took
    finished: float = 0.0  # on the monotonic clock
    busy: bool = False


class BackgroundCache(Generic[T]):
    """Results that take long to compute: a request returns the newest one at once and starts computing a newer one.

    Parameters
    ----------
    failed : callable
        Turns the exception of a computation into a result.
    """

    def __init__(self, failed: Callable[[Exception], T]) -> None:
        self._failed = failed
        self._workers = Workers(1)
        self._known: dict[str, CachedResult[T]] = {}

    def get(self, key: str, version: str, compute: Callable[[], T]) -> tuple[T | None, bool]:
        """Return the newest result and whether it is outdated.

        Parameters
        ----------
        key : str
            Names the result.
        version : str
            Changes whenever the result has to be computed again.
        compute : callable
            Computes it, in a background thread.
        """
        known = self._known.setdefault(key, CachedResult())
        outdated = known.version != version
        if outdated and not known.busy and time.monotonic() - known.finished >= REST * known.seconds:
            known.busy = True
            self._workers.submit(lambda: self._compute(known, version, compute))
        return known.value, outdated

    def _compute(self, known: CachedResult[T], version: str, compute: Callable[[], T]) -> None:
        started = time.monotonic()
        try:
            known.value = compute()
        except Exception as error:
            known.value = self._failed(error)
        finally:
            known.finished = time.monotonic()
            known.seconds, known.version, known.busy = known.finished - started, version, False
