"""How far a sweep is: two bars on a terminal, a line now and then in a log."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import TaskID

from tacit.cli.bars import LINE_SECONDS, progress_bars
from tacit.sweeps.work import SweepProgress


class SweepWatcher:
    """A bar for all rounds of the sweep with the time left, and one for the point at work."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = progress_bars(console)
        self._whole: TaskID | None = None
        self._point: TaskID | None = None
        self._name = ""  # of what the second bar shows
        self._spoke = time.monotonic()
        self._planning = console.status("planning every point")
        self._planning.start()

    def say(self, sentence: str) -> None:
        """Something to know before it begins."""
        self._planning.stop()
        self._console.print(sentence, soft_wrap=True, highlight=False)

    def __call__(self, progress: SweepProgress) -> None:
        """Take note of a round."""
        p, study = progress, progress.study
        if self._whole is None or self._point is None:
            self._bars.start()
            self._whole = self._bars.add_task("rounds of all points", total=p.rounds, completed=p.done)
            self._point = self._bars.add_task("")
        name = f"{p.number}/{p.points} {p.name} {study.batch.algorithm}"
        if name != self._name:
            self._name = name
            self._bars.reset(self._point, total=study.rounds, completed=study.t, description=name)
        self._bars.update(self._whole, completed=p.done)
        self._bars.update(self._point, completed=study.t)
        if not self._console.is_terminal and time.monotonic() - self._spoke > LINE_SECONDS:
            self._spoke = time.monotonic()
            left = self._bars.tasks[self._whole].time_remaining
            wait = "" if left is None else f", {left:.0f} s left of the whole"
            self.say(f"{name}: round {study.t} of {study.rounds}{wait}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._planning.stop()
        self._bars.stop()
