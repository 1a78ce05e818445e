"""`tacit ledger`: what was spent, in a run or over all studies of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rich_click as click

from tacit.cli.output import print_json, print_table, stdout
from tacit.errors import InputError, absent
from tacit.privacy.accounting import EXPLAINED
from tacit.privacy.guarantee import headline
from tacit.privacy.sensitivity import ADJACENCIES
from tacit.privacy.statement import PAPER_HEADLINE
from tacit.privacy.totals import ledger_totals
from tacit.results.account import Account
from tacit.results.folder import RunFolder
from tacit.settings.rules import one_of, real
from tacit.views.tables import format_epsilon

SHOWN_DELTAS = (1e-5, 1e-7, 1e-9)
COUNTED = {"gdp": "mu^2", "zcdp": "zCDP"}
ADDED = {
    "gdp": "budgets add up as Gaussian DP, by which two halves are less than a whole",
    "zcdp": "budgets add up as zCDP, by which two halves are less than a whole",
}


class PathGroup(click.RichGroup):
    """A group whose command may be left out: a path in its place is shown."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `show` before anything that is not a command's name."""
        if args and args[0] not in self.commands and not {"-h", "--help"} & set(args):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=PathGroup)
def ledger() -> None:
    """What was spent and what is left: of a run, or of a data set over all its studies.

    \b
    Examples:
      tacit ledger runs/20260101-120000-mnist14-objp
      tacit ledger runs/a --json
      tacit ledger init patients.ledger --total-epsilon 3 --delta 1e-6
      tacit run --noise hardened --ledger patients.ledger --total-epsilon 1
      tacit ledger patients.ledger
    """


@ledger.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def show(path: Path, as_json: bool) -> None:
    """Add up the ledger of a run folder, or a ledger over studies; tampering is found and said.

    \b
    Examples:
      tacit ledger runs/a
      tacit ledger patients.ledger --json
    """
    if path.is_file():
        state = Account.open(path).state()
        print_json(state) if as_json else _print_account(path, state)
        return
    if not path.exists():
        raise absent("run folder or ledger", path)
    totals = ledger_totals(RunFolder.open(path).read_ledger())
    print_json({"run": str(path), **totals}) if as_json else _print_run(totals)


@ledger.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--total-epsilon", required=True, metavar="NUMBER", help="what all studies together may spend")
@click.option("--delta", default="1e-6", metavar="NUMBER", help="at this delta [default: 1e-6]")
@click.option("--adjacency", default="add-remove", metavar="VALUE", help="of all its studies [default: add-remove]")
@click.option("--unit", default="record", metavar="TEXT", help="record, or a schema's unit column [default: record]")
@click.option("--data", "name", default="", metavar="TEXT", help="what the ledger is of, for its readers")
def init(file: Path, total_epsilon: str, delta: str, adjacency: str, unit: str, name: str) -> None:
    """Begin the ledger of a data set over all studies; every run that names it reserves its whole plan there.

    \b
    Examples:
      tacit ledger init patients.ledger --total-epsilon 3 --delta 1e-6
    """
    budget = real(0.0)("total-epsilon", total_epsilon)
    relation = one_of("adjacency", lambda: ADJACENCIES)("adjacency", adjacency)
    Account.create(file, name or file.stem, budget, real(0.0, 1.0)("delta", delta), relation, unit)
    stdout.print(f"{file}: use it with 'tacit run --noise hardened --ledger {file}'", soft_wrap=True, highlight=False)


@ledger.command()
@click.argument("file", type=click.Path(path_type=Path))
def adopt(file: Path) -> None:
    """Take a ledger that was moved here from another machine as it is; the ledger will say so.

    \b
    Examples:
      tacit ledger adopt patients.ledger
    """
    Account.adopt(file)
    stdout.print(f"{file}: its head is kept on this machine from now on", soft_wrap=True, highlight=False)


def _print_run(totals: Mapping[str, Any]) -> None:
    if not totals["runs"]:
        raise InputError("nothing was released yet: the ledger holds the plan alone")
    stdout.print(PAPER_HEADLINE if totals["mode"] == "paper" else headline(totals), soft_wrap=True, highlight=False)
    headings = ("run", "agents", "spent", "left", *(f"δ {delta:g}" for delta in SHOWN_DELTAS), "δ 0")
    named = len({run["algorithm"] for run in totals["runs"]}) > 1
    print_table(headings, [row for run in totals["runs"] for row in _rows(run, named)], left=2)
    bounds = dict.fromkeys(run["accountant"] for run in totals["runs"])
    names = "; ".join(EXPLAINED[bound] for bound in bounds)
    stdout.print(f"epsilon spent and left at δ {totals['delta']:g}, and spent at other δ, by {names}", soft_wrap=True)
    if len(totals["runs"]) > 1:
        together = format_epsilon(totals["all_runs_epsilon"])
        stdout.print(f"all {len(totals['runs'])} runs shown to the same eyes: ε {together}", soft_wrap=True)


def _rows(run: Mapping[str, Any], named: bool) -> list[tuple[str, ...]]:
    """One row for all agents that spent the same; `named`: with the run's method."""
    label = f"{run['run']} {run['algorithm']}" if named else str(run["run"])
    groups: dict[tuple[str, ...], list[str]] = {}
    for agent in run["agents"]:
        others = (agent["by_delta"][f"{delta:g}"] for delta in SHOWN_DELTAS)
        figures = (agent["epsilon"], agent["left"], *others, agent["pure_epsilon"])
        groups.setdefault(tuple(format_epsilon(figure) for figure in figures), []).append(agent["agent"])
    return [(label, _names(names), *figures) for figures, names in groups.items()]


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]} ({len(names)})"


def _study(name: str) -> str:
    """A study's name; of a federation's experiment the beginning."""
    first, slash, experiment = name.partition("/")
    return f"{first}{slash}{experiment[:8]}"


def _print_account(path: Path, state: Mapping[str, Any]) -> None:
    stdout.print(
        f"{state['data']}: epsilon {format_epsilon(state['epsilon_used'])} of {state['total_epsilon']:g} used or set "
        f"aside at delta {state['delta']:g}; one more study of up to {state['epsilon_next']:.4g} fits "
        f"({ADDED[state['rule']['accountant']] if state['rule'] else 'no study yet'})",
        soft_wrap=True,
        highlight=False,
    )
    for when in state["adopted"]:
        stdout.print(f"adopted as it was on {when}: what came before was not checked here", highlight=False)
    for study in state["studies"]:
        if "non_private" in study:
            stdout.print(
                f"{_study(study['study'])} is non_private: {study['non_private']}; its noise protected nobody, "
                "and its cost here is nominal",
                soft_wrap=True,
                highlight=False,
            )
    by = state["rule"]["accountant"] if state["rule"] else "gdp"
    rows = [
        (_study(s["study"]), s["time"][:16], s.get("settled", "set aside")[:16], f"{s['cost'][by]:.4g}")
        for s in state["studies"]
    ]
    if rows:
        print_table(("study", "begun", "ended", COUNTED[by]), rows, left=3)
