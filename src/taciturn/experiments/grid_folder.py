"""The folder of a sweep or frontier: what was asked, its run folders, and their results as rows."""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli_w

from taciturn.core.storage import make_folder, write_text
from taciturn.errors import InputError
from taciturn.experiments.grid import Grid, GridPoint, make_grid
from taciturn.planning.plan import drawn_key
from taciturn.reporting.side_by_side import predicts_numbers
from taciturn.reporting.tables import format_setting
from taciturn.runs.folder import LOCAL_ONLY, PARTITION_KEY, RunFolder, read_key
from taciturn.settings.settings import FIELDS
from taciturn.version import VERSION

MEASURES = (
    "rounds",
    "test_error",
    "train_objective",
    "consensus_residual",
    "noise",
    "seconds",
    "bytes_up",
    "bytes_down",
)


def rows_of(point: GridPoint, folder: RunFolder, local: bool) -> list[dict[str, Any]]:
    """One row for each run: its settings, seed and measures; not local: those that anybody may see."""
    summary = folder.read_summary(local)
    spent = {run["run"]: run["spent_epsilon"] for run in summary["privacy"]["runs"]}
    rows = [
        {
            "point": point.name,
            "run": index,
            **point.values,
            "algorithm": entry["algorithm"],
            "epsilon": float(entry["epsilon"]),
            "seed": entry.get("seed"),  # hardened noise has none
            **{name: entry[name] for name in MEASURES},
            "spent_epsilon": float(spent.get(index, math.inf)),
        }
        for index, entry in enumerate(summary["runs"])
    ]
    if local and any(row["test_error"] is None for row in rows):
        raise InputError(f"{folder.path} has no test errors to compare: is its local-only folder gone?")
    return rows


def private_test(folder: RunFolder) -> bool:
    """Whether the test error comes from private records, and is the owner's alone."""
    return any(_private(entry) for entry in folder.read_summary(local=False)["runs"])


def _private(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("private_test"))


FIRST_LINE = "# Written by taciturn {kind}: what was asked, complete. 'taciturn {kind} --resume FOLDER' goes on.\n"


@dataclass(frozen=True)
class SweepFolder:
    """A sweep on the disk, or what else trains at the points of a grid."""

    path: Path
    kind: str = "sweep"  # the command that it is of

    @property
    def asked(self) -> Path:
        """The grid and every setting."""
        return self.path / f"{self.kind}.toml"

    @property
    def local(self) -> Path:
        """What is computed from private records without noise: for their owner alone."""
        return self.path / "local-only"

    def run(self, point: GridPoint) -> Path:
        """The run folder of a point."""
        return self.path / "runs" / point.name

    def begin(self, grid: Grid, more: Mapping[str, Any]) -> None:
        """Write down what is asked, and more; a folder that holds another sweep, or something else, is refused."""
        if self.asked.is_file():
            self._check_same(grid.document())
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(f"{self.path} exists and is no {self.kind}: choose another --out")
        (self.path / "runs").mkdir(parents=True, exist_ok=True)
        text = tomli_w.dumps({"taciturn": VERSION, **more, **grid.document()})
        write_text(self.asked, FIRST_LINE.format(kind=self.kind) + text)

    def read(self) -> tuple[Grid, tuple[str, ...]]:
        """What was asked of a sweep: the grid, and the settings to compare by."""
        found = self.document("compare")
        return make_grid({}, found["settings"], found["over"]), tuple(found["compare"])

    def place(self, private: bool) -> Path:
        """The folder for figures: local-only where they are private."""
        if private and not self.local.is_dir():
            make_folder(self.local)
            write_text(self.local / "README.txt", LOCAL_ONLY)
        return self.local if private else self.path

    def key(self, grid: Grid) -> int | None:
        """The key by which all points deal the same private records out, kept in local-only; None: each has its own.

        Points are compared on the same held-out records, so the first call draws a key for all of them.
        """
        private = [point.settings for point in grid.points if point.settings.private]
        if not private or "partition_key" in grid.over:
            return None
        given, kept = private[0].partition_key, read_key(self.local)
        if kept is None:
            kept = drawn_key(private[0])
            write_text(self.place(private=True) / PARTITION_KEY, f"{kept}\n")
        elif given not in ("auto", kept):
            raise InputError(f"{self.local / PARTITION_KEY} has another key than partition-key: choose another --out")
        return kept

    def document(self, *more: str) -> dict[str, Any]:
        """What was asked, as it is written down: `over`, `settings` and more."""
        try:
            found = tomllib.loads(self.asked.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{self.path} is not a {self.kind}: it has no {self.asked.name}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.asked} is damaged: {error}") from None
        if not {*more, "over", "settings"} <= found.keys():
            raise InputError(f"{self.asked} is damaged: it needs {', '.join([*more, 'over'])} and settings")
        return found

    def _check_same(self, asked: Mapping[str, Any]) -> None:
        there = self.document()
        names = dict.fromkeys([*there["over"], *asked["over"], *there["settings"], *asked["settings"]])
        for name in names:
            before, now = (_shown(document, name) for document in (there, asked))
            if before != now:
                words = f"its {name.replace('_', '-')} is {before}, and now it is {now}"
                raise InputError(f"{self.path} holds another {self.kind}: {words}; choose another --out")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows under their names; nothing where there is none."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _shown(document: Mapping[str, Any], name: str) -> str:
    """A setting's values in a sweep, as text; one that it does not name, for it was not there yet, is the default."""
    default = FIELDS[name].default if name in FIELDS else ""
    found = document["over"].get(name, document["settings"].get(name, default))
    return format_setting(list(found) if isinstance(found, tuple) else found) or "empty"


@dataclass(frozen=True)
class Ended:
    """What a sweep and a frontier know of their runs alike."""

    folder: SweepFolder
    grid: Grid

    @property
    def path(self) -> Path:
        """The folder of all of it."""
        return self.folder.path

    @cached_property
    def regression(self) -> bool:
        """Whether the runs predict numbers rather than classes."""
        return bool(self.ended) and predicts_numbers([folder for _, folder in self.ended])

    @cached_property
    def private(self) -> bool:
        """Whether test errors are computed from private records, and are for their owner alone."""
        return any(private_test(folder) for _, folder in self.ended)

    @cached_property
    def ended(self) -> list[tuple[GridPoint, RunFolder]]:
        """The points whose runs came to an end, with their folders."""
        found = [(point, RunFolder(self.folder.run(point))) for point in self.grid.points]
        return [(point, folder) for point, folder in found if folder.finished]
