"""Progress displays of commands: sweeps, frontiers and federations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from click.exceptions import Exit
from rich.console import Console
from rich.progress import TaskID, TextColumn

from taciturn.cli.output import note, stderr
from taciturn.core.storage import format_bytes
from taciturn.errors import Interrupted
from taciturn.experiments.experiment_folder import ExperimentFolder
from taciturn.experiments.runner import ExperimentProgress
from taciturn.training_display import StudyDisplay, progress_bars, time_left

if TYPE_CHECKING:
    from taciturn.federation.coordinator_process import StudyLine

ROUND_LINE_SECONDS = 5.0  # between two lines about the rounds of a federation


class ExperimentDisplay(StudyDisplay):
    """A bar for all rounds of a sweep or frontier with the time left, and one for the current point."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "planning every point", progress_bars(console))
        self._whole: TaskID | None = None
        self._point: TaskID | None = None
        self._name = ""  # what the second bar shows

    def say(self, sentence: str) -> None:
        """Print a sentence before training starts."""
        self._status.stop()
        self._console.print(sentence, soft_wrap=True, highlight=False)

    def __call__(self, progress: ExperimentProgress) -> None:
        """Show a round."""
        study = progress.study
        if self._whole is None or self._point is None:
            self._start_bars()
            self._whole = self._bars.add_task("rounds of all points", total=progress.rounds, completed=progress.done)
            self._point = self._bars.add_task("")
        name = f"{progress.number}/{progress.points} {progress.name} {study.batch.algorithm}"
        if name != self._name:
            self._name = name
            self._bars.reset(self._point, total=study.rounds, completed=study.t, description=name)
        self._bars.update(self._whole, completed=progress.done)
        self._bars.update(self._point, completed=study.t)
        left = time_left(self._bars, self._whole)
        self._lines.print(f"{name}: round {study.t} of {study.rounds}{f', {left} of the whole' if left else ''}")

    def count(self, task: str, done: int, total: int) -> None:
        """Show what a point does before its first round."""
        if self._console.is_terminal and self._point is not None:
            self._name = ""  # the next round resets the bar
            self._bars.update(self._point, total=total, completed=done, description=task)
        else:
            super().count(task, done, total)


@contextmanager
def experiment_display(folder: ExperimentFolder) -> Iterator[ExperimentDisplay]:
    """Show the progress of an experiment on stderr; if it is stopped, say how to continue and exit with code 130."""
    try:
        with ExperimentDisplay(stderr) as display:
            yield display
    except (Interrupted, KeyboardInterrupt) as error:
        resume = f": continue with 'taciturn {folder.kind} --resume {folder.path}'"
        note(f"stopped{resume if folder.request_file.is_file() else ''}")
        raise Exit(130) from error


SUM_SENTENCES: Mapping[str, Callable[[StudyLine], str]] = {
    "epoch": lambda line: f"{len(line['sites'])} sites made keys for the next sums (epoch {line['epoch']})",
    "epoch lost": lambda line: f"keys for the next sums could not be made: {line['reason']}; trying again",
    "slot lost": lambda line: (
        f"the sum of round {line['round']} was not opened (slot {line['slot']}): {line['reason']}; its uploads stay "
        "charged, and the round is retried in another slot"
    ),
    "evaluated": lambda line: line["found"],
    "evaluation lost": lambda line: (
        f"the measures of the model after round {line['round']} were not opened (slot {line['slot']}): "
        f"{line['reason']}; they stay charged"
    ),
    "evaluation skipped": lambda line: f"the model after round {line['round']} is not evaluated: {line['reason']}",
}


class FederationDisplay:
    """Sentences about sites, and the rounds as a bar on a terminal or as lines in a log.

    Parameters
    ----------
    console : Console
        Where the bar goes, and the lines unless `say` is given.
    say : callable, optional
        Receives the lines.
    lines : bool
        Whether to print lines about rounds even on a terminal.
    """

    def __init__(self, console: Console, say: Callable[[str], None] = note, lines: bool = False) -> None:
        self.say, self._print_rounds = say, lines or not console.is_terminal
        self._bars = progress_bars(console, TextColumn("{task.fields[state]}"))
        self._task: TaskID | None = None
        self._round_time, self._bytes, self._last_line = "", 0, 0.0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bars.stop()

    def show(self, line: StudyLine) -> None:
        """Show a line of rounds.jsonl or sites.jsonl."""
        site, place = line.get("site"), f" in round {line['round']}" if line.get("round") else ""
        match line.get("event"):
            case None:
                self._show_round(line)
            case "round":
                self._round_time = f", {line['ms']:.0f} ms"
            case "ready":
                self.say(f"{site} takes part")
            case "missing":
                self.say(f"{site} did not answer{place}: continuing without it")
            case "refused" | "rejected" as event:
                self.say(f"{site} {event}{place}: {line['reason']}")
            case event if event in SUM_SENTENCES:
                self.say(SUM_SENTENCES[event](line))
            case "left out":
                self.say(f"{site} is left out of this study")
            case "waiting":
                self.say(f"{len(line['ready'])} sites are too few: {line['quorum']} must answer; waiting")
            case "closed" | "not closed" as event:
                self.say(f"{site} has {event} the study")

    def _show_round(self, line: StudyLine) -> None:
        t, rounds, now = line["round"], line["of"], time.monotonic()
        if self._task is None:
            self._task = self._bars.add_task("rounds", total=rounds, completed=t, state="")
        self._bytes += line["bytes_up"] + line["bytes_down"]
        answered, missing = len(line["answered"]), len(line["missing"])
        state = f"{answered} of {answered + missing} sites{self._round_time}, {format_bytes(self._bytes)}"
        self._bars.update(self._task, completed=t, state=state)
        if self._print_rounds and (now - self._last_line > ROUND_LINE_SECONDS or t == rounds):
            self._last_line = now
            left = time_left(self._bars, self._task)
            self.say(f"round {t} of {rounds}: {state}{f'; {left}' if left else ''}")
