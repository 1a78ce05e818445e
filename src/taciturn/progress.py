"""Progress reporting: long-running code calls `report()`; front ends subscribe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Listener: TypeAlias = Callable[[str, int, int], None]  # what is done, how much of it, and how much there is

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def report_progress(what: str, done: int, total: int) -> None:
    """So much is done; nobody need listen."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


@contextmanager
def subscribe(listener: Listener) -> Iterator[None]:
    """Hear of everything that is told meanwhile."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
