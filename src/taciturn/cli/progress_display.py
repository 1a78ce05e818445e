"""Progress displays: bars on a terminal, a line now and then in a log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from click.exceptions import Exit
from rich.console import Console
from rich.errors import LiveError
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.status import Status

from taciturn.cli.output import stderr
from taciturn.experiments.grid_folder import SweepFolder
from taciturn.experiments.runner import SweepProgress
from taciturn.progress import subscribe
from taciturn.reporting.tables import format_bytes
from taciturn.training.loop import Interrupted
from taciturn.training.loop import Progress as TrainingProgress
from taciturn.types import Array

LINE_SECONDS = 10.0  # between two lines where there is no terminal


def progress_bars(console: Console, *more: ProgressColumn) -> Progress:
    """What is done, how much of it, `more`, and the time it takes; nothing where there is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *more,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


SHOW_AFTER = 2.0  # seconds: what is done sooner is not worth a word


class StatusLine:
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
        self.told = StatusLine(console, self._loading)  # for whoever lets it listen

    def __call__(self, progress: TrainingProgress) -> None:
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
        self._told = StatusLine(console, self._planning)

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
        with subscribe(watcher.told):
            yield watcher
    except (Interrupted, KeyboardInterrupt):
        watcher.close()
        place = f": continue with 'taciturn {folder.kind} --resume {folder.path}'" if folder.asked.is_file() else ""
        stderr.print(f"stopped{place}", soft_wrap=True, highlight=False)
        raise Exit(130) from None
    finally:
        watcher.close()


ROUND_LINE_SECONDS = 5.0  # between two lines where there is no terminal


class FederationWatch:
    """Lines about sites, and a bar of rounds on a terminal or a line now and then in a log.

    Sentences go to `say` where it is given; `lines` asks for lines of rounds on a terminal, too.
    """

    def __init__(self, console: Console, say: Callable[[str], None] | None = None, lines: bool = False) -> None:
        self._console, self._say = console, say
        self._lines = lines or not console.is_terminal
        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"))
        self._bars = Progress(*columns, "left", TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self._task: TaskID | None = None
        self._took = ""
        self._bytes, self._spoke, self._first, self._began = 0, 0.0, 0, time.monotonic()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def say(self, sentence: str) -> None:
        """One line."""
        if self._say is not None:
            self._say(sentence)
            return
        self._console.print(sentence, soft_wrap=True, highlight=False, markup=False)

    def line(self, line: dict[str, Any]) -> None:
        """A line of rounds.jsonl or sites.jsonl."""
        if "event" not in line:
            self._round(line)
            return
        rounds = f" in round {line['round']}" if line.get("round") else ""
        match line["event"]:
            case "round":
                self._took = f", {line['ms']:.0f} ms"
            case "ready":
                self.say(f"{line['site']} takes part")
            case "missing":
                self.say(f"{line['site']} did not answer{rounds}: going on without it")
            case "refused" | "rejected":
                self.say(f"{line['site']} {line['event']}{rounds}: {line['reason']}")
            case "left out":
                self.say(f"{line['site']} is left out of this study")
            case "waiting":
                self.say(f"{len(line['ready'])} sites are too few: {line['quorum']} must answer; waiting")
            case "closed" | "not closed":
                self.say(f"{line['site']} has {'' if line['event'] == 'closed' else 'not '}closed its books")
            case "job ended":
                self.say(f"the engine ended the job ({line['status']}): going on from the last round")

    def total(self, rounds: int) -> None:
        """How many rounds there will be."""
        if self._task is None:
            self._task = self._bars.add_task("rounds", total=rounds, said="")

    def _round(self, line: dict[str, Any]) -> None:
        self.total(line["of"])
        if not self._first:
            self._first, self._began = line["round"], time.monotonic()
        self._bytes += line["bytes_up"] + line["bytes_down"]
        said = f"{len(line['answered'])} of {len(line['answered']) + len(line['missing'])} sites"
        said += f"{self._took}, {format_bytes(self._bytes)}"
        if self._task is not None:
            self._bars.update(self._task, completed=line["round"], said=said)
        if self._lines and (time.monotonic() - self._spoke > ROUND_LINE_SECONDS or line["round"] == line["of"]):
            self._spoke = time.monotonic()
            done = line["round"] - self._first
            left = (time.monotonic() - self._began) / done * (line["of"] - line["round"]) if done else None
            wait = "" if left is None else f"; about {left:.0f} s left"
            self.say(f"round {line['round']} of {line['of']}: {said}{wait}")
