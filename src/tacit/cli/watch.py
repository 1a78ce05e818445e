"""How far training is: bars on a terminal, a line now and then in a log."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import TaskID, TextColumn

from tacit import study
from tacit.cli.bars import LINE_SECONDS, progress_bars
from tacit.cli.told import Told
from tacit.types import Array

WHOLE = "whole"
FEW = 3  # budgets whose errors fit beside a bar


class Watcher:
    """Something to look at while the data loads, then a bar for each algorithm with the test error of its runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = progress_bars(console, TextColumn("{task.fields[errors]}"))
        self._tasks: dict[str, TaskID] = {}
        self._spoke = time.monotonic()
        self._loading = console.status("loading data")
        self._loading.start()
        self.told = Told(console, self._loading)  # for whoever lets it listen

    def __call__(self, progress: study.Progress) -> None:
        """Take note of a round of a study."""
        batch = progress.batch
        self.show(batch.algorithm, progress.t, progress.rounds, batch.budgets, progress.test_error)

    def show_whole(self, done: int, total: int) -> None:
        """Take note of how far everything together is; its time left goes into the lines of a log too."""
        if WHOLE not in self._tasks:
            self._loading.stop()
            self._bars.start()
            self._tasks[WHOLE] = self._bars.add_task(WHOLE, total=total, completed=done, errors="")
        self._bars.update(self._tasks[WHOLE], completed=done)

    def show(self, name: str, t: int, rounds: int, budgets: Sequence[float], errors: Array | None) -> None:
        """Take note of a round of the runs called `name`, with their budgets and last test errors [R]."""
        said = _errors(budgets, errors)
        if not self._tasks:
            self._loading.stop()
            self._bars.start()
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=rounds, errors=said)
        self._bars.update(self._tasks[name], completed=t, errors=said)
        if not self._console.is_terminal and time.monotonic() - self._spoke > LINE_SECONDS:
            self._spoke = time.monotonic()
            left = self._bars.tasks[self._tasks.get(WHOLE, self._tasks[name])].time_remaining
            wait = "" if left is None else f"  {left:.0f} s left" + (" of the whole" if WHOLE in self._tasks else "")
            self._console.print(f"{name}: round {t} of {rounds}  {said}{wait}", soft_wrap=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._loading.stop()
        self._bars.stop()


def _errors(budgets: Sequence[float], errors: Array | None) -> str:
    """The mean test error of every epsilon; where there are many, the lowest and the highest."""
    if errors is None or any(map(math.isnan, errors)):  # there is no test set
        return ""
    means = []
    for budget in dict.fromkeys(budgets):
        mine = [error for error, other in zip(errors, budgets, strict=True) if other == budget]
        means.append((budget, sum(mine) / len(mine)))
    if len(means) > FEW:
        low, high = (pick(mean for _, mean in means) for pick in (min, max))
        return f"test error  {low:.4g} to {high:.4g}"
    return "test error  " + "  ".join(f"ε {budget:g}: {mean:.4g}" for budget, mean in means)
