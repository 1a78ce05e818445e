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
from tacit.results.files import write_text
from tacit.results.folder import LOCAL_ONLY
from tacit.settings.settings import FIELDS
from tacit.sweeps.grid import Grid, Point, make_grid
from tacit.version import VERSION
from tacit.views.tables import format_setting

FIRST_LINE = "# Written by tacit sweep: what was asked, complete. 'tacit sweep --resume FOLDER' goes on.\n"


@dataclass(frozen=True)
class SweepFolder:
    """A sweep on the disk."""

    path: Path

    @property
    def asked(self) -> Path:
        """The grid and every setting."""
        return self.path / "sweep.toml"

    @property
    def local(self) -> Path:
        """What is computed from private records without noise: for their owner alone."""
        return self.path / "local-only"

    def run(self, point: Point) -> Path:
        """The run folder of a point."""
        return self.path / "runs" / point.name

    def begin(self, grid: Grid, compare: Sequence[str]) -> None:
        """Write down what is asked; a folder that holds another sweep, or something else, is refused."""
        if self.asked.is_file():
            _check_same(self._read(), grid.document(), self.path)
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(f"{self.path} exists and is no sweep: choose another --out")
        (self.path / "runs").mkdir(parents=True, exist_ok=True)
        text = tomli_w.dumps({"tacit": VERSION, "compare": list(compare), **grid.document()})
        write_text(self.asked, FIRST_LINE + text)

    def read(self) -> tuple[Grid, tuple[str, ...]]:
        """What was asked: the grid, and the settings to compare by."""
        found = self._read()
        return make_grid({}, found["settings"], found["over"]), tuple(found["compare"])

    def place(self, private: bool) -> Path:
        """The folder for figures: local-only where they are private."""
        if private and not self.local.is_dir():
            self.local.mkdir()
            write_text(self.local / "README.txt", LOCAL_ONLY)
        return self.local if private else self.path

    def _read(self) -> dict[str, Any]:
        try:
            found = tomllib.loads(self.asked.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{self.path} is not a sweep: it has no sweep.toml") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.asked} is damaged: {error}") from None
        if not {"compare", "over", "settings"} <= found.keys():
            raise InputError(f"{self.asked} is damaged: it needs compare, over and settings")
        return found


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows under their names; nothing where there is none."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _check_same(there: Mapping[str, Any], asked: Mapping[str, Any], path: Path) -> None:
    names = dict.fromkeys([*there["over"], *asked["over"], *there["settings"], *asked["settings"]])
    for name in names:
        before, now = (_shown(document, name) for document in (there, asked))
        if before != now:
            flag = name.replace("_", "-")
            raise InputError(
                f"{path} holds another sweep: its {flag} is {before}, and now it is {now}; choose another --out"
            )


def _shown(document: Mapping[str, Any], name: str) -> str:
    """A setting's values in a sweep, as text; one that it does not name, for it was not there yet, is the default."""
    default = FIELDS[name].default if name in FIELDS else ""
    found = document["over"].get(name, document["settings"].get(name, default))
    return format_setting(list(found) if isinstance(found, tuple) else found) or "empty"
