"""Running sweeps and frontiers: plan the grid, train its points one after the other, then write the results."""

from __future__ import annotations

import dataclasses
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from taciturn import api
from taciturn.errors import CorruptFile, InputError, TrainingDiverged
from taciturn.experiments.cost import check_budget, estimate_cost
from taciturn.experiments.experiment_folder import ExperimentFolder
from taciturn.experiments.frontier_results import Frontier
from taciturn.experiments.grid import (
    BATCHED,
    Grid,
    GridPoint,
    frontier_grid,
    restore_frontier_grid,
    sweep_grid,
)
from taciturn.experiments.sweep_results import Sweep
from taciturn.runs.folder import RunFolder
from taciturn.settings.resolve import allow_plugins
from taciturn.settings.rules import flag_name
from taciturn.training.loop import TrainingProgress
from taciturn.training.process_group import world_size

MAX_RUNS = 10_000  # more need confirmation

logger = logging.getLogger(__name__)


class ExperimentProgress(NamedTuple):
    """How far a sweep or frontier is."""

    number: int  # of the current point, from 1
    points: int
    name: str  # of the current point
    done: int  # rounds of all points
    rounds: int
    study: TrainingProgress  # of the current point


ProgressCallback: TypeAlias = Callable[[ExperimentProgress], None]
Result = TypeVar("Result", Sweep, Frontier)


@dataclass(frozen=True)
class PlannedExperiment(Generic[Result]):
    """A planned sweep or frontier; `run` trains it."""

    folder: ExperimentFolder
    grid: Grid
    results: type[Result]  # Sweep or Frontier
    compare: tuple[str, ...] = ()  # of a sweep: the settings whose values are compared

    @property
    def unstarted(self) -> list[GridPoint]:
        """The points that have not started."""
        return [point for point in self.grid.points if not _has_started(self.folder.run_path(point))]

    def run(
        self, *, yes: bool, say: Callable[[str], None], watch: ProgressCallback, stop: Callable[[], bool]
    ) -> Result:
        """Train every point that is not finished, then write the results; see `sweep` for the parameters."""
        kind, runs = self.folder.kind, self.grid.runs
        if world_size() > 1:
            raise InputError(f"a {kind} runs in one process; start it without torchrun")
        if runs > MAX_RUNS and not yes:
            raise InputError(f"this {kind} has {runs:,} runs, more than {MAX_RUNS:,}; use --yes to confirm")
        logger.info("planning %d points, %d runs", len(self.grid.points), runs)
        cost = estimate_cost(self.grid)
        check_budget(self.unstarted)
        self.folder.create(self.grid, self.compare)
        for sentence in cost.sentences():
            say(sentence)
        failed: dict[str, str] = {}
        key = self.folder.shared_partition_key(self.grid)
        for number, point in enumerate(self.grid.points):
            logger.info("point %d of %d: %s", number + 1, len(self.grid.points), point.name)
            callback = _count_all_rounds(number, self.grid.points, cost.rounds, watch)
            try:
                _train_point(point, self.folder.run_path(point), key, callback, stop)
            except TrainingDiverged as error:  # other points may not diverge
                logger.info("%s: %s", point.name, error)
                failed[point.name] = str(error)
        logger.info("writing the results to %s", self.folder.path)
        results = self.results(self.folder, self.grid, cost, failed, self.compare)
        results.write()
        return results


