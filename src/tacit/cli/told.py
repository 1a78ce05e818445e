"""What takes long deep inside, as it is told: words that change on a terminal, a line now and then in a log."""

from __future__ import annotations

import time

from rich.console import Console
from rich.errors import LiveError
from rich.status import Status

from tacit.cli.bars import LINE_SECONDS

SHOW_AFTER = 2.0  # seconds: what is done sooner is not worth a word


class Told:
    """Listens; `status` is what a command shows already, else one is shown as long as there is something to tell."""

    def __init__(self, console: Console, status: Status | None = None) -> None:
        self._console, self._shared = console, status is not None
        self._status = status or console.status("")
        self._what, self._done, self._began, self._spoke = "", 0, 0.0, 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        """So much of it is done."""
        now, text = time.monotonic(), f"{what}: {done:,} of {total:,} records"
        if what != self._what or done <= self._done:  # something new
            self._began, self._spoke = now, now - LINE_SECONDS
        self._what, self._done = what, done
        if now - self._began < SHOW_AFTER:
            return
        if self._console.is_terminal:
            self._show(text, done < total)
        elif now - self._spoke >= LINE_SECONDS and done < total:
            self._spoke = now
            self._console.print(text, soft_wrap=True, highlight=False)

    def _show(self, text: str, goes_on: bool) -> None:
        self._status.update(text)
        try:
            self._status.start()
        except LiveError:  # something else is shown already
            return
        if not goes_on and not self._shared:
            self._status.stop()
