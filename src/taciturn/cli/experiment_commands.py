"""`taciturn sweep` and `taciturn frontier`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from taciturn.cli.options import GROUPS, given_settings, list_flag, setting_flags
from taciturn.cli.output import JSON_HELP, PATH, print_json, print_table, say, stderr
from taciturn.cli.progress_display import experiment_display
from taciturn.core.signals import stop_signals
from taciturn.errors import InputError, TrainingDiverged
from taciturn.experiments.cost import check_budget, estimate_cost
from taciturn.experiments.frontier_results import (
    TERMINAL_COLUMNS,
    TEXT_COLUMNS,
    Frontier,
    frontier_table,
    hyperparameter_notes,
    table_notes,
)
from taciturn.experiments.grid import FRONTIER_AXES, describe_exclusions, excluded_methods
from taciturn.experiments.runner import (
    PlannedExperiment,
    Result,
    plan_frontier,
    plan_sweep,
    reopen_frontier,
    reopen_sweep,
)
from taciturn.experiments.sweep_results import Sweep
from taciturn.settings.rules import flag_name

SWEEP_PANEL, FRONTIER_PANEL = "Sweep settings", "Frontier settings"
MAX_COMPARISONS = 20  # shown on the terminal
OWNERS_NOTE = "These test errors are computed from private records without noise: for the owner of the records only"
F = TypeVar("F", bound=Callable[..., Any])


def _experiment_options(kind: str, panel: str) -> Callable[[F], F]:
    """Return the options that sweeps and frontiers share."""

    def decorate(function: F) -> F:
        for option in (
            click.option("--json", "as_json", is_flag=True, panel=panel, help=JSON_HELP),
            click.option("--yes", is_flag=True, panel=panel, help="allow more than 10,000 runs"),
            click.option("--dry-run", is_flag=True, panel=panel, help="list the points and what they would spend"),
            click.option("--resume", type=PATH, metavar="FOLDER", panel=panel, help=f"continue a {kind}"),
        ):
            function = option(function)
        return function

    return decorate


@click.command(context_settings={"show_default": True})
@click.argument("config", required=False, type=PATH)
@click.option(
    "--over", multiple=True, metavar="NAME=V1,V2,...", panel=SWEEP_PANEL, help="a setting and its values; repeatable"
)
@click.option(
    "--compare",
    multiple=True,
    metavar="NAME",
    panel=SWEEP_PANEL,
    help="the setting whose values are compared in pairs [default: algorithm, else the first that varies]",
)
@_experiment_options("sweep", SWEEP_PANEL)
@setting_flags(groups=GROUPS)
def sweep(
    config: Path | None,
    over: tuple[str, ...],
    compare: tuple[str, ...],
    resume: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Train at every point of a grid of settings, and report which differences are significant.

    --over takes any setting below. Algorithms, budgets and seeds are trained together in one run folder; each
    combination of the other settings gets its own run folder, which every other command accepts. Differences are
    paired over seeds. The same command continues a sweep that was stopped or killed. Before training it prints what all
    runs together would spend.

    \b
    Examples:
      taciturn sweep --over algorithm=objp,objpm --over total-epsilon=0.5,1,3 --rounds 20 --seeds 5 --out sweeps/a
      taciturn sweep --over clip=0.5,1,2 --compare clip --rounds 50 --seeds 5 --out sweeps/b
      taciturn sweep --over partition-key=1,2,3,4,5 --over partition=shuffled,dirichlet --rounds 20 --compare partition
      taciturn sweep --resume sweeps/a
      taciturn sweep --over rho=0.1,1,10 --over clip=1,2 --dry-run
    """
    given = given_settings(flags)
    if resume is not None:
        _check_resume("sweep", config or over or given)
        experiment = reopen_sweep(resume, compare)
    else:
        experiment = plan_sweep(config, _parse_axes(over), compare, given)
    if dry_run:
        _print_dry_run(experiment, as_json)
        return
    done = _run(experiment, yes)
    print_json(done.summary) if as_json else _print_sweep(done)


