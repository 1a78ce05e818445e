"""`taciturn sweep` and `taciturn frontier`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from taciturn.cli.options import GROUPS, given_settings, list_flag, setting_flags
from taciturn.cli.output import print_json, print_table, stderr, stdout
from taciturn.cli.progress_display import at_work
from taciturn.core.signals import stop_signals
from taciturn.errors import InputError
from taciturn.experiments.cost import check_ledger, cost_of
from taciturn.experiments.frontier_results import (
    NOT_AGAIN,
    OWNERS,
    TERMINAL,
    TEXT,
    Frontier,
    explained,
    rests_on,
    table,
)
from taciturn.experiments.grid import AXES, Grid, left_out, left_out_words
from taciturn.experiments.grid_folder import SweepFolder
from taciturn.experiments.runner import (
    ask_frontier,
    ask_sweep,
    asked_before,
    compared,
    default_frontier_folder,
    default_sweep_folder,
    frontier_folder,
    run_frontier,
    run_grid,
    to_begin,
)
from taciturn.experiments.sweep_results import Sweep, at_words, notes, summary_table, verdict

PANEL = "Sweep settings"
MOST_LINES = 20  # comparisons that a terminal shows


@click.command(context_settings={"show_default": True})
@click.argument("config", required=False, type=click.Path(path_type=Path))
@click.option(
    "--over", multiple=True, metavar="NAME=V1,V2,...", panel=PANEL, help="a setting to sweep, and its values; repeat it"
)
@click.option(
    "--compare",
    multiple=True,
    metavar="NAME",
    panel=PANEL,
    help="the setting whose values are compared in pairs [default: algorithm, else the first that varies]",
)
@click.option("--resume", type=click.Path(path_type=Path), metavar="FOLDER", panel=PANEL, help="go on with a sweep")
@click.option("--dry-run", is_flag=True, panel=PANEL, help="list the points and what they would spend, and end")
@click.option("--yes", is_flag=True, panel=PANEL, help="allow more than 10,000 runs")
@click.option("--json", "as_json", is_flag=True, panel=PANEL, help="print one JSON object, and nothing else, on stdout")
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
    """Train at every point of a grid of settings, and say which differences are more than chance.

    Any setting below can be swept with --over. Algorithms, budgets and seeds share every pass over the data in one run
    folder; each combination of the others gets a run folder, which every other command takes. Differences are paired
    over seeds. Stopped or killed, the same command goes on. It says first what all runs together would spend.

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
        _check_alone(config, over, given)
        folder = SweepFolder(resume)
        grid, by = folder.read()
        by = compared(grid, compare) if compare else by
    else:
        grid, by = ask_sweep(config, _parse(over), compare, given)
        folder = SweepFolder(Path(given["out"]) if "out" in given else default_sweep_folder(grid))
    if dry_run:
        check_ledger(to_begin(folder, grid))
        preview(grid, as_json)
        return
    with at_work(folder) as watcher, stop_signals(stderr.print) as stop:
        done = run_grid(folder, grid, by, yes=yes, say=watcher.say, watch=watcher, stop=stop)
    if as_json:
        print_json(done.summary)
    else:
        _show(done)


def _parse(over: tuple[str, ...]) -> dict[str, str]:
    """NAME=V1,V2,... of every --over."""
    found: dict[str, str] = {}
    for text in over:
        name, sign, values = text.partition("=")
        if not (name and sign and values):
            raise InputError(f"over is '{text}': it must be NAME=VALUE,VALUE, as in clip=0.5,1,2")
        if name.replace("_", "-") in found:
            raise InputError(f"{name} is swept twice: give all of its values in one --over")
        found[name.replace("_", "-")] = values
    return found


def _check_alone(config: Path | None, over: tuple[str, ...], given: dict[str, Any]) -> None:
    if config is not None or over or given:
        raise InputError("resume takes its settings from the sweep's own sweep.toml: give no others beside it")


def preview(grid: Grid, as_json: bool) -> None:
    """The points of a grid, and what they would spend."""
    cost = cost_of(grid)
    if as_json:
        points = [
            {"point": point.name, **point.values, "runs": point.runs, "rounds": rounds}
            for point, rounds in zip(grid.points, cost.rounds, strict=True)
        ]
        spending = [
            {
                **one.records._asdict(),
                "runs": one.runs,
                "epsilon": one.epsilon,
                "delta": one.delta,
                "seeded": one.seeded,
            }
            for one in cost.spending
        ]
        print_json({"points": points, "runs": grid.runs, "spending": spending})
        return
    rows = [
        (point.name, ", ".join(point.settings.algorithm), str(point.runs), str(rounds))
        for point, rounds in zip(grid.points, cost.rounds, strict=True)
    ]
    print_table(("point", "algorithms", "runs", "rounds in all"), rows, left=2)
    stdout.print()
    folders = f"{len(grid.points)} point{'s' * (len(grid.points) > 1)}"
    runs = f"{grid.runs:,} run{'s' * (grid.runs > 1)}"
    for sentence in (f"{folders}, {runs}; nothing was trained", *cost.sentences()):
        stdout.print(sentence, soft_wrap=True, highlight=False)


