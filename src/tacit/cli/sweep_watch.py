"""How far a sweep is: two bars on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from click.exceptions import Exit
from rich.console import Console
from rich.progress import TaskID

from tacit import study
from tacit.cli.bars import LINE_SECONDS, progress_bars
from tacit.cli.output import stderr
from tacit.cli.told import Told
from tacit.sweeps.folder import SweepFolder
from tacit.sweeps.work import SweepProgress
from tacit.telling import listening


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
        self._told = Told(console, self._planning)

    def say(self, sentence: str) -> None:
        """Something to know before it begins."""
        self._planning.stop()
        self._console.print(sentence, soft_wrap=True, highlight=False)

    def __call__(self, progress: SweepProgress) -> None:
        """Take note of a round."""
        p, study = progress, progress.study
        if self._whole is None or self._point is None:
            self._planning.stop()
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

    def told(self, what: str, done: int, total: int) -> None:
        """Take note of what a point does before its first round."""
        if self._console.is_terminal and self._point is not None:
            self._name = ""  # the bar is its own again with the next round
            self._bars.update(self._point, total=total, completed=done, description=what)
        else:
            self._told(what, done, total)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._planning.stop()
        self._bars.stop()


@contextmanager
def at_work(folder: SweepFolder) -> Iterator[SweepWatcher]:
    """Progress on stderr; who stops is told how to go on."""
    watcher = SweepWatcher(stderr)
    try:
        with listening(watcher.told):
            yield watcher
    except (study.Interrupted, KeyboardInterrupt):
        watcher.close()
        place = f": continue with 'tacit {folder.kind} --resume {folder.path}'" if folder.asked.is_file() else ""
        stderr.print(f"stopped{place}", soft_wrap=True, highlight=False)
        raise Exit(130) from None
    finally:
        watcher.close()
