"""Progress reporting: long-running code calls `report()`; front ends subscribe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Listener: TypeAlias = Callable[[str, int, int], None]  # what is done, how much of it, and the total

REPORT = "writing the report"  # what is done after the last round

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def report_progress(what: str, done: int, total: int) -> None:
    """Report progress to the subscribed listener, if there is one.

    Parameters
    ----------
    what
        What is being done, in a few words.
    done, total
        How much is done, and how much there is to do.
    """
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


@contextmanager
def subscribe(listener: Listener) -> Iterator[None]:
    """Call `listener` for every progress report within the block.

    >>> with subscribe(lambda what, done, total: print(f"{what}: {done} of {total}")):
    ...     report_progress("reading", 1, 2)
    reading: 1 of 2
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
