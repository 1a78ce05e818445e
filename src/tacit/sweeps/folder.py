"""The sweep folder: what was asked, the run folders, and the figures made of them."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from tacit.errors import InputError
from tacit.results.files import make_folder, write_text
from tacit.results.folder import LOCAL_ONLY, PARTITION_KEY, read_key
from tacit.settings.settings import FIELDS
from tacit.study.certified import drawn_key
from tacit.sweeps.grid import Grid, Point, make_grid
from tacit.version import VERSION
from tacit.views.tables import format_setting

FIRST_LINE = "# Written by tacit {kind}: what was asked, complete. 'tacit {kind} --resume FOLDER' goes on.\n"


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

    def run(self, point: Point) -> Path:
        """The run folder of a point."""
        return self.path / "runs" / point.name

    def begin(self, grid: Grid, more: Mapping[str, Any]) -> None:
        """Write down what is asked, and more; a folder that holds another sweep, or something else, is refused."""
        if self.asked.is_file():
            self._check_same(grid.document())
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(f"{self.path} exists and is no {self.kind}: choose another --out")
        (self.path / "runs").mkdir(parents=True, exist_ok=True)
        text = tomli_w.dumps({"tacit": VERSION, **more, **grid.document()})
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
