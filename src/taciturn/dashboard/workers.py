"""Threads beside the server's: what reads or computes does not make others wait, and ends with the program."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
REST = 3.0  # a result is computed anew at the earliest after this many times what it took


class Workers:
    """A few threads that die with the program, however busy they are."""

    def __init__(self, threads: int) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        for _ in range(threads):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            with contextlib.suppress(BaseException):  # whatever becomes of one task, others wait
                self._tasks.get()()

    def submit(self, task: Callable[[], object]) -> None:
        """Do it sometime; what it gives is its own affair."""
        self._tasks.put(task)

    async def do(self, work: Callable[[], T]) -> T:
        """The result of some work, waited for without holding up the server."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def task() -> None:
            try:
                result = work()
            except BaseException as error:
                _tell(loop, done, done.set_exception, error)
            else:
                _tell(loop, done, done.set_result, result)

        self.submit(task)
        return await done


def _tell(loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any], say: Callable[[Any], None], what: Any) -> None:
    """Hand a result over, to whoever still waits for it."""

    def hand_over() -> None:
        if not done.done():
            say(what)

    with contextlib.suppress(RuntimeError):  # the server has ended
        loop.call_soon_threadsafe(hand_over)


@dataclass
class CachedResult:
    """The newest result there is, and what it is of."""

    version: str = ""
    value: dict[str, Any] = field(default_factory=dict)
    took: float = 0.0  # seconds
    ended: float = 0.0
    busy: bool = False


class Later:
    """Results that take their time: who asks gets the newest there is at once, and a fresher one is begun."""

    def __init__(self) -> None:
        self._workers = Workers(1)
        self._known: dict[str, CachedResult] = {}

    def ask(self, key: str, version: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The newest result, with `pending` where it is not the one of this version."""
        known = self._known.setdefault(key, CachedResult())
        fresh = known.version == version
        if not fresh and not known.busy and time.monotonic() - known.ended >= REST * known.took:
            known.busy = True
            self._workers.submit(lambda: self._compute(known, version, compute))
        return known.value | {"pending": not fresh}

    def _compute(self, known: CachedResult, version: str, compute: Callable[[], dict[str, Any]]) -> None:
        began = time.monotonic()
        try:
            known.value, known.version = _outcome(compute), version
        finally:
            known.ended = time.monotonic()
            known.took, known.busy = known.ended - began, False


def _outcome(compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was computed, or that it cannot be; an error is named by its kind alone, for its text may hold anything."""
    try:
        return compute()
    except Exception as error:
        return {"damaged": f"this cannot be computed: {type(error).__name__}"}
