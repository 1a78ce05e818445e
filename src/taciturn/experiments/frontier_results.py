"""Results of a frontier: points, which of them are lowest, the table and the page about them."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from taciturn.algorithms import ALGORITHMS
from taciturn.core.storage import to_json, write_text
from taciturn.errors import InputError
from taciturn.experiments.cost import GridCost
from taciturn.experiments.grid import GridPoint, by_hand, left_out, left_out_words
from taciturn.experiments.grid_folder import Ended, rows_of, write_csv
from taciturn.experiments.statistics import Row, grouped, summaries
from taciturn.experiments.sweep_results import ELSEWHERE, OWNERS_ONLY, csv_cells, setting_name
from taciturn.reporting.intervals import Interval, mean_words
from taciturn.reporting.tables import format_bytes, format_epsilon, format_setting, format_share, markdown_table
from taciturn.runs.folder import RunFolder, read_key

TOLD_APART = ("algorithm", "epsilon")  # the runs of a run folder, but for their seeds


@dataclass(frozen=True)
class FrontierPoint:
    """One method, with one feature map, under one trust model, at one budget; over its seeds."""

    data: str
    features: str
    trust: str
    algorithm: str
    epsilon: float  # the total that was asked for
    spent: float  # the total by the ledger, of the seed that spent most
    delta: float
    rounds: int
    bytes_up: int  # sent by one agent in all rounds
    bytes_down: int  # received by it
    errors: tuple[float, ...]  # the test error of every seed
    error: Interval  # their mean
    run: str  # the name of its run folder
    lowest: bool = False  # whether it is on the frontier: see `marked`

    def facts(self) -> dict[str, Any]:
        """The point as values, for other programs."""
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


def points_in(point: GridPoint, folder: RunFolder) -> list[FrontierPoint]:
    """The points of an ended run folder."""
    data = folder.read_start(local=False)["data"]
    rows = rows_of(point, folder, local=True)
    errors = summaries(rows, TOLD_APART, "seed")
    return [
        _point(point, data["name"], len(data["agents"]), found, errors[at])
        for at, found in grouped(rows, TOLD_APART).items()
    ]


def _point(point: GridPoint, data: str, agents: int, rows: Sequence[Row], error: Interval) -> FrontierPoint:
    first = rows[0]
    up, down = (max(row[name] for row in rows) for name in ("bytes_up", "bytes_down"))
    return FrontierPoint(
        data,
        point.settings.features,
        point.settings.trust,
        first["algorithm"],
        first["epsilon"],
        max(row["spent_epsilon"] for row in rows),
        point.settings.delta,
        max(row["rounds"] for row in rows),
        *of_one_agent(first["algorithm"], agents, up, down),
        tuple(row["test_error"] for row in rows),
        error,
        point.name,
    )


def of_one_agent(algorithm: str, agents: int, up: int, down: int) -> tuple[int, int]:
    """What one agent sends and receives, of what all of them do; a curator's model is counted once, and goes to all."""
    central = algorithm in ALGORITHMS and ALGORITHMS[algorithm].central
    return math.ceil(up / agents), down if central else math.ceil(down / agents)


def marked(points: Iterable[FrontierPoint]) -> list[FrontierPoint]:
    """The points by trust model and budget; the lowest mean of each is on the frontier, of two alike the cheaper."""
    found = list(points)
    order = {trust: i for i, trust in enumerate(dict.fromkeys(one.trust for one in found))}
    best: dict[tuple[str, float], FrontierPoint] = {}
    for one in found:
        at = one.trust, one.epsilon
        if at not in best or _rank(one) < _rank(best[at]):
            best[at] = one
    sorted_points = sorted(found, key=lambda one: (order[one.trust], one.epsilon))
    return [replace(one, lowest=one is best[one.trust, one.epsilon]) for one in sorted_points]


def rises(points: Sequence[FrontierPoint]) -> list[tuple[FrontierPoint, FrontierPoint]]:
    """Neighbours on a frontier of which the one with the larger budget came out worse."""
    lowest = [one for one in points if one.lowest]
    return [(a, b) for a, b in itertools.pairwise(lowest) if a.trust == b.trust and b.error.mean > a.error.mean]


def _rank(point: FrontierPoint) -> tuple[float, int]:
    return point.error.mean, point.bytes_up + point.bytes_down