def _show(done: Sweep) -> None:
    for name, words in done.failed.items():
        stdout.print(f"{name} did not end: {words}", soft_wrap=True, highlight=False)
    if not done.means:
        raise InputError(f"no point of {done.path} came to an end: see above")
    print_table(*summary_table(done.means, done.unit, done.regression))
    stdout.print()
    for one in done.comparisons[:MOST_LINES]:
        at = at_words(one.at)
        stdout.print(f"{at}{': ' if at else ''}{verdict(one, done.regression)}", soft_wrap=True, highlight=False)
    if len(done.comparisons) > MOST_LINES:
        stdout.print(f"and {len(done.comparisons) - MOST_LINES} more comparisons, in comparisons.csv", highlight=False)
    hardened = any(point.settings.noise == "hardened" for point in done.grid.points)
    for line in notes(done.comparisons, [found.n for found in done.means.values()], done.unit, hardened):
        stdout.print(line, soft_wrap=True, highlight=False)
    if done.private:
        words = "these test errors are computed from private records without noise: for their owner alone"
        stdout.print(words, soft_wrap=True, highlight=False)
    place = done.folder.place(done.private)
    stdout.print(f"tables, page and picture are in {place}", soft_wrap=True, highlight=False)


FRONTIER_PANEL = "Frontier settings"


@click.command(context_settings={"show_default": True})
@click.argument("config", required=False, type=click.Path(path_type=Path))
@list_flag(
    "algorithm",
    FRONTIER_PANEL,
    "methods [default: objp,dpgd under agents, else objw,dpgd]; those that fit a trust model run",
)
@list_flag("trust", FRONTIER_PANEL, "who is trusted [default: agents,secure-sum,server]")
@list_flag("features", FRONTIER_PANEL, "public feature maps [default: the data set's own]")
@list_flag("total_epsilon", FRONTIER_PANEL, "budgets of a whole run [default: 0.5,1,3,8]; inf: no noise")
@click.option("--seeds", metavar="NUMBER", panel=FRONTIER_PANEL, help="noise seeds of every point [default: 3]")
@click.option(
    "--resume", type=click.Path(path_type=Path), metavar="FOLDER", panel=FRONTIER_PANEL, help="go on with a frontier"
)
@click.option(
    "--dry-run", is_flag=True, panel=FRONTIER_PANEL, help="list the run folders and what they would spend, and end"
)
@click.option("--yes", is_flag=True, panel=FRONTIER_PANEL, help="allow more than 10,000 runs")
@click.option(
    "--json", "as_json", is_flag=True, panel=FRONTIER_PANEL, help="print one JSON object, and nothing else, on stdout"
)
@setting_flags(groups=GROUPS, but={*AXES, "seeds"})
def frontier(config: Path | None, resume: Path | None, dry_run: bool, yes: bool, as_json: bool, **flags: Any) -> None:
    """How good a model can be with a total epsilon: test error against the budget, for every method and trust model.

    A run folder for each feature map and trust model holds all its methods, budgets and seeds. Methods run with the
    planner's values, from public facts alone, but for what you give; one that does not fit a trust model is left out
    there, and that is said. Every point comes with its interval over seeds, what its ledger spent and what one agent
    sent and received. Stopped or killed, the same command goes on. It says first what all runs together would spend.

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
        if config is not None or given:
            raise InputError(
                "resume takes its settings from the frontier's own frontier.toml: give no others beside it"
            )
        folder = frontier_folder(resume)
        grid = asked_before(folder)
    else:
        grid = ask_frontier(config, given)
        folder = frontier_folder(given.get("out") or default_frontier_folder(grid))
    if dry_run:
        check_ledger(to_begin(folder, grid))
        preview(grid, as_json)
        if not as_json:
            _say(*left_out_words(left_out(grid.over["trust"], grid.over["algorithm"])))
        return
    with at_work(folder) as watcher, stop_signals(stderr.print) as stop:
        done = run_frontier(folder, grid, yes=yes, say=watcher.say, watch=watcher, stop=stop)
    if as_json:
        print_json(done.document)
    else:
        _show_frontier(done)


def _show_frontier(done: Frontier) -> None:
    headings, rows = table(done.points, done.regression, TERMINAL)
    print_table(headings, rows, left=sum(name in TEXT for name in headings))
    _say("", *explained(done.points, done.regression), *done.left_out, *rests_on(done.given), *done.spent)
    if done.private:
        _say(OWNERS)
    _say("", f"page, picture and the whole table, with spent ε and what was received, are in {done.place}")
    if not done.again:
        _say(NOT_AGAIN)
    for trust, command in done.again.items():
        _say(f"the best under {trust} at the smallest budget, again:", f"  {command}")


def _say(*lines: str) -> None:
    for line in lines:
        stdout.print(line, soft_wrap=True, highlight=False)
