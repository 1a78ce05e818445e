"""Results of a frontier: test error against the total epsilon, and the files and page that show it."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from taciturn.core.storage import format_bytes, to_json, write_text
from taciturn.errors import TrainingDiverged
from taciturn.experiments.experiment_folder import IN_LOCAL_ONLY, OWNERS_ONLY, CompletedExperiment, bullet_list
from taciturn.experiments.grid import (
    GridPoint,
    describe_exclusions,
    excluded_methods,
    manual_hyperparameters,
)
from taciturn.experiments.run_rows import RunRow, read_rows, write_csv
from taciturn.experiments.statistics import group_rows, mean_errors
from taciturn.reporting.intervals import Interval, mean_words
from taciturn.reporting.tables import format_epsilon, format_setting, format_share, markdown_table
from taciturn.runs.folder import RunFolder, read_key
from taciturn.settings.rules import flag_name

TEXT_COLUMNS = ("trust", "features", "algorithm")
TERMINAL_COLUMNS = ("trust", "features", "algorithm", "total ε", "test error", "", "rounds", "sent")  # 80 characters
MARK = "*"
TRUST_NOTE = "That total holds only if every observer sees no more than the trust model of each run allows."


@dataclass(frozen=True)
class FrontierPoint:
    """One method, with one feature map, under one trust model, at one budget; over its seeds."""

    data: str
    features: str
    trust: str
    algorithm: str
    epsilon: float  # the requested total
    spent: float  # the total by the ledger, of the seed that spent most
    delta: float
    rounds: int
    bytes_up: int  # sent by one agent in all rounds
    bytes_down: int  # received by one agent in all rounds
    errors: tuple[float, ...]  # the test error of every seed
    error: Interval  # their mean
    run: str  # the name of its run folder
    lowest: bool = False  # whether it is on the frontier: see `mark_lowest`

    def to_json(self) -> dict[str, object]:
        """Return the point under the names that `--json` prints."""
        return {
            "data": self.data,
            "features": self.features,
            "trust": self.trust,
            "algorithm": self.algorithm,
            "total_epsilon": self.epsilon,
            "spent_epsilon": self.spent,
            "delta": self.delta,
            "rounds": self.rounds,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "test_error": self.error.mean,
            "low": self.error.low,
            "high": self.error.high,
            "lowest": min(self.errors),
            "highest": max(self.errors),
            "seeds": len(self.errors),
            "frontier": self.lowest,
            "run": self.run,
        }

    def cells(self, regression: bool) -> dict[str, str]:
        """Return the point as text under the headings of the table."""
        return {
            "trust": self.trust,
            "features": self.features,
            "algorithm": self.algorithm,
            "total ε": format_budget(self.epsilon),
            "spent ε": format_epsilon(self.spent),
            "δ": f"{self.delta:g}",
            "test error": mean_words(self.error, regression),
            "": MARK if self.lowest else "",
            "lowest": format_share(min(self.errors), regression),
            "highest": format_share(max(self.errors), regression),
            "seeds": str(len(self.errors)),
            "rounds": str(self.rounds),
            "sent": format_bytes(self.bytes_up),
            "received": format_bytes(self.bytes_down),
        }


def read_points(point: GridPoint, folder: RunFolder) -> list[FrontierPoint]:
    """Return the frontier points in a completed run folder: one for each method and budget."""
    data, central = folder.read_start(local=False).data, folder.read_header().central
    rows = read_rows(point, folder, local=True)
    means = mean_errors(rows, ("algorithm", "epsilon"), "seed")
    return [
        _frontier_point(point, data.name, len(data.agents), central, group, means[at])
        for at, group in group_rows(rows, ("algorithm", "epsilon")).items()
    ]


def _frontier_point(
    point: GridPoint, data: str, agents: int, central: Sequence[str], rows: Sequence[RunRow], mean: Interval
) -> FrontierPoint:
    algorithm = rows[0].algorithm
    up, down = max(row.bytes_up for row in rows), max(row.bytes_down for row in rows)
    return FrontierPoint(
        data,
        point.settings.features,
        point.settings.trust,
        algorithm,
        rows[0].epsilon,
        max(row.spent_epsilon for row in rows),
        point.settings.delta,
        max(row.rounds for row in rows),
        *bytes_per_agent(algorithm in central, agents, up, down),
        tuple(row.error for row in rows),
        mean,
        point.name,
    )


def bytes_per_agent(central: bool, agents: int, up: int, down: int) -> tuple[int, int]:
    """Return the bytes that one agent sends and receives.

    Parameters
    ----------
    central : bool
        Whether a curator trains; its model is counted once and goes to every agent.
    agents : int
        Number of agents.
    up, down : int
        Bytes that all agents send and receive together.

    Examples
    --------
    >>> bytes_per_agent(False, 3, 900, 900), bytes_per_agent(True, 3, 900, 88)
    ((300, 300), (300, 88))
    """
    return math.ceil(up / agents), down if central else math.ceil(down / agents)


def mark_lowest(points: Iterable[FrontierPoint]) -> list[FrontierPoint]:
    """Sort points by trust model and budget, and mark the one with the lowest mean error of each.

    Of two points with equal means the one that transfers fewer bytes is marked.
    """
    found = list(points)
    order = {trust: i for i, trust in enumerate(dict.fromkeys(point.trust for point in found))}
    found.sort(key=lambda point: (order[point.trust], point.epsilon))
    marked = []
    for _, group in itertools.groupby(found, key=lambda point: (point.trust, point.epsilon)):
        rivals = list(group)
        best = min(rivals, key=lambda point: (point.error.mean, point.bytes_up + point.bytes_down))
        marked += [replace(point, lowest=point is best) for point in rivals]
    return marked


def error_increases(points: Sequence[FrontierPoint]) -> list[tuple[FrontierPoint, FrontierPoint]]:
    """Return neighbours on the frontier of which the one with the larger budget has the higher error."""
    lowest = [point for point in points if point.lowest]
    return [(a, b) for a, b in itertools.pairwise(lowest) if a.trust == b.trust and b.error.mean > a.error.mean]


def frontier_table(
    points: Sequence[FrontierPoint], regression: bool, columns: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows of text.

    Parameters
    ----------
    points : sequence of FrontierPoint
        The points, one a row.
    regression : bool
        Whether errors are RMSE rather than shares.
    columns : sequence of str
        The columns to show, by default all. A selection drops `features` where all points have the same.
    """
    rows = [point.cells(regression) for point in points]
    hidden = {"features"} if columns and len({point.features for point in points}) == 1 else set()
    headings = tuple(name for name in columns or rows[0] if name not in hidden)
    return headings, [tuple(row[name] for name in headings) for row in rows]