def sweep(
    config: str | Path | None = None,
    *,
    over: Mapping[str, object],
    compare: Sequence[str] = (),
    yes: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    watch: ProgressCallback = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Sweep:
    """Train at every point of a grid of settings and compare the results; the same call again continues it.

    Parameters
    ----------
    config : path, optional
        A config file.
    over : mapping
        The settings to vary, each with its values, as in `{"clip": [0.5, 1, 2]}`.
    compare : sequence of str
        The settings whose values are compared; by default the algorithm, or else the first that varies.
    yes : bool
        Allow more than 10,000 runs.
    say : callable
        Receives sentences on what all runs together spend, before the first starts.
    watch : callable
        Receives an `ExperimentProgress` after every round.
    stop : callable
        Asked after every round whether to stop.
    **settings
        Settings of `taciturn.run`; `out` is the sweep's folder.

    Returns
    -------
    Sweep
        The results, read from the run folders.

    Raises
    ------
    InputError
        If a setting is wrong, nothing varies, or the folder holds another grid.
    BudgetExhausted
        If all points together do not fit the budget ledger; nothing is trained.

    Examples
    --------
    >>> import taciturn
    >>> given = {"data": "mnist14", "features": "none", "rounds": 2, "seeds": 2}
    >>> result = taciturn.sweep(over={"clip": [0.5, 1.0]}, out="sweep", **given)
    >>> [row.setting("clip") for row in result.rows]
    [0.5, 0.5, 1.0, 1.0]
    """
    return plan_sweep(config, over, compare, settings).run(yes=yes, say=say, watch=watch, stop=stop)


def frontier(
    config: str | Path | None = None,
    *,
    yes: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    watch: ProgressCallback = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Frontier:
    """Measure test error against the total epsilon; the same call again continues it.

    Parameters
    ----------
    config : path, optional
        A config file.
    yes, say, watch, stop
        As of `sweep`.
    **settings
        Settings of `taciturn.run`. `algorithm`, `trust`, `features` and `total_epsilon` may have several values each,
        as in `trust=["agents", "secure-sum"]`; `out` is the frontier's folder.

    Returns
    -------
    Frontier
        The results, read from the run folders.

    Raises
    ------
    InputError
        If a setting is wrong, no algorithm fits the trust models, or the folder holds another grid.
    BudgetExhausted
        If all points together do not fit the budget ledger; nothing is trained.

    Examples
    --------
    >>> import taciturn
    >>> given = {"data": "mnist14", "features": "none", "rounds": 2, "seeds": 1}
    >>> result = taciturn.frontier(total_epsilon=[1, 8], trust=["agents"], algorithm=["dpgd"], out="frontier", **given)
    >>> [point.epsilon for point in result.points]
    [1.0, 8.0]
    """
    return plan_frontier(config, settings).run(yes=yes, say=say, watch=watch, stop=stop)


def plan_sweep(
    config: str | Path | None, over: Mapping[str, object], compare: Sequence[str], settings: Mapping[str, object]
) -> PlannedExperiment[Sweep]:
    """Return the experiment of a sweep; see `sweep` for the parameters."""
    grid = sweep_grid(*_read_settings(config, settings), over)
    folder = _choose_folder("sweep", settings.get("out"), "-".join(map(flag_name, grid.over)))
    return PlannedExperiment(folder, grid, Sweep, choose_comparison(grid, compare))


def plan_frontier(config: str | Path | None, settings: Mapping[str, object]) -> PlannedExperiment[Frontier]:
    """Return the experiment of a frontier; see `frontier` for the parameters."""
    grid = frontier_grid(*_read_settings(config, settings))
    return PlannedExperiment(
        _choose_folder("frontier", settings.get("out"), Path(grid.points[0].settings.data).stem), grid, Frontier
    )


def reopen_sweep(path: Path, compare: Sequence[str]) -> PlannedExperiment[Sweep]:
    """Return the sweep that a folder was created with; `compare` replaces the settings that it compares."""
    folder = ExperimentFolder(path, "sweep")
    request = folder.read_request()
    grid = sweep_grid({}, request["settings"], request["over"])
    compared = choose_comparison(grid, compare) if compare else tuple(request.get("compare", ()))
    return PlannedExperiment(folder, grid, Sweep, compared)


def reopen_frontier(path: Path) -> PlannedExperiment[Frontier]:
    """Return the frontier that a folder was created with."""
    folder = ExperimentFolder(path, "frontier")
    return PlannedExperiment(folder, restore_frontier_grid(folder.read_request()), Frontier)


def _choose_folder(kind: str, out: Any, name: str) -> ExperimentFolder:
    default = f"{kind}s/{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    return ExperimentFolder(Path(out or default), kind)


def _read_settings(
    config: str | Path | None, settings: Mapping[str, object]
) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return the settings of the config file and those given, without `out`; their plugins are allowed."""
    given = {name: value for name, value in settings.items() if name != "out"}
    file = api.read_config(config) if config else {}
    allow_plugins(file, given)
    return file, given


def choose_comparison(grid: Grid, compare: Sequence[str]) -> tuple[str, ...]:
    """Return the settings to compare: those in `compare`, else the algorithm, else the first that varies.

    Raises
    ------
    InputError
        If a setting in `compare` does not vary.
    """
    first = grid.points[0].settings
    varied = ["algorithm"] if len(first.algorithm) > 1 else []
    varied += [name for name in grid.between if len(grid.over[name]) > 1 and name != "partition_key"]
    varied += ["epsilon"] if max(len(first.total_epsilon), len(first.epsilon)) > 1 else []
    if not compare:
        return tuple(varied[:1])
    chosen = tuple(dict.fromkeys(name.replace("-", "_").replace("total_epsilon", "epsilon") for name in compare))
    for name in chosen:
        if name not in varied:
            choices = ", ".join(map(flag_name, varied)) or "none"
            raise InputError(f"--compare is {flag_name(name)}, which does not vary; settings that vary: {choices}")
    return chosen


def _train_point(
    point: GridPoint, path: Path, key: int | None, watch: Callable[[TrainingProgress], None], stop: Callable[[], bool]
) -> None:
    if _has_started(path):
        logger.info("resuming %s", path)
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


def _has_started(path: Path) -> bool:
    """Whether a run folder can be resumed: its ledger is the last file to be written when it is created."""
    folder = RunFolder(path)
    return folder.config.is_file() and folder.ledger.is_file() and folder.ledger.stat().st_size > 0


def _check_unused(folder: RunFolder) -> None:
    """Raise if a run that cannot be resumed may have released something: its noise would be drawn a second time."""
    files = [folder.ledger, folder.metrics, *folder.checkpoints.glob("*.npz")]
    if any(file.is_file() and file.stat().st_size for file in files):
        raise CorruptFile(
            f"{folder.path} has lost its config.toml or its ledger and may have released something, so it can neither "
            "be resumed nor replaced; move it elsewhere to train this point again"
        )


def _count_all_rounds(
    index: int, points: Sequence[GridPoint], rounds: Sequence[int], watch: ProgressCallback
) -> Callable[[TrainingProgress], None]:
    """Return a callback that turns the progress of one point into that of the whole experiment."""
    before, done = sum(rounds[:index]), dict[str, int]()

    def callback(progress: TrainingProgress) -> None:
        done[progress.batch.algorithm] = progress.t
        total = before + sum(done.values())
        watch(ExperimentProgress(index + 1, len(points), points[index].name, total, sum(rounds), progress))

    return callback