@click.command(context_settings={"show_default": True})
@click.argument("config", required=False, type=PATH)
@list_flag(
    "algorithm",
    FRONTIER_PANEL,
    "methods [default: objp,dpgd under agents, else objw,dpgd]; each runs under the trust models that it fits",
)
@list_flag("trust", FRONTIER_PANEL, "trust models [default: agents,secure-sum,server]")
@list_flag("features", FRONTIER_PANEL, "public feature maps [default: that of the data set]")
@list_flag("total_epsilon", FRONTIER_PANEL, "total epsilons of a run [default: 0.5,1,3,8]; inf: no noise")
@click.option("--seeds", metavar="NUMBER", panel=FRONTIER_PANEL, help="noise seeds of every point [default: 3]")
@_experiment_options("frontier", FRONTIER_PANEL)
@setting_flags(groups=GROUPS, exclude={*FRONTIER_AXES, "seeds"})
def frontier(config: Path | None, resume: Path | None, dry_run: bool, yes: bool, as_json: bool, **flags: Any) -> None:
    """Measure test error against the total epsilon, for every method and trust model.

    Each feature map and trust model has a run folder with all its methods, budgets and seeds. Hyperparameters that you
    do not set come from the planner, which uses public facts. A method that does not support a trust model is skipped
    there, and the output gives the reason. Every point has its interval over seeds, what its ledger spent, and what one
    agent sent and received. The same command continues a frontier that was stopped or killed. Before training it prints
    what all runs together would spend.

    \b
    Examples:
      taciturn frontier
      taciturn frontier --data mnist --features none,scattering --trust agents,secure-sum --out frontiers/mnist
      taciturn frontier --algorithm objp,dpgd,objw --total-epsilon 0.5,1,3,8 --seeds 10
      taciturn frontier --data table.csv --schema schema.toml --test-share 0.25 --total-records 400 --agents 3
      taciturn frontier --resume frontiers/mnist
      taciturn frontier --dry-run
    """
    given = given_settings(flags)
    if resume is not None:
        _check_resume("frontier", config or given)
        experiment = reopen_frontier(resume)
    else:
        experiment = plan_frontier(config, given)
    if dry_run:
        _print_dry_run(experiment, as_json)
        if not as_json:
            over = experiment.grid.over
            _say_all(
                f"left out: {why}" for why in describe_exclusions(excluded_methods(over["trust"], over["algorithm"]))
            )
        return
    done = _run(experiment, yes)
    print_json(done.summary) if as_json else _print_frontier(done)


def _run(experiment: PlannedExperiment[Result], yes: bool) -> Result:
    with experiment_display(experiment.folder) as display, stop_signals(stderr.print) as stop:
        return experiment.run(yes=yes, say=display.say, watch=display, stop=stop)


def _parse_axes(over: tuple[str, ...]) -> dict[str, str]:
    """Return the values of each setting that --over names."""
    found: dict[str, str] = {}
    for text in over:
        name, sign, values = text.partition("=")
        if not (name and sign and values):
            raise InputError(f"--over is '{text}'; it must be NAME=VALUE,VALUE, as in clip=0.5,1,2")
        if flag_name(name) in found:
            raise InputError(f"{name} is swept twice; give all of its values in one --over")
        found[flag_name(name)] = values
    return found


def _check_resume(kind: str, given: object) -> None:
    if given:
        raise InputError(f"--resume takes all settings from the folder's {kind}.toml; remove the other settings")


def _print_dry_run(experiment: PlannedExperiment[Any], as_json: bool) -> None:
    """Print the points of a grid and what they would spend."""
    check_budget(experiment.unstarted)
    grid = experiment.grid
    cost = estimate_cost(grid)
    pairs = list(zip(grid.points, cost.rounds, strict=True))
    if as_json:
        points = [{"point": p.name, **p.values, "runs": p.runs, "rounds": rounds} for p, rounds in pairs]
        spending = [spent.to_json() | {"seeded": spent.seeded} for spent in cost.spending]
        print_json({"points": points, "runs": grid.runs, "spending": spending})
        return
    rows = [(p.name, ", ".join(p.settings.algorithm), str(p.runs), str(rounds)) for p, rounds in pairs]
    print_table(("point", "algorithms", "runs", "rounds in all"), rows, left=2)
    counts = f"{_plural(len(grid.points), 'point')}, {_plural(grid.runs, 'run')}"
    _say_all(["", f"{counts}; nothing was trained", *cost.sentences()])


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _print_sweep(done: Sweep) -> None:
    _say_all(f"{name} did not finish: {why}" for name, why in done.failed.items())
    if not done.means:
        raise TrainingDiverged(f"no point of {done.path} finished; see above")
    print_table(*done.mean_table())
    lines = done.comparison_lines()
    _say_all(["", *lines[:MAX_COMPARISONS]])
    if len(lines) > MAX_COMPARISONS:
        say(f"and {len(lines) - MAX_COMPARISONS} more comparisons, in comparisons.csv")
    _say_all([*done.notes, *([OWNERS_NOTE] if done.private else [])])
    say(f"tables, page and figure are in {done.results_folder}")


def _print_frontier(done: Frontier) -> None:
    headings, rows = frontier_table(done.points, done.regression, TERMINAL_COLUMNS)
    print_table(headings, rows, left=sum(name in TEXT_COLUMNS for name in headings))
    notes = [*table_notes(done.points, done.regression), *done.missing, *hyperparameter_notes(done.manual), *done.spent]
    _say_all(["", *notes, *([OWNERS_NOTE] if done.private else []), ""])
    say(f"page, figure and the whole table, with spent ε and bytes received, are in {done.results_folder}")
    if not done.retrain:
        say("Hardened noise cannot be drawn again: the models are in runs, and every one of them was a release.")
    for trust, command in done.retrain.items():
        _say_all([f"to train the best under {trust} at the smallest budget again:", f"  {command}"])


def _say_all(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)
