"""Progress reporting: long-running code calls `report()`; front ends subscribe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Listener: TypeAlias = Callable[[str, int, int], None]  # what is done, how much of it, and how much there is

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def report_progress(what: str, done: int, total: int) -> None:
    """Report progress to the subscribed front end, if there is one.

    Parameters
    ----------
    what : str
        The work in progress, for people.
    done, total : int
        Units of work done so far, and in all.

    >>> with subscribe(lambda what, done, total: print(what, done, total)):
    ...     report_progress("reading records", 1, 4)
    reading records 1 4
    """
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


@contextmanager
def subscribe(listener: Listener) -> Iterator[None]:
    """Send all progress reports made within the block to a listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
