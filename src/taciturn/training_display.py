"""The progress of a study on a terminal or in a notebook, or as an occasional line in a log."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.errors import LiveError
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.status import Status
from rich.text import Text

from taciturn.progress import REPORT, subscribe
from taciturn.training.loop import TrainingProgress
from taciturn.types import Array

LINE_SECONDS = 10.0  # between two lines in a log
SHOW_AFTER = 2.0  # seconds: what finishes sooner is not shown
MAX_BUDGETS = 3  # whose errors fit beside a bar


class OwnersNotes(logging.Handler):
    """Prints what the owner of the records should read on stderr, unless the program has logging of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        if not logging.getLogger().handlers:
            print(f"note: {record.getMessage()}", file=sys.stderr)


class TimeLeftColumn(ProgressColumn):
    """The time that is left, in words."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """Return the words for a bar."""
        return Text(_left_in_words(task.time_remaining), style="progress.remaining")


def progress_bars(console: Console, *columns: ProgressColumn) -> Progress:
    """Return bars with a description, a count, `columns` and the time; they are visible on a terminal only."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        TimeElapsedColumn(),
        TimeLeftColumn(),
        console=console,
        disable=not console.is_terminal,
    )


class LogLines:
    """Prints lines where there is no terminal, at most one every few seconds.

    Parameters
    ----------
    console : Console
        Where lines go.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._last = console, time.monotonic()

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the last line, and the console is not a terminal."""
        return not self._console.is_terminal and time.monotonic() - self._last > LINE_SECONDS

    def print(self, text: str) -> None:
        """Print a line if one is due."""
        if self.due:
            self._last = time.monotonic()
            self._console.print(text, soft_wrap=True, highlight=False)


class StatusLine:
    """Shows counted work that takes longer than a moment; a listener for `taciturn.progress.subscribe`.

    Parameters
    ----------
    console : Console
        Where to show it.
    status : Status, optional
        A status that the command shows already; by default the line has its own while work is going on.
    unit : str
        What is counted.
    """

    def __init__(self, console: Console, status: Status | None = None, unit: str = "records") -> None:
        self._console, self._shared, self._unit = console, status is not None, unit
        self._status = status or console.status("")
        self._task, self._done, self._start, self._last_line = "", 0, 0.0, 0.0

    def __call__(self, task: str, done: int, total: int) -> None:
        """Show that `done` of `total` units are done."""
        now, text = time.monotonic(), f"{task}: {done:,} of {total:,} {self._unit}"
        if task != self._task or done <= self._done:  # new work
            self._start, self._last_line = now, now - LINE_SECONDS
        self._task, self._done = task, done
        if now - self._start < SHOW_AFTER:
            return
        if self._console.is_terminal:
            self._show(text, done < total)
        elif now - self._last_line >= LINE_SECONDS and done < total:
            self._last_line = now
            self._console.print(text, soft_wrap=True, highlight=False)

    def close(self) -> None:
        """Remove the line from the terminal."""
        self._status.stop()

    def _show(self, text: str, unfinished: bool) -> None:
        self._status.update(text)
        try:
            self._status.start()
        except LiveError:  # another display is active
            return
        if not unfinished and not self._shared:
            self._status.stop()


class StudyDisplay:
    """A status until the first round, then bars; a context manager that also shows reported progress."""

    def __init__(self, console: Console, status: str, bars: Progress) -> None:
        self._console, self._bars = console, bars
        self._lines = LogLines(console)
        self._status = console.status(status)
        self._status.start()
        self._counts = StatusLine(console, self._status)
        self._subscription: AbstractContextManager[None] = subscribe(self.count)

    def __enter__(self) -> Self:
        self._subscription.__enter__()
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._subscription.__exit__(None, None, None)
        self.close()

    def count(self, task: str, done: int, total: int) -> None:
        """Show work before the first round, such as reading records."""
        self._counts(task, done, total)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._status.stop()
        self._bars.stop()

    def _start_bars(self) -> None:
        self._status.stop()
        self._bars.start()


def time_left(bars: Progress, task: TaskID) -> str:
    return _left_in_words(bars.tasks[task].time_remaining)


def _left_in_words(seconds: float | None) -> str:
    """Return a time that is left in words; empty if it is not known, or over.

    >>> _left_in_words(20.2), _left_in_words(600), _left_in_words(86_400), _left_in_words(None)
    ('20 s left', '10 min left', '24 h left', '')
    """
    if not seconds:
        return ""
    unit, name = next(
        (unit, name) for unit, name in ((3600, "h"), (60, "min"), (1, "s")) if seconds > 3 * unit or unit == 1
    )
    return f"{seconds / unit:.0f} {name} left"


class TrainingDisplay(StudyDisplay):
    """A status while the data loads, then a bar for each algorithm with the test errors of its runs."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "loading data", progress_bars(console, TextColumn("{task.fields[errors]}")))
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: TrainingProgress) -> None:
        """Show a round of a study."""
        batch = progress.batch
        self.show(batch.algorithm, progress.t, progress.rounds, batch.budgets, progress.test_error, progress.classes)

    def count(self, task: str, done: int, total: int) -> None:
        """Show work before the first round; and, instead of full bars, that the report is being written."""
        if task != REPORT:
            super().count(task, done, total)
        elif self._tasks and self._console.is_terminal:
            self._bars.stop()
            self._status.update(task)
            self._status.start()

    def show(
        self,
        name: str,
        t: int,
        rounds: int,
        budgets: Sequence[float],
        errors: Array | None,
        classes: bool = True,
    ) -> None:
        """Show a round of the runs called `name`.

        Parameters
        ----------
        name : str
            The algorithm, or another name for the bar.
        t, rounds : int
            The current round and the number of rounds.
        budgets : sequence of float
            Epsilon of each run.
        errors : array [R] or None
            The latest test error of each run.
        classes : bool
            Whether the errors are shares of records.
        """
        text = _format_errors(budgets, errors, classes)
        self._update(name, t, rounds, text)
        if self._lines.due:
            left = self._left(name)
            self._lines.print(f"{name}: round {t} of {rounds}  {text}{f'  {left}' if left else ''}")

    def _left(self, name: str) -> str:
        return time_left(self._bars, self._tasks[name])

    def _update(self, name: str, done: int, total: int, errors: str) -> None:
        if not self._tasks:
            self._start_bars()
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total, completed=done, errors=errors)
        self._bars.update(self._tasks[name], completed=done, errors=errors)


def _format_errors(budgets: Sequence[float], errors: Array | None, classes: bool) -> str:
    """Return the mean test error of every epsilon, or the lowest and highest of them where there are many."""
    if errors is None or any(map(math.isnan, errors)):  # there is no test set
        return ""
    groups: dict[float, list[float]] = {}
    for budget, error in zip(budgets, errors, strict=True):
        groups.setdefault(budget, []).append(error)
    means = {budget: sum(group) / len(group) for budget, group in groups.items()}
    shown = {budget: f"{100 * mean:.1f} %" if classes else f"{mean:.4g}" for budget, mean in means.items()}
    if len(means) > MAX_BUDGETS:
        return f"test error  {shown[min(means, key=means.__getitem__)]} to {shown[max(means, key=means.__getitem__)]}"
    names = {budget: f"ε {budget:g}" if math.isfinite(budget) else "no noise" for budget in means}
    return "test error  " + "  ".join(f"{names[budget]}: {error}" for budget, error in shown.items())
