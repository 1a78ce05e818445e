"""Running a sweep or a frontier: one run folder after the other, then the results."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from taciturn import api
from taciturn.errors import InputError, TrainingDiverged
from taciturn.experiments.cost import GridCost, check_ledger, cost_of
from taciturn.experiments.frontier_results import NAME, Frontier, conclude_frontier
from taciturn.experiments.grid import BATCHED, Grid, GridPoint, frontier_grid, grid_again, make_grid
from taciturn.experiments.grid_folder import SweepFolder
from taciturn.experiments.sweep_results import Sweep, conclude_sweep
from taciturn.runs.folder import RunFolder
from taciturn.settings.resolve import allow_plugins
from taciturn.training.loop import Progress
from taciturn.training.process_group import world_size

MOST = 10_000  # runs that are begun without being asked twice


class SweepProgress(NamedTuple):
    """How far a sweep is, for whoever watches."""

    number: int  # of the point at work, from 1
    points: int
    name: str
    done: int  # rounds, of all points
    rounds: int
    study: Progress


Watch = Callable[[SweepProgress], None]


def sweep(
    config: str | Path | None = None,
    *,
    over: Mapping[str, Any],
    compare: Sequence[str] = (),
    yes: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    watch: Watch = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Sweep:
    """Train at every point of a grid, as in over={"clip": [0.5, 1, 2]}, and compare; the same call again goes on.

    `compare` names the settings whose values are compared, by default the algorithm; `yes` allows more than 10,000
    runs; `out` is the sweep's folder. What all runs together spend is told to `say` before the first begins.
    """
    grid, by = ask_sweep(config, over, compare, settings)
    place = Path(settings["out"]) if settings.get("out") else default_sweep_folder(grid)
    return run_grid(SweepFolder(place), grid, by, yes=yes, say=say, watch=watch, stop=stop)


def ask_sweep(
    config: str | Path | None, over: Mapping[str, Any], compare: Sequence[str], settings: Mapping[str, Any]
) -> tuple[Grid, tuple[str, ...]]:
    """The grid, and the settings to compare by."""
    given = {name: value for name, value in settings.items() if name != "out"}
    file = api.read_config(config) if config else {}
    allow_plugins(file, given)
    grid = make_grid(file, given, over)
    return grid, compared(grid, compare)


def compared(grid: Grid, compare: Sequence[str]) -> tuple[str, ...]:
    """The settings to compare by: those asked for, else the algorithm, else the first that varies."""
    first = grid.points[0].settings
    budgets = max(len(first.total_epsilon), len(first.epsilon)) > 1
    varied = {
        **({"algorithm": None} if len(first.algorithm) > 1 else {}),
        **dict.fromkeys(name for name in grid.between if len(grid.over[name]) > 1 and name != "partition_key"),
        **({"epsilon": None} if budgets else {}),
    }
    if not compare:
        return tuple(varied)[:1]
    asked = tuple(dict.fromkeys(name.replace("-", "_").replace("total_epsilon", "epsilon") for name in compare))
    for name in asked:
        if name not in varied:
            choices = ", ".join(one.replace("_", "-") for one in varied) or "none"
            raise InputError(f"compare is {name.replace('_', '-')}, which has one value or none: there are {choices}")
    return asked


def run_grid(
    folder: SweepFolder,
    grid: Grid,
    by: Sequence[str],
    *,
    yes: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    watch: Watch = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> Sweep:
    """Every point that is not done yet, then the figures."""
    cost, failed = train_grid(folder, grid, {"compare": list(by)}, yes=yes, say=say, watch=watch, stop=stop)
    return conclude_sweep(folder, grid, by, failed, cost.sentences())


def train_grid(
    folder: SweepFolder,
    grid: Grid,
    more: Mapping[str, Any],
    *,
    yes: bool,
    say: Callable[[str], None],
    watch: Watch,
    stop: Callable[[], bool],
) -> tuple[GridCost, dict[str, str]]:
    """Every point that is not done yet: what all of them cost, and those that diverged, with their last words.

    `more` is written down beside the grid.
    """
    if world_size() > 1:
        raise InputError(f"a {folder.kind} works in one process: start it without torchrun")
    if grid.runs > MOST and not yes:
        raise InputError(f"this {folder.kind} has {grid.runs:,} runs, more than {MOST:,}: say --yes if that is meant")
    cost = cost_of(grid)
    check_ledger(to_begin(folder, grid))
    folder.begin(grid, more)
    for sentence in cost.sentences():
        say(sentence)
    failed: dict[str, str] = {}
    key = folder.key(grid)
    for number, point in enumerate(grid.points, 1):
        follow = _follow(number, grid, cost, point, watch)
        try:
            _run_point(point, folder.run(point), key, follow, stop)
        except TrainingDiverged as error:  # the others may not
            failed[point.name] = str(error)
    return cost, failed


def default_sweep_folder(grid: Grid) -> Path:
    """A folder named after the time and what is swept."""
    return Path("sweeps") / f"{time.strftime('%Y%m%d-%H%M%S')}-{'-'.join(grid.over)}".replace("_", "-")


def _run_point(
    point: GridPoint, path: Path, key: int | None, watch: Callable[[Progress], None], stop: Callable[[], bool]
) -> None:
    if _begun(path):
        api.resume(path, watch=watch, stop=stop)
        return
    if path.is_dir():
        _check_unused(RunFolder(path))
        shutil.rmtree(path)
    settings = {entry.name: getattr(point.settings, entry.name) for entry in dataclasses.fields(point.settings)}
    given = {name: value for name, value in settings.items() if not (name in BATCHED and value == ())}
    if key is not None and point.settings.private:
        given["partition_key"] = key
    api.run(watch=watch, stop=stop, **{**given, "out": path})


def to_begin(folder: SweepFolder, grid: Grid) -> list[GridPoint]:
    """The points that have not begun."""
    return [point for point in grid.points if not _begun(folder.run(point))]


def _begun(path: Path) -> bool:
    """Whether a run folder is complete enough to go on from: its ledger is the last thing it begins with."""
    folder = RunFolder(path)
    return folder.config.is_file() and folder.ledger.is_file() and folder.ledger.stat().st_size > 0


def _check_unused(folder: RunFolder) -> None:
    """Refuse to begin anew where something may have been released: its noise would be drawn a second time."""
    files = [folder.ledger, folder.metrics, *folder.checkpoints.glob("*.npz")]
    if any(file.is_file() and file.stat().st_size for file in files):
        raise InputError(
            f"{folder.path} has lost its config.toml or its ledger, and may have released something: it cannot go on, "
            "and is not begun anew; move it elsewhere to train this point once more"
        )


def _follow(number: int, grid: Grid, cost: GridCost, point: GridPoint, watch: Watch) -> Callable[[Progress], None]:
    """From the rounds of one point to those of the whole sweep."""
    before, seen = sum(cost.rounds[: number - 1]), dict[str, int]()

    def follow(progress: Progress) -> None:
        seen[progress.batch.algorithm] = progress.t
        done = before + sum(seen.values())
        watch(SweepProgress(number, len(grid.points), point.name, done, sum(cost.rounds), progress))

    return follow


def frontier(
    config: str | Path | None = None,
    *,
    yes: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    watch: Watch = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Frontier:
    """Test error against the total epsilon, as in trust=["agents", "secure-sum"]; the same call again goes on.

    `algorithm`, `trust`, `features` and `total_epsilon` may have several values each; every other setting is one of
    `run`'s. `yes` allows more than 10,000 runs; `out` is the frontier's folder. What all runs together spend is told to
    `say` before the first begins.
    """
    grid = ask_frontier(config, settings)
    folder = frontier_folder(settings.get("out") or default_frontier_folder(grid))
    return run_frontier(folder, grid, yes=yes, say=say, watch=watch, stop=stop)


def ask_frontier(config: str | Path | None, settings: Mapping[str, Any]) -> Grid:
    """The grid."""
    given = {name: value for name, value in settings.items() if name != "out"}
    file = api.read_config(config) if config else {}
    allow_plugins(file, given)
    return frontier_grid(file, given)


def frontier_folder(path: str | Path) -> SweepFolder:
    """A frontier on the disk."""
    return SweepFolder(Path(path), NAME)


def asked_before(folder: SweepFolder) -> Grid:
    """The grid that a frontier's folder was begun with."""
    return grid_again(folder.document())


def default_frontier_folder(grid: Grid) -> Path:
    """A folder named after the time and the data."""
    return Path("frontiers") / f"{time.strftime('%Y%m%d-%H%M%S')}-{Path(grid.points[0].settings.data).stem}"


def run_frontier(
    folder: SweepFolder,
    grid: Grid,
    *,
    yes: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    watch: Watch = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> Frontier:
    """Every run folder that is not done yet, then the figures."""
    cost, failed = train_grid(folder, grid, {}, yes=yes, say=say, watch=watch, stop=stop)
    return conclude_frontier(Frontier(folder, grid, cost, failed))
