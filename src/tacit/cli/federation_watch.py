"""A federated study as its coordinator sees it: rounds, who answered, time left, bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tacit.views.tables import format_bytes

LINE_SECONDS = 5.0  # between two lines where there is no terminal


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
        if self._lines and (time.monotonic() - self._spoke > LINE_SECONDS or line["round"] == line["of"]):
            self._spoke = time.monotonic()
            done = line["round"] - self._first
            left = (time.monotonic() - self._began) / done * (line["of"] - line["round"]) if done else None
            wait = "" if left is None else f"; about {left:.0f} s left"
            self.say(f"round {line['round']} of {line['of']}: {said}{wait}")
