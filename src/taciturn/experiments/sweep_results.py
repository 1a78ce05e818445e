"""Results of a sweep: mean test errors, comparisons, and the files and page that show them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from taciturn.core.storage import write_text
from taciturn.experiments.experiment_folder import IN_LOCAL_ONLY, OWNERS_ONLY, CompletedExperiment, bullet_list
from taciturn.experiments.run_rows import RunRow, read_rows, write_csv
from taciturn.experiments.statistics import (
    UNIT_NAMES,
    Comparison,
    Condition,
    compare_values,
    mean_errors,
    repeated_unit,
)
from taciturn.reporting.intervals import Interval, mean_words, points_of
from taciturn.reporting.tables import format_setting, markdown_table
from taciturn.settings.rules import flag_name


def format_condition(at: Condition) -> str:
    """Return shared settings as text.

    >>> format_condition((("algorithm", "objp"), ("partition_key", 3), ("epsilon", math.inf)))
    'algorithm objp, partition-key 3, no noise'
    """
    return ", ".join(_format_value(name, value) for name, value in at)


def _format_value(name: str, value: Any) -> str:
    return "no noise" if (name, value) == ("epsilon", math.inf) else f"{flag_name(name)} {format_setting(value)}"


def describe_comparison(comparison: Comparison, regression: bool) -> str:
    """Say which value has the lower test error, by how much, and how certain that is.

    Parameters
    ----------
    comparison : Comparison
        Two values of a setting.
    regression : bool
        Whether errors are RMSE rather than shares of misclassified records.
    """
    c, found = comparison, comparison.difference
    scale = "RMSE" if regression else "points"
    first, second = (
        str(value) if c.setting == "algorithm" else _format_value(c.setting, value) for value in (c.first, c.second)
    )
    better, worse, size = (second, first, -found.mean) if found.mean < 0 else (first, second, found.mean)
    unit = UNIT_NAMES[c.unit]
    lower = f"lower than {worse} by {points_of(size, regression)} {scale}"
    if c.exact:
        return f"{better} is {lower}; without noise no seed changes it" if size else f"{first} and {second} are equal"
    if found.low is None or found.high is None:
        return f"{better} was {lower} with one {unit}, which says nothing about others"
    runs = f"{found.n} {unit}{'s' * (found.n > 1)}"
    if not c.significant:
        mean, low, high = (points_of(end, regression, "+") for end in (found.mean, found.low, found.high))
        return f"no significant difference: {second} minus {first} is {mean} {scale} ({low} to {high}), {runs}"
    span = " to ".join(points_of(end, regression) for end in sorted((abs(found.low), abs(found.high))))
    doubt = "" if c.significant_overall else f"; among {c.comparisons} comparisons it may be chance"
    return f"{better} is {lower} ({span}), {runs}{doubt}"


def comparison_row(comparison: Comparison, regression: bool) -> dict[str, object]:
    """Return a line of comparisons.csv; differences are second minus first, in the unit of test_error."""
    c = comparison
    return {
        "setting": flag_name(c.setting),
        "first": format_setting(c.first),
        "second": format_setting(c.second),
        "at": format_condition(c.at),
        "difference": c.difference.mean,
        "low": c.difference.low,
        "high": c.difference.high,
        "simultaneous_low": c.simultaneous.low,
        "simultaneous_high": c.simultaneous.high,
        "pairs": c.difference.n,
        "paired_over": flag_name(c.unit),
        "verdict": describe_comparison(c, regression),
    }


def interval_notes(comparisons: Sequence[Comparison], counts: Sequence[int], unit: str, hardened: bool) -> list[str]:
    """Explain the intervals of a table.

    Parameters
    ----------
    comparisons : sequence of Comparison
        The comparisons that are shown.
    counts : sequence of int
        Number of repetitions behind each mean.
    unit : str
        The repeated unit.
    hardened : bool
        Whether a run has hardened noise, which has no seeds.
    """
    name = UNIT_NAMES[unit]
    if max(counts, default=0) < 2:
        if hardened:
            advice = "hardened noise has no seeds; --seed 1 --seeds 5 simulates"
        else:
            advice = "sweep more of them" if unit == "partition_key" else "use --seeds 5"
        return [f"one {name} gives no interval: {advice}"]
    if not comparisons:
        return []
    found = [
        f"Differences are paired over {name}s, with Student-t intervals of 95 %. They say what other {name}s "
        "would give on the same records, not what other records would give."
    ]
    if comparisons[0].comparisons > 1:
        found.append(
            f"Of {comparisons[0].comparisons} such intervals some miss by chance; the wider ones (Bonferroni) hold for "
            "all of them at once with 95 %."
        )
    return found


@dataclass(frozen=True)
class Sweep(CompletedExperiment):
    """A completed sweep."""

    @cached_property
    def rows(self) -> list[RunRow]:
        """Every run, with figures that are for the owner of the records only."""
        return self._read_rows(local=True)

    @property
    def public_rows(self) -> list[RunRow]:
        """Every run, without private figures."""
        return self._read_rows(local=False)

    def _read_rows(self, local: bool) -> list[RunRow]:
        return [row for point, folder in self.completed for row in read_rows(point, folder, local)]

    @property
    def unit(self) -> str:
        """The repeated unit: seed, or partition_key where that is swept."""
        return repeated_unit(self.grid.over)

    @property
    def settings(self) -> list[str]:
        """The settings that distinguish runs, except the repeated unit."""
        return ["algorithm", *(name for name in self.grid.between if name != self.unit), "epsilon"]

    @cached_property
    def means(self) -> dict[Condition, Interval]:
        """Mean test error of each combination of settings."""
        return mean_errors(self.rows, self.settings, self.unit)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Every pair of values of the compared settings, at equal other settings."""
        varied = [name for name in self.settings if len({row.setting(name) for row in self.rows}) > 1]
        return compare_values(self.rows, varied, [name for name in self.compared if name in varied], self.unit)

    @property
    def notes(self) -> list[str]:
        """Explanations of the intervals."""
        hardened = any(point.settings.hardened for point in self.grid.points)
        return interval_notes(self.comparisons, [mean.n for mean in self.means.values()], self.unit, hardened)

    @property
    def summary(self) -> dict[str, object]:
        """What `taciturn sweep --json` prints."""
        return {
            "sweep": str(self.path),
            "points": len(self.grid.points),
            "runs": len(self.rows),
            "local_only": self.private,
            "means": [dict(at) | mean._asdict() for at, mean in self.means.items()],
            "comparisons": [comparison_row(comparison, self.regression) for comparison in self.comparisons],
            "failed": dict(self.failed),
        }

    def mean_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the mean test error of every combination of settings.

        Returns
        -------
        headings : tuple of str
            The names of the varied settings, then the test error and the repeated unit.
        rows : list of tuple of str
            The settings, the mean ± half its interval, and the number of repetitions.
        """
        names = [name for name, _ in next(iter(self.means))]
        shown = [name for name in names if len({dict(at)[name] for at in self.means}) > 1 or name == "algorithm"]
        rows = [
            (*(format_setting(dict(at)[name]) for name in shown), mean_words(mean, self.regression), str(mean.n))
            for at, mean in self.means.items()
        ]
        return (*map(flag_name, shown), "test error", f"{UNIT_NAMES[self.unit]}s"), rows

    def comparison_lines(self) -> list[str]:
        """Return one sentence for each comparison, after the settings it holds at.

        Returns
        -------
        list of str
            The sentences.
        """
        return [
            f"{format_condition(found.at)}{': ' if found.at else ''}{describe_comparison(found, self.regression)}"
            for found in self.comparisons
        ]

    def write(self) -> None:
        """Write tables, page and figure; files with private figures go to local-only."""
        write_csv(self.path / "results.csv", [row.cells() for row in self.public_rows])
        write_text(self.path / "sweep.md", self._page(local=False))
        if any(folder.has_local for _, folder in self.completed):
            write_csv(self.folder.results_folder(private=True) / "results.csv", [row.cells() for row in self.rows])
        if self.private:
            write_text(self.folder.local / "sweep.md", self._page(local=True))
        if not self.rows:
            return
        write_csv(
            self.results_folder / "comparisons.csv",
            [comparison_row(found, self.regression) for found in self.comparisons],
        )
        from taciturn.experiments.experiment_figures import sweep_figure
        from taciturn.reporting.figures.style import save

        drawn = sweep_figure(self)
        for ending in ("png", "svg"):
            save(drawn, self.results_folder / f"sweep.{ending}")

    def _page(self, local: bool) -> str:
        """Return the page for the owner of the records, or the one without private figures."""
        counts = f"{len(self.grid.points)} run folders, {self.grid.runs} runs"
        parts = ["# A sweep", self.describe_request(counts), *self.cost.sentences()]
        if self.failed:
            parts.append(
                "Points that did not finish:\n\n" + bullet_list(f"{name}: {why}" for name, why in self.failed.items())
            )
        if self.private:
            parts.append(OWNERS_ONLY if local else IN_LOCAL_ONLY)
        if self.means and (local or not self.private):
            parts += self._results()
        return "\n\n".join(parts) + "\n"

    def _results(self) -> Iterator[str]:
        headings, rows = self.mean_table()
        yield "## Test error\n\n" + markdown_table(headings, rows, left=headings)
        yield "![Test error against the swept setting](sweep.png)"
        if self.comparisons:
            yield "## Comparisons\n\n" + bullet_list(self.comparison_lines())
        yield "\n".join(self.notes)
