"""The folder of a sweep or frontier: its request, its run folders, and what its results have in common."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import tomli_w

from taciturn.core.storage import LOCAL_FOLDER, write_text
from taciturn.errors import CorruptFile, InputError
from taciturn.experiments.cost import GridCost
from taciturn.experiments.grid import Grid, GridPoint, GridRequest
from taciturn.planning.plan import drawn_key
from taciturn.reporting.side_by_side import predicts_numbers
from taciturn.reporting.tables import format_setting
from taciturn.runs.folder import PARTITION_KEY, RunFolder, make_local_folder, read_key
from taciturn.settings.rules import flag_name
from taciturn.settings.settings import FIELDS
from taciturn.version import VERSION

FIRST_LINE = "# Written by taciturn {kind}: every setting. 'taciturn {kind} --resume FOLDER' continues it.\n"
OWNERS_ONLY = (
    "**For the owner of the records only.** These test errors are computed from private records without noise. "
    "This file must not leave your organisation."
)
IN_LOCAL_ONLY = (
    "Test errors, means and comparisons are computed from private records without noise. They are for the owner of the "
    "records only and are in the folder `local-only`."
)


@dataclass(frozen=True)
class ExperimentFolder:
    """A sweep or frontier on disk.

    Parameters
    ----------
    path : Path
        The folder.
    kind : str
        The command that it belongs to, "sweep" or "frontier".
    """

    path: Path
    kind: str

    @property
    def request_file(self) -> Path:
        """TOML file with the grid and every setting."""
        return self.path / f"{self.kind}.toml"

    @property
    def local(self) -> Path:
        """Folder for what is computed from private records without noise."""
        return self.path / LOCAL_FOLDER

    def run_path(self, point: GridPoint) -> Path:
        """Return the run folder of a point."""
        return self.path / "runs" / point.name

    def create(self, grid: Grid, compare: Sequence[str]) -> None:
        """Create the folder, or check that it holds the same grid, and write the request.

        Raises
        ------
        InputError
            If the path holds another experiment or something else.
        """
        if self.request_file.is_file():
            self._check_same(grid.request())
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(f"{self.path} exists and is not a {self.kind}; choose another --out")
        (self.path / "runs").mkdir(parents=True, exist_ok=True)
        compared = {"compare": list(compare)} if self.kind == "sweep" else {}
        text = tomli_w.dumps({"taciturn": VERSION, **compared, **grid.request()})
        write_text(self.request_file, FIRST_LINE.format(kind=self.kind) + text)

    def read_request(self) -> GridRequest:
        """Return the request as it is in the TOML file: `over`, `settings` and, of a sweep, `compare`."""
        try:
            found = tomllib.loads(self.request_file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise InputError(f"{self.path} is not a {self.kind}: it has no {self.request_file.name}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CorruptFile(f"{self.request_file} is damaged: {error}") from error
        needed = {"over", "settings"} | ({"compare"} if self.kind == "sweep" else set())
        if not needed <= found.keys():
            raise CorruptFile(f"{self.request_file} is damaged: it has no {', '.join(sorted(needed - found.keys()))}")
        return cast(GridRequest, found)

    def results_folder(self, private: bool) -> Path:
        """Return the folder for tables and figures: local-only, created if needed, where they are private."""
        return make_local_folder(self.local) if private else self.path

    def shared_partition_key(self, grid: Grid) -> int | None:
        """Return the key by which all points partition private records, or None if each point has its own.

        Points are compared on the same held-out records, so the first call draws a key and keeps it in local-only.
        """
        private = [point.settings for point in grid.points if point.settings.private]
        if not private or "partition_key" in grid.over:
            return None
        given, kept = private[0].partition_key, read_key(self.local)
        if kept is None:
            kept = drawn_key(private[0])
            write_text(self.results_folder(private=True) / PARTITION_KEY, f"{kept}\n")
        elif given not in ("auto", kept):
            raise InputError(f"{self.local / PARTITION_KEY} differs from --partition-key; choose another --out")
        return kept

    def _check_same(self, requested: GridRequest) -> None:
        before = self.read_request()
        names = dict.fromkeys([*before["over"], *requested["over"], *before["settings"], *requested["settings"]])
        for name in names:
            old, new = (_format_request(request, name) for request in (before, requested))
            if old != new:
                raise InputError(
                    f"{self.path} holds another {self.kind}: its {flag_name(name)} is {old}, and now it is {new}; "
                    "choose another --out"
                )


def _format_request(request: GridRequest, name: str) -> str:
    """Return a setting's values as text; a setting that an older version did not know has its default."""
    default = FIELDS[name].default if name in FIELDS else ""
    found = request["over"].get(name, request["settings"].get(name, default))
    return format_setting(list(found) if isinstance(found, tuple) else found) or "empty"


@dataclass(frozen=True)
class CompletedExperiment:
    """What the results of sweeps and frontiers have in common; read from the run folders."""

    folder: ExperimentFolder
    grid: Grid
    cost: GridCost
    failed: Mapping[str, str]  # points whose training diverged, with the message
    compared: tuple[str, ...] = ()  # of a sweep: the settings whose values are compared

    @property
    def path(self) -> Path:
        """The experiment's folder."""
        return self.folder.path

    @cached_property
    def completed(self) -> list[tuple[GridPoint, RunFolder]]:
        """The points whose runs have finished, with their run folders."""
        found = [(point, RunFolder(self.folder.run_path(point))) for point in self.grid.points]
        return [(point, folder) for point, folder in found if folder.finished]

    @cached_property
    def regression(self) -> bool:
        """Whether the runs predict numbers rather than classes."""
        return bool(self.completed) and predicts_numbers([folder for _, folder in self.completed])

    @cached_property
    def private(self) -> bool:
        """Whether test errors are computed from private records, and are for their owner only."""
        summaries = [folder.read_summary(local=False) for _, folder in self.completed]
        return any(entry.private_test for summary in summaries for entry in summary.runs)

    @property
    def results_folder(self) -> Path:
        """Folder of the tables and figures."""
        return self.folder.results_folder(self.private)

    def describe_request(self, counts: str) -> str:
        """Return `counts`, the number of seeds and the varied settings, for a Markdown page."""
        seeds = self.grid.points[0].settings.seeds
        axes = [f"{flag_name(name)}: {format_setting(list(v))}" for name, v in self.grid.over.items() if v]
        words = f"{counts}, {seeds} seed{'s' * (seeds > 1)} each."
        return f"{words} Every setting is in `{self.folder.kind}.toml`. Varied settings:\n\n{bullet_list(axes)}"


def bullet_list(lines: Iterable[str]) -> str:
    """Return lines as a Markdown list."""
    return "\n".join(f"- {line}" for line in lines)