HEADINGS = (
    *("trust", "features", "algorithm", "total ε", "spent ε", "δ", "test error", "", "lowest", "highest"),
    *("seeds", "rounds", "sent", "received"),
)
TEXT = ("trust", "features", "algorithm")  # the columns that are words
TERMINAL = ("trust", "features", "algorithm", "total ε", "test error", "", "rounds", "sent")  # 80 columns
MARK = "*"
MARKED = f"{MARK} the lowest mean of its trust model at that budget"
GIVEN = "Given by hand: {given}; what that was chosen by is not counted here."
PLANNED = (
    "{what} the planner's, from public facts: no record and no test label was looked at to choose them, and that cost "
    "no budget."
)
PICKED = "The marks go by the test records: whoever chooses a method by them has looked there."
TRUSTED = "That total holds only where nobody sees more than the trust model of each run allows."
NOT_AGAIN = "Hardened noise cannot be drawn again: the models are those in runs, and every one of them was a release."
OWNERS = "These test errors are computed from private records without noise: for the owner of the records alone."


class FrontierTable(NamedTuple):
    """Headings and rows of text."""

    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]


def table(points: Sequence[FrontierPoint], regression: bool, shown: Sequence[str] = HEADINGS) -> FrontierTable:
    """The points under some of HEADINGS; what all points share is left out of TERMINAL's."""
    alike = shown != HEADINGS and len({one.features for one in points}) == 1
    chosen = [i for i, name in enumerate(HEADINGS) if name in shown and not (name == "features" and alike)]
    rows = [cells(one, regression) for one in points]
    return FrontierTable(tuple(HEADINGS[i] for i in chosen), [tuple(row[i] for i in chosen) for row in rows])


def cells(point: FrontierPoint, regression: bool) -> tuple[str, ...]:
    """A point as text, under HEADINGS."""
    return (
        point.trust,
        point.features,
        point.algorithm,
        budget(point.epsilon),
        format_epsilon(point.spent),
        f"{point.delta:g}",
        mean_words(point.error, regression),
        MARK if point.lowest else "",
        format_share(min(point.errors), regression),
        format_share(max(point.errors), regression),
        str(len(point.errors)),
        str(point.rounds),
        format_bytes(point.bytes_up),
        format_bytes(point.bytes_down),
    )


def budget(epsilon: float) -> str:
    """A total as it is asked for."""
    return "no noise" if math.isinf(epsilon) else f"{epsilon:g}"


def explained(points: Sequence[FrontierPoint], regression: bool) -> Iterator[str]:
    """What the figures of a table are, and what its marks go by."""
    n = max(one.error.n for one in points)
    means = f"mean of {n} seeds ± half its 95 % interval (Student t)" if n > 1 else "one seed, so no interval"
    yield f"{MARKED}; test error: {means}; sent: by one agent in all rounds"
    for before, after in rises(points):
        found = [format_share(one.error.mean, regression) for one in (before, after)]
        budgets = [budget(one.epsilon) for one in (before, after)]
        yield (
            f"{after.trust}: total epsilon {budgets[1]} came out worse than {budgets[0]} ({found[1]}, {found[0]}); it "
            "is shown as measured"
        )
    yield PICKED


def rests_on(given: Mapping[str, Any]) -> list[str]:
    """How the hyperparameters were chosen."""
    fixed = ", ".join(f"{name.replace('_', '-')} {format_setting(value)}" for name, value in given.items())
    by_hand = [GIVEN.format(given=fixed)] if given else []
    return [*by_hand, PLANNED.format(what="All else is" if given else "Rounds, clip and steps are")]


def again(points: Sequence[FrontierPoint], folder: Path, key: int | None) -> dict[str, str]:
    """The command that trains the best point of each trust model again, at the smallest budget that was asked for.

    `key`: by which private records were held out, where the command is for their owner.
    """
    lowest = [one for one in points if one.lowest]
    smallest = {one.trust: one for one in reversed(lowest)}  # budgets rise
    return {trust: _command(smallest[trust], folder, key) for trust in dict.fromkeys(one.trust for one in lowest)}


def _command(point: FrontierPoint, folder: Path, key: int | None) -> str:
    config = folder / "runs" / point.run / "config.toml"
    chosen = ["--algorithm", point.algorithm, "--total-epsilon", repr(point.epsilon).removesuffix(".0")]
    keyed = [] if key is None else ["--partition-key", str(key)]
    return shlex.join(["taciturn", "run", str(config), *chosen, *keyed])


ESCAPED = rf"\{MARK}"  # it would begin a list


def page(done: Frontier, local: bool) -> str:
    """The page as text; not local: what anybody may see of a frontier whose test errors are private."""
    figures = _figures(done) if local else [ELSEWHERE]
    owners = [OWNERS_ONLY] if local and done.private else []
    parts = ["# A frontier", *owners, _asked(done), *figures, *rests_on(done.given), *done.left_out, *done.spent]
    return "\n\n".join([*parts, *_again(done, local)]) + "\n"


