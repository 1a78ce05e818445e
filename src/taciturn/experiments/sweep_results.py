"""Results of a sweep: rows, means, comparisons and the page about them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from taciturn.core.storage import write_text
from taciturn.experiments.grid import Grid
from taciturn.experiments.grid_folder import Ended, SweepFolder, rows_of, write_csv
from taciturn.experiments.statistics import UNITS, At, Comparison, comparisons, repeated_unit, summaries
from taciturn.reporting.intervals import Interval, mean_words, points_of
from taciturn.reporting.tables import format_setting, markdown_table

PAIRED = (
    "Differences are paired over {unit}s, with Student-t intervals of 95 %. They tell what other {unit}s would give on "
    "the same records, not what other records would."
)
SIMULTANEOUS = (
    "Of {count} such intervals some miss by chance; the wider ones (Bonferroni) hold for all of them at once with 95 %."
)
ONE_SEED = "one {unit} gives no interval: {advice}"


def setting_name(name: str) -> str:
    """A setting as it is written on the command line; the budget is called epsilon, as in every table."""
    return name.replace("_", "-")


def at_words(at: At) -> str:
    """Settings that runs share, as text."""
    return ", ".join(_one(name, value) for name, value in at)


def _one(name: str, value: Any) -> str:
    return "no noise" if (name, value) == ("epsilon", math.inf) else f"{setting_name(name)} {format_setting(value)}"


def _value(setting: str, value: Any) -> str:
    """A value that is compared, by a name that says what it is."""
    return str(value) if setting == "algorithm" else _one(setting, value)


def verdict(comparison: Comparison, regression: bool) -> str:
    """Who has the lower test error, by how much, and how sure that is."""
    c, found = comparison, comparison.difference
    unit = "RMSE" if regression else "points"
    first, second = (_value(c.setting, value) for value in (c.first, c.second))
    better, worse, size = (second, first, -found.mean) if found.mean < 0 else (first, second, found.mean)
    runs = f"{found.n} {UNITS[c.unit]}{'s' * (found.n > 1)}"
    by = f"lower than {worse} by {points_of(size, regression)} {unit}"
    if c.exact:
        return f"{better} is {by}; without noise no seed changes it" if size else f"{first} and {second} are equal"
    if found.low is None or found.high is None:
        return f"{better} was {by} with one {UNITS[c.unit]}, which tells nothing of others"
    ends = sorted(abs(end) for end in (found.low, found.high))
    if not c.told_apart:
        low, high = (points_of(end, regression, "+") for end in (found.low, found.high))
        words = f"{second} minus {first} is {points_of(found.mean, regression, '+')} {unit} ({low} to {high})"
        return f"no difference can be told: {words}, {runs}"
    span = " to ".join(points_of(end, regression) for end in ends)
    doubt = "" if c.among_all else f"; among {c.comparisons} comparisons it may be chance"
    return f"{better} is {by} ({span}), {runs}{doubt}"


def notes(comparisons: Sequence[Comparison], counts: Sequence[int], unit: str, hardened: bool) -> list[str]:
    """What a reader has to know about the intervals."""
    if max(counts, default=0) < 2:
        advice = (
            "hardened noise has no seeds; --seed 1 --seeds 5 simulates"
            if hardened
            else "sweep more of them"
            if unit == "partition_key"
            else "--seeds 5 gives one"
        )
        return [ONE_SEED.format(unit=UNITS[unit], advice=advice)]
    found = [PAIRED.format(unit=UNITS[unit])] if comparisons else []
    uncertain = comparisons[0].comparisons if comparisons else 0
    return [*found, SIMULTANEOUS.format(count=uncertain)] if uncertain > 1 else found


def summary_table(
    summaries: Mapping[At, Interval], unit: str, regression: bool
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows: the settings that vary, mean test error ± half its interval, and over how many."""
    names = [name for name, _ in next(iter(summaries))]
    shown = [name for name in names if len({dict(at)[name] for at in summaries}) > 1 or name == "algorithm"]
    rows = [
        (
            *(format_setting(dict(at)[name]) for name in shown),
            mean_words(found, regression),
            str(found.n),
        )
        for at, found in summaries.items()
    ]
    return (*(setting_name(name) for name in shown), "test error", f"{UNITS[unit]}s"), rows


