"""`tacit frontier`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from tacit.cli.options import GROUPS, given_settings, list_flag, setting_flags
from tacit.cli.output import print_json, print_table, stderr, stdout
from tacit.cli.sweep import preview
from tacit.cli.sweep_watch import at_work
from tacit.errors import InputError
from tacit.frontiers.grid import AXES, left_out, left_out_words
from tacit.frontiers.outcome import Frontier
from tacit.frontiers.words import NOT_AGAIN, OWNERS, TERMINAL, TEXT, explained, rests_on, table
from tacit.frontiers.work import ask, asked_before, default_place, frontier_folder, run_frontier
from tacit.stopping import stop_signals
from tacit.sweeps.cost import check_ledger
from tacit.sweeps.work import to_begin

PANEL = "Frontier settings"


@click.command(context_settings={"show_default": True})
@click.argument("config", required=False, type=click.Path(path_type=Path))
@list_flag(
    "algorithm", PANEL, "methods [default: objp,dpgd under agents, else objw,dpgd]; those that fit a trust model run"
)
@list_flag("trust", PANEL, "who is trusted [default: agents,secure-sum,server]")
@list_flag("features", PANEL, "public feature maps [default: the data set's own]")
@list_flag("total_epsilon", PANEL, "budgets of a whole run [default: 0.5,1,3,8]; inf: no noise")
@click.option("--seeds", metavar="NUMBER", panel=PANEL, help="noise seeds of every point [default: 3]")
@click.option("--resume", type=click.Path(path_type=Path), metavar="FOLDER", panel=PANEL, help="go on with a frontier")
@click.option("--dry-run", is_flag=True, panel=PANEL, help="list the run folders and what they would spend, and end")
@click.option("--yes", is_flag=True, panel=PANEL, help="allow more than 10,000 runs")
@click.option("--json", "as_json", is_flag=True, panel=PANEL, help="print one JSON object, and nothing else, on stdout")
@setting_flags(groups=GROUPS, but={*AXES, "seeds"})
def frontier(config: Path | None, resume: Path | None, dry_run: bool, yes: bool, as_json: bool, **flags: Any) -> None:
    """How good a model can be with a total epsilon: test error against the budget, for every method and trust model.

    A run folder for each feature map and trust model holds all its methods, budgets and seeds. Methods run with the
    planner's values, from public facts alone, but for what you give; one that does not fit a trust model is left out
    there, and that is said. Every point comes with its interval over seeds, what its ledger spent and what one agent
    sent and received. Stopped or killed, the same command goes on. It says first what all runs together would spend.

    \b
    Examples:
      tacit frontier
      tacit frontier --data mnist --features none,scattering --trust agents,secure-sum --out frontiers/mnist
      tacit frontier --algorithm objp,dpgd,objw --total-epsilon 0.5,1,3,8 --seeds 10
      tacit frontier --data table.csv --schema schema.toml --test-share 0.25 --total-records 400 --agents 3
      tacit frontier --resume frontiers/mnist
      tacit frontier --dry-run
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
        grid = ask(config, given)
        folder = frontier_folder(given.get("out") or default_place(grid))
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
        _show(done)


def _show(done: Frontier) -> None:
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