def _asked(done: Frontier) -> str:
    first, over = done.grid.points[0].settings, done.grid.over
    axes = "\n".join(f"- {setting_name(n)}: {format_setting(list(values))}" for n, values in over.items() if values)
    seeds = f"{first.seeds} seed{'s' * (first.seeds > 1)}"
    counts = f"Test error against the total epsilon at delta {first.delta:g}: {done.grid.runs} runs, {seeds} each."
    return f"{counts} Every setting is in `frontier.toml`; what varies:\n\n{axes}"


def _figures(done: Frontier) -> Iterable[str]:
    yield done.table()
    yield "\n".join(f"- {line.replace(MARK, ESCAPED)}" for line in explained(done.points, done.regression))
    yield "![Test error against the total epsilon](frontier.png)"


def _again(done: Frontier, local: bool) -> Iterable[str]:
    """The commands name the best methods, which only those may know who may see the errors."""
    if local and done.again:
        lines = "\n".join(f"{command}  # {trust}" for trust, command in done.again.items())
        yield f"The best of each trust model at the smallest budget, trained again:\n\n```text\n{lines}\n```"


NAME = "frontier"


@dataclass(frozen=True)
class Frontier(Ended):
    """A frontier that has ended, read from its run folders."""

    cost: GridCost
    failed: Mapping[str, str]  # run folders that diverged, and how

    @cached_property
    def points(self) -> list[FrontierPoint]:
        """Every method, feature map, trust model and budget, by trust model and budget."""
        return marked(one for point, folder in self.ended for one in points_in(point, folder))

    def table(self) -> str:
        """The points as a Markdown table."""
        headings, rows = table(self.points, self.regression)
        return markdown_table(headings, rows, TEXT)

    def picture(self, path: str | Path) -> None:
        """Draw the points into a file that ends in .png, .svg or .pdf."""
        from taciturn.experiments.experiment_figures import frontier_figure
        from taciturn.reporting.figures.style import save

        save(frontier_figure(self.points, self.regression, self.private), Path(path), self.private)

    @property
    def place(self) -> Path:
        """Where the figures are."""
        return self.folder.place(self.private)

    @property
    def given(self) -> dict[str, Any]:
        """The hyperparameters that were given by hand."""
        return {name: value for point in self.grid.points for name, value in by_hand(point.settings).items()}

    @property
    def left_out(self) -> list[str]:
        """What was asked for and is not there, and why."""
        found = left_out(self.grid.over["trust"], self.grid.over["algorithm"])
        return [*left_out_words(found), *(f"{name} did not end: {words}" for name, words in self.failed.items())]

    @property
    def spent(self) -> list[str]:
        """What all runs together cost, in words."""
        return [*self.cost.sentences(), *([TRUSTED] if len(self.grid.over["trust"]) > 1 else [])]

    @property
    def again(self) -> dict[str, str]:
        """For each trust model the command that trains its best point again; none for noise that has no seed."""
        seeded = all(point.settings.noise == "seeded" for point in self.grid.points)
        key = read_key(self.path / "local-only") if self.private else None
        return again(self.points, self.path, key) if seeded else {}

    @property
    def document(self) -> dict[str, Any]:
        """Everything `taciturn frontier --json` prints."""
        return {
            "frontier": str(self.path),
            "local_only": self.private,
            "points": [one.facts() for one in self.points],
            "notes": list(explained(self.points, self.regression)),
            "left_out": self.left_out,
            "given_by_hand": self.given,
            "chosen": rests_on(self.given),
            "all_runs": [
                {**one.records._asdict(), "runs": one.runs, "epsilon": one.epsilon, "delta": one.delta}
                for one in self.cost.spending
            ],
            "spent": self.spent,
            "again": self.again,
        }


def conclude_frontier(done: Frontier) -> Frontier:
    """Write the table, the page and the picture; whatever holds a private figure goes into local-only."""
    if not done.points:
        words = "; ".join(f"{name}: {words}" for name, words in done.failed.items())
        raise InputError(f"no run of {done.path} came to an end: {words}")
    if done.private:
        write_text(done.path / f"{NAME}.md", page(done, local=False))
    place = done.place
    write_text(place / f"{NAME}.json", to_json(done.document) + "\n")
    write_csv(place / f"{NAME}.csv", [csv_cells(one.facts()) for one in done.points])
    write_text(place / f"{NAME}.md", page(done, local=True))
    for ending in (".png", ".svg"):
        done.picture(place / f"{NAME}{ending}")
    return done