def format_budget(epsilon: float) -> str:
    """Return a requested total epsilon as text.

    >>> format_budget(3.0), format_budget(math.inf)
    ('3', 'no noise')
    """
    return "no noise" if math.isinf(epsilon) else f"{epsilon:g}"


def table_notes(points: Sequence[FrontierPoint], regression: bool) -> Iterator[str]:
    """Explain the table's columns and marks, and name budgets whose error is higher than that of a smaller one."""
    n = max(point.error.n for point in points)
    means = f"mean of {n} seeds ± half its 95 % interval (Student t)" if n > 1 else "one seed, so no interval"
    yield (
        f"{MARK} the lowest mean of its trust model at that budget; test error: {means}; sent: by one agent in all "
        "rounds"
    )
    for before, after in error_increases(points):
        old, new = (format_share(point.error.mean, regression) for point in (before, after))
        yield (
            f"{after.trust}: total epsilon {format_budget(after.epsilon)} has a higher error than "
            f"{format_budget(before.epsilon)} ({new}, {old}); the table shows it as measured"
        )
    yield "The marks are chosen by test error: choosing a method by them uses the test records."


def hyperparameter_notes(manual: Mapping[str, object]) -> list[str]:
    """Explain how the hyperparameters were chosen; `manual` are those that were given."""
    notes = []
    if manual:
        given = ", ".join(f"{flag_name(name)} {format_setting(value)}" for name, value in manual.items())
        notes.append(f"Given by hand: {given}. The cost of choosing these values is not counted here.")
    subject = "All other values come" if manual else "Rounds, clip and steps come"
    notes.append(
        f"{subject} from the planner, which uses public facts: no record and no test label was used to choose them, "
        "so they cost no budget."
    )
    return notes


def retrain_commands(points: Sequence[FrontierPoint], folder: Path, key: int | None) -> dict[str, str]:
    """Return, for each trust model, the command that trains its best point at the smallest budget again.

    Parameters
    ----------
    points : sequence of FrontierPoint
        Marked points, by rising budget.
    folder : Path
        The frontier's folder.
    key : int or None
        Partition key of private records, if the command is for their owner.
    """
    smallest: dict[str, FrontierPoint] = {}
    for point in points:
        if point.lowest:
            smallest.setdefault(point.trust, point)
    return {trust: _retrain_command(point, folder, key) for trust, point in smallest.items()}


def _retrain_command(point: FrontierPoint, folder: Path, key: int | None) -> str:
    config = folder / "runs" / point.run / "config.toml"
    chosen = ["--algorithm", point.algorithm, "--total-epsilon", repr(point.epsilon).removesuffix(".0")]
    keyed = [] if key is None else ["--partition-key", str(key)]
    return shlex.join(["taciturn", "run", str(config), *chosen, *keyed])


