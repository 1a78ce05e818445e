"""Graceful interruption: the first Ctrl-C or SIGTERM requests a stop, the second one stops at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Handle SIGINT and SIGTERM within the block.

    Parameters
    ----------
    say
        Receives one sentence for the user when the first signal arrives.

    Yields
    ------
    Callable[[], bool]
        A function that returns whether a stop was requested.

    Raises
    ------
    KeyboardInterrupt
        When a second signal arrives.
    """
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        say("stopping after this round (press Ctrl-C again to stop at once)")

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
