"""What a sweep leaves: rows, means, comparisons, a page and a picture; private figures in local-only alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.results.files import write_text
from tacit.sweeps.ended import Ended
from tacit.sweeps.folder import SweepFolder, write_csv
from tacit.sweeps.grid import Grid
from tacit.sweeps.page import page
from tacit.sweeps.rows import rows_of
from tacit.sweeps.statistics import At, Comparison, comparisons, repeated_unit, summaries
from tacit.sweeps.words import comparison_row
from tacit.views.intervals import Interval


@dataclass(frozen=True)
class Sweep(Ended):
    """A sweep that has ended, read from its run folders."""

    by: tuple[str, ...]  # the settings that are compared
    failed: Mapping[str, str]  # points that diverged, and how

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each run: its settings, seed and measures."""
        return self._rows(local=True)

    @property
    def unit(self) -> str:
        """What is repeated: seed, or partition_key where that is swept."""
        return repeated_unit(self.grid.over)

    @property
    def settings(self) -> list[str]:
        """The settings that tell runs apart, but for what is repeated."""
        return ["algorithm", *(name for name in self.grid.between if name != self.unit), "epsilon"]

    @cached_property
    def means(self) -> dict[At, Interval]:
        """The mean test error of each setting, with its interval."""
        return summaries(self.rows, self.settings, self.unit)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Every pair of values of the settings compared, at equal other settings."""
        varied = [name for name in self.settings if len({row[name] for row in self.rows}) > 1]
        return comparisons(self.rows, varied, [name for name in self.by if name in varied], self.unit)

    @property
    def picture(self) -> Path:
        """Where the picture is."""
        return self.folder.place(self.private) / "sweep.png"

    @property
    def summary(self) -> dict[str, Any]:
        """Everything `tacit sweep --json` prints."""
        return {
            "sweep": str(self.path),
            "points": len(self.grid.points),
            "runs": len(self.rows),
            "local_only": self.private,
            "means": [dict(at) | found._asdict() for at, found in self.means.items()],
            "comparisons": [comparison_row(one, self.regression) for one in self.comparisons],
            "failed": dict(self.failed),
        }

    def _rows(self, local: bool) -> list[dict[str, Any]]:
        return [row for point, folder in self.ended for row in rows_of(point, folder, local)]

    @property
    def public_rows(self) -> list[dict[str, Any]]:
        """The rows without what is private."""
        return self._rows(local=False)

    @property
    def has_local(self) -> bool:
        """Whether any run has figures for its owner alone."""
        return any(folder.has_local for _, folder in self.ended)


def conclude(
    folder: SweepFolder, grid: Grid, by: Sequence[str], failed: Mapping[str, str], spent: Sequence[str]
) -> Sweep:
    """Write the tables, the page and the picture; whatever holds a private figure goes into local-only.

    `spent` says what all runs together cost.
    """
    done = Sweep(folder, grid, tuple(by), failed)
    write_csv(folder.path / "results.csv", [cells(row) for row in done.public_rows])
    write_text(folder.path / "sweep.md", page(done, spent, local=False))
    if done.has_local:
        write_csv(folder.place(private=True) / "results.csv", [cells(row) for row in done.rows])
    if done.private:
        write_text(folder.local / "sweep.md", page(done, spent, local=True))
    if not done.rows:
        return done
    place = folder.place(done.private)
    write_csv(place / "comparisons.csv", [comparison_row(one, done.regression) for one in done.comparisons])
    from tacit.sweeps.picture import sweep_figure  # noqa: PLC0415  matplotlib takes its time
    from tacit.views.style import save  # noqa: PLC0415

    drawn = sweep_figure(done)
    for ending in (".png", ".svg"):
        save(drawn, done.picture.with_suffix(ending))
    return done


def cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for a CSV file: an empty cell where there is no value, no noise as inf."""
    return {name: "inf" if value == math.inf else value for name, value in row.items()}
