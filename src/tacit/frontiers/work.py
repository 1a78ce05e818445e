"""A frontier at work: one run folder after the other, then the figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tacit import api
from tacit.frontiers.grid import frontier_grid, grid_again
from tacit.frontiers.outcome import NAME, Frontier, conclude
from tacit.settings.resolve import allow_plugins
from tacit.sweeps.folder import SweepFolder
from tacit.sweeps.grid import Grid
from tacit.sweeps.work import Watch, train_grid


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
    grid = ask(config, settings)
    folder = frontier_folder(settings.get("out") or default_place(grid))
    return run_frontier(folder, grid, yes=yes, say=say, watch=watch, stop=stop)


def ask(config: str | Path | None, settings: Mapping[str, Any]) -> Grid:
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


def default_place(grid: Grid) -> Path:
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
    return conclude(Frontier(folder, grid, cost, failed))