@dataclass(frozen=True)
class Frontier(CompletedExperiment):
    """A completed frontier."""

    @cached_property
    def points(self) -> list[FrontierPoint]:
        """Every method, feature map, trust model and budget, by trust model and budget."""
        return mark_lowest(found for point, folder in self.completed for found in read_points(point, folder))

    def table(self) -> str:
        """Return the points as a Markdown table.

        Returns
        -------
        str
            A row for each method, feature map, trust model and budget.
        """
        headings, rows = frontier_table(self.points, self.regression)
        return markdown_table(headings, rows, TEXT_COLUMNS)

    def picture(self, path: str | Path) -> None:
        """Draw the points.

        Parameters
        ----------
        path : str or Path
            The file, which ends in .png, .svg or .pdf.

        Raises
        ------
        InputError
            If the file ends in anything else.
        """
        from taciturn.experiments.experiment_figures import frontier_figure
        from taciturn.reporting.figures.style import save

        save(frontier_figure(self.points, self.regression, self.private), Path(path), self.private)

    @property
    def manual(self) -> dict[str, object]:
        """The hyperparameters that were given by hand."""
        settings = [point.settings for point in self.grid.points]
        return {name: value for own in settings for name, value in manual_hyperparameters(own).items()}

    @property
    def missing(self) -> list[str]:
        """What was requested and has no result, with the reason."""
        excluded = excluded_methods(self.grid.over["trust"], self.grid.over["algorithm"])
        return [
            *(f"left out: {line}" for line in describe_exclusions(excluded)),
            *(f"{name} did not finish: {why}" for name, why in self.failed.items()),
        ]

    @property
    def spent(self) -> list[str]:
        """What all runs together cost, in sentences."""
        return [*self.cost.sentences(), *([TRUST_NOTE] if len(self.grid.over["trust"]) > 1 else [])]

    @property
    def retrain(self) -> dict[str, str]:
        """Commands that train the best point of each trust model again; none for noise without a seed."""
        if any(point.settings.noise != "seeded" for point in self.grid.points):
            return {}
        return retrain_commands(self.points, self.path, read_key(self.folder.local) if self.private else None)

    @property
    def summary(self) -> dict[str, object]:
        """What `taciturn frontier --json` prints."""
        return {
            "frontier": str(self.path),
            "local_only": self.private,
            "points": [point.to_json() for point in self.points],
            "notes": list(table_notes(self.points, self.regression)),
            "left_out": self.missing,
            "given_by_hand": self.manual,
            "chosen": hyperparameter_notes(self.manual),
            "all_runs": [spending.to_json() for spending in self.cost.spending],
            "spent": self.spent,
            "again": self.retrain,
        }

    def write(self) -> None:
        """Write table, page and figure; files with private figures go to local-only.

        Raises
        ------
        TrainingDiverged
            If no run finished.
        """
        if not self.points:
            failures = "; ".join(f"{name}: {why}" for name, why in self.failed.items())
            raise TrainingDiverged(f"no run of {self.path} finished: {failures}")
        if self.private:
            write_text(self.path / "frontier.md", self._page(local=False))
        place = self.results_folder
        write_text(place / "frontier.json", to_json(self.summary) + "\n")
        write_csv(place / "frontier.csv", [point.to_json() for point in self.points])
        write_text(place / "frontier.md", self._page(local=True))
        for ending in ("png", "svg"):
            self.picture(place / f"frontier.{ending}")

    def _page(self, local: bool) -> str:
        """Return the page for the owner of the records, or the one without private figures."""
        delta = self.grid.points[0].settings.delta
        counts = f"Test error against the total epsilon at delta {delta:g}: {self.grid.runs} runs"
        parts = [
            "# A frontier",
            *([OWNERS_ONLY] if local and self.private else []),
            self.describe_request(counts),
            *(self._results() if local else [IN_LOCAL_ONLY]),
            *hyperparameter_notes(self.manual),
            *self.missing,
            *self.spent,
        ]
        if local and self.retrain:  # the commands name the best methods: they are as private as the errors
            commands = "\n".join(f"{command}  # {trust}" for trust, command in self.retrain.items())
            parts.append(
                f"To train the best of each trust model at the smallest budget again:\n\n```text\n{commands}\n```"
            )
        return "\n\n".join(parts) + "\n"

    def _results(self) -> Iterator[str]:
        yield self.table()
        notes = table_notes(self.points, self.regression)
        yield bullet_list(line.replace(MARK, rf"\{MARK}") for line in notes)  # an unescaped mark begins a list
        yield "![Test error against the total epsilon](frontier.png)"
