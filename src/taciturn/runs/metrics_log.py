"""Files of JSON lines that grow while they are read: each look parses only what was added since the last one."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn.errors import InputError
from taciturn.runs.folder import RunFolder
from taciturn.runs.records import RunLabel
from taciturn.types import Array

METRICS = ("test_error", "train_objective", "consensus_residual", "noise")
REMEMBERED = 256  # bytes before the place reached, by which a file that was cut and grew again is told


@dataclass
class JsonlTail:
    """A file, and how far it was read."""

    path: Path
    place: int = 0  # bytes
    lines: int = 0
    before: bytes = b""  # the last bytes that were read

    def more(self) -> tuple[list[dict[str, Any]], bool]:
        """The rows added since the last look, and whether the file began anew, so that they are all there are.

        A last line that is still being written is left for the next look.
        """
        with self.path.open("rb") as file:
            file.seek(self.place - len(self.before))
            same = os.fstat(file.fileno()).st_size >= self.place and file.read(len(self.before)) == self.before
            if not same:
                file.seek(0)
                self.place, self.lines, self.before = 0, 0, b""
            content = file.read()
        content = content[: content.rfind(b"\n") + 1]
        rows = self._parsed(content)
        self.place += len(content)
        self.lines += len(rows)
        self.before = (self.before + content)[-REMEMBERED:]
        return rows, not same

    def _parsed(self, content: bytes) -> list[dict[str, Any]]:
        """All rows at once, in half the time of one after the other; one by one where that fails, to name the line."""
        lines = content.splitlines()
        try:
            rows: list[dict[str, Any]] = json.loads(b"[" + b",".join(lines) + b"]")
            if len(rows) == len(lines) and set(map(type, rows)) <= {dict}:
                return rows
        except ValueError:
            pass
        for number, line in enumerate(lines, self.lines + 1):
            try:
                json.loads(line)["run"]
            except (ValueError, TypeError, KeyError):
                raise InputError(f"line {number} of {self.path} is damaged") from None
        raise InputError(f"{self.path} is damaged: its lines do not hold one row each")


class Series(NamedTuple):
    """One metric of one run."""

    rounds: Array  # [n]
    values: Array  # [n]


@dataclass
class MetricColumns:
    """A file of metrics as columns: for each run its rounds, and the value of every metric in them."""

    file: JsonlTail
    labels: dict[int, RunLabel] = field(default_factory=dict)
    values: dict[int, dict[str, array[float]]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Take in what was added."""
        rows, anew = self.file.more()
        if anew:
            self.labels.clear()
            self.values.clear()
        by_run: dict[int, list[dict[str, Any]]] = {}
        try:
            for row in rows:
                by_run.setdefault(row["run"], []).append(row)
            for run, mine in by_run.items():
                self._take(run, mine)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.file.path} is damaged: a line does not have what a row of metrics has: {error}"
            ) from None

    def _take(self, run: int, rows: Sequence[Mapping[str, Any]]) -> None:
        if run not in self.values:
            self.values[run] = {name: array("d") for name in ("round", *METRICS)}
            if "algorithm" in rows[0]:
                self.labels[run] = RunLabel.from_json(rows[0], self.file.path)
        found = {name: np.array([row.get(name) for row in rows], float) for name in METRICS}  # None becomes nan
        found["round"] = np.array([row["round"] for row in rows], float)
        for name, values in found.items():
            self.values[run][name].frombytes(values.tobytes())

    def series(self, run: int, metric: str) -> Series | None:
        """The values that are there and finite; None where there are none."""
        columns = self.values.get(run)
        if columns is None:
            return None
        rounds, values = np.array(columns["round"]), np.array(columns[metric])
        there = np.isfinite(values)
        return Series(rounds[there], values[there]) if there.any() else None


@dataclass
class MetricsLog:
    """The metrics of a run folder, in public and local-only, kept up to date."""

    public: MetricColumns
    local: MetricColumns | None

    @classmethod
    def of(cls, folder: RunFolder, local: bool) -> MetricsLog:
        """Those of a folder; with what is local-only where that may be shown."""
        kept = folder.local_metrics if local and folder.has_local else None
        return cls(MetricColumns(JsonlTail(folder.metrics)), MetricColumns(JsonlTail(kept)) if kept else None)

    def refresh(self) -> None:
        """Take in what was added."""
        self.public.refresh()
        if self.local:
            self.local.refresh()

    def series(self, run: int, metric: str) -> tuple[Series | None, bool]:
        """The values anybody may see, or else those that are the owner's alone, and which of the two they are."""
        found = self.public.series(run, metric)
        if found is None and self.local:
            kept = self.local.series(run, metric)
            return kept, kept is not None
        return found, False