def comparison_row(comparison: Comparison, regression: bool) -> dict[str, Any]:
    """A comparison as a line of comparisons.csv; differences are second minus first, in the unit of test_error."""
    c = comparison
    return {
        "setting": setting_name(c.setting),
        "first": format_setting(c.first),
        "second": format_setting(c.second),
        "at": at_words(c.at),
        "difference": c.difference.mean,
        "low": c.difference.low,
        "high": c.difference.high,
        "simultaneous_low": c.simultaneous.low,
        "simultaneous_high": c.simultaneous.high,
        "pairs": c.difference.n,
        "paired_over": c.unit.replace("_", "-"),
        "verdict": verdict(c, regression),
    }


OWNERS_ONLY = (
    "**For the owner of the records alone.** These test errors are computed from private records without noise. "
    "This file must not leave your organisation."
)
ELSEWHERE = (
    "Test errors, means and comparisons are computed from private records without noise. They are for the owner of the "
    "records alone, in the folder `local-only`."
)


def page(sweep: Sweep, spent: Sequence[str], local: bool) -> str:
    """The page as text, with what all runs spent; not local: what anybody may see."""
    parts = ["# A sweep", _asked(sweep), *spent]
    if sweep.failed:
        parts.append("Points that did not end:\n\n" + _list(f"{n}: {words}" for n, words in sweep.failed.items()))
    if sweep.private and not local:
        return _text([*parts, ELSEWHERE])
    return _text([*parts, *([OWNERS_ONLY] if local and sweep.private else []), *_results(sweep)])


def _results(sweep: Sweep) -> Iterable[str]:
    if not sweep.means:
        return
    headings, rows = summary_table(sweep.means, sweep.unit, sweep.regression)
    yield "## Test error\n\n" + markdown_table(headings, rows, left=headings)
    yield f"![Test error against what was swept]({sweep.picture.name})"
    if sweep.comparisons:
        lines = (f"{_where(at_words(one.at))}{verdict(one, sweep.regression)}" for one in sweep.comparisons)
        yield "## Comparisons\n\n" + _list(lines)
    hardened = any(point.settings.noise == "hardened" for point in sweep.grid.points)
    yield "\n".join(notes(sweep.comparisons, [found.n for found in sweep.means.values()], sweep.unit, hardened))


def _asked(sweep: Sweep) -> str:
    first = sweep.grid.points[0].settings
    axes = _list(f"{setting_name(name)}: {format_setting(list(v))}" for name, v in sweep.grid.over.items())
    seeds = f"{first.seeds} seed{'s' * (first.seeds > 1)}"
    counts = f"{len(sweep.grid.points)} run folders, {sweep.grid.runs} runs, {seeds} each."
    return f"{counts} Every setting is in `sweep.toml`; what varies:\n\n{axes}"


def _where(at: str) -> str:
    return f"{at}: " if at else ""


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _text(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


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
        """Everything `taciturn sweep --json` prints."""
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


def conclude_sweep(
    folder: SweepFolder, grid: Grid, by: Sequence[str], failed: Mapping[str, str], spent: Sequence[str]
) -> Sweep:
    """Write the tables, the page and the picture; whatever holds a private figure goes into local-only.

    `spent` says what all runs together cost.
    """
    done = Sweep(folder, grid, tuple(by), failed)
    write_csv(folder.path / "results.csv", [csv_cells(row) for row in done.public_rows])
    write_text(folder.path / "sweep.md", page(done, spent, local=False))
    if done.has_local:
        write_csv(folder.place(private=True) / "results.csv", [csv_cells(row) for row in done.rows])
    if done.private:
        write_text(folder.local / "sweep.md", page(done, spent, local=True))
    if not done.rows:
        return done
    place = folder.place(done.private)
    write_csv(place / "comparisons.csv", [comparison_row(one, done.regression) for one in done.comparisons])
    from taciturn.experiments.experiment_figures import sweep_figure
    from taciturn.reporting.figures.style import save

    drawn = sweep_figure(done)
    for ending in (".png", ".svg"):
        save(drawn, done.picture.with_suffix(ending))
    return done


def csv_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for a CSV file: an empty cell where there is no value, no noise as inf."""
    return {name: "inf" if value == math.inf else value for name, value in row.items()}
