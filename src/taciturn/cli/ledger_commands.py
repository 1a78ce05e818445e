"""`taciturn ledger`: what was spent, in a run or over all studies of a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from taciturn.cli.output import print_json, print_table, stdout
from taciturn.errors import InputError, missing_file, unknown_name
from taciturn.privacy.accountants import EXPLAINED
from taciturn.privacy.budget import BudgetLedger, is_reservation_held, reservation_folder
from taciturn.privacy.budget_state import RESERVED, STARTED, VIOLATED, BudgetState, StudyReservation
from taciturn.privacy.ledger import ledger_totals
from taciturn.privacy.ledger_transfer import read_request
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.privacy.signatures import read_public_key
from taciturn.reporting.statements import PAPER_HEADLINE, headline
from taciturn.reporting.tables import format_epsilon
from taciturn.runs.folder import RunFolder
from taciturn.settings.rules import one_of, real

SHOWN_DELTAS = (1e-5, 1e-7, 1e-9)
NOT_VERIFIED = (
    "not verified: the chain shows damage, and anybody can compute such a chain; without a key nothing says whose "
    "lines these are ('taciturn ledger verify {path} --key KEY.pub')"
)
LOST = (
    "taken over from a lost machine without a hand-over: what was set aside or spent after this copy was made is not "
    "known, and another copy may be in use"
)
COUNTED = {"gdp": "mu^2", "zcdp": "zCDP"}
ADDED = {
    "gdp": "added up as Gaussian DP: two budgets cost less than their sum",
    "zcdp": "added up as zCDP: two budgets cost less than their sum",
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
      taciturn ledger runs/20260101-120000-mnist14-objp
      taciturn ledger runs/a --json
      taciturn ledger init patients.ledger --total-epsilon 3 --delta 1e-6
      taciturn run --data patients.csv --schema schema.toml --ledger patients.ledger --total-epsilon 1
      taciturn ledger patients.ledger
      taciturn ledger give-back patients.ledger --all
      taciturn ledger verify runs/a --key hospital.pub
    """


@ledger.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def show(path: Path, as_json: bool) -> None:
    """Add up the ledger of a run folder, or a ledger over studies, and list its reservations with their state.

    Damage is found and said. Forgery is not, for anybody can compute such a chain: `taciturn ledger verify` finds it.

    \b
    Examples:
      taciturn ledger runs/a
      taciturn ledger patients.ledger --json
    """
    if path.is_file():
        state = BudgetLedger.open(path).state()
        if as_json:
            studies = [
                s.to_json() | {"held": is_reservation_held(s.reservation), "folder": _known_folder(s)}
                for s in state.studies
            ]
            print_json(state.to_json() | {"studies": studies, "verified": False})
            return
        account_words(path, state)
        _print_reservations(path, state.studies, state.rule.accountant if state.rule else "gdp")
        _say(NOT_VERIFIED.format(path=path))
        return
    if not path.exists():
        raise missing_file("run folder or ledger", path)
    totals = ledger_totals(RunFolder.open(path).read_ledger())
    if as_json:
        print_json({"run": str(path), **totals, "verified": False})
        return
    print_totals(totals)
    _say(NOT_VERIFIED.format(path=path))


@ledger.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--total-epsilon", required=True, metavar="NUMBER", help="what all studies together may spend")
@click.option("--delta", default="1e-6", metavar="NUMBER", help="at this delta [default: 1e-6]")
@click.option("--adjacency", default="add-remove", metavar="VALUE", help="of all its studies [default: add-remove]")
@click.option("--unit", default="record", metavar="TEXT", help="record, or a schema's unit column [default: record]")
@click.option("--data", "name", default="", metavar="TEXT", help="what the ledger is of, for its readers")
@click.option("--further", is_flag=True, help="for records that have a ledger already: what both allow adds up")
def init(file: Path, total_epsilon: str, delta: str, adjacency: str, unit: str, name: str, further: bool) -> None:
    """Begin the ledger of a data set over all studies; every run that names it reserves its whole plan there.

    This machine remembers, by a keyed digest that never leaves it, which records have which ledger. A second ledger for
    the same table is refused, unless it was begun with --further; sorting the rows changes nothing. It is there for
    mistakes: one edited row evades it.

    \b
    Examples:
      taciturn ledger init patients.ledger --total-epsilon 3 --delta 1e-6
      taciturn ledger init more.ledger --total-epsilon 1 --further
    """
    budget = real(0.0)("total-epsilon", total_epsilon)
    relation = one_of("adjacency", lambda: ADJACENCIES)("adjacency", adjacency)
    BudgetLedger.create(file, name or file.stem, budget, real(0.0, 1.0)("delta", delta), relation, unit, further)
    stdout.print(f"{file}: use it with 'taciturn run --ledger {file}'", soft_wrap=True, highlight=False)


@ledger.command("give-back")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("reservation", required=False)
@click.option("--all", "every", is_flag=True, help="every reservation that never started and that no process holds")
def give_back(file: Path, reservation: str | None, every: bool) -> None:
    """Give back what was set aside for a run that never started, as one that was killed while it read its records.

    A reservation has started once noise may have been drawn: it is in the ledger before the first draw. What started is
    never given back; 'taciturn resume' of its folder goes on with it and settles it, else its whole plan stays spent. The
    first digits of RESERVATION are enough.

    \b
    Examples:
      taciturn ledger give-back patients.ledger 3f9a2c
      taciturn ledger give-back patients.ledger --all
    """
    account = BudgetLedger.open(file)
    studies = account.state().studies
    if every == (reservation is not None):
        raise InputError("give the first digits of one reservation, or --all: 'taciturn ledger FILE' lists them")
    chosen = [s for s in studies if s.state == RESERVED and not is_reservation_held(s.reservation)]
    if reservation is not None:
        chosen = [s for s in studies if s.reservation.startswith(reservation)]
        if len(chosen) != 1:
            raise unknown_name("reservation", reservation, [s.reservation[:12] for s in studies])
    for study in chosen:
        account.give_back(study.reservation)
        _say(f"given back: {study.reservation[:12]}, set aside for {_study(study.study)}")
    if not chosen:
        _say("nothing to give back: every reservation has started, has ended, or is held by a process")


@ledger.command("hand-over")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--to", "to", type=click.Path(path_type=Path), required=True, metavar="REQUEST", help="its new machine's")
def hand_over(file: Path, to: Path) -> None:
    """Close a ledger on this machine for another one to go on with; only the machine that asked for it can adopt it.

    REQUEST is what 'taciturn ledger request --out REQUEST' writes on the new machine. Then copy FILE there, and adopt it.
    Runs that have started and not ended stay at their whole plan: they cannot go on after this.

    \b
    Examples:
      taciturn ledger hand-over patients.ledger --to new-machine.request
    """
    account, request = BudgetLedger.open(file), read_request(to)
    left = [s for s in account.state().studies if s.state == STARTED]
    account.hand_over(request)
    for study in left:
        _say(f"{_study(study.study)} has started and not ended: its whole plan stays spent, and it cannot go on")
    _say(f"{file}: closed here; copy it to machine {request.machine}, and 'taciturn ledger adopt' it there")


@ledger.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path), metavar="KEY.pub", help="demand that this key handed it over")
@click.option("--lost-machine", is_flag=True, help="there is no hand-over, for the machine it was on is lost")
def adopt(file: Path, key: Path | None, lost_machine: bool) -> None:
    """Go on with a ledger that another machine handed over to this one.

    It is a move, in three steps: 'taciturn ledger request' here, 'taciturn ledger hand-over' on the old machine, this. A copy
    from before the hand-over is refused, so is a second adoption, and so is any other machine, also one with a copy of
    this machine's keys or of its whole state folder. --lost-machine takes a copy as it is. What was spent after the
    copy was made is not known then, and another copy may be in use; the ledger says so from then on.

    \b
    Examples:
      taciturn ledger request --out new-machine.request
      taciturn ledger adopt patients.ledger
      taciturn ledger adopt patients.ledger --key old-machine.pub
      taciturn ledger adopt patients.ledger --lost-machine
    """
    BudgetLedger.adopt(file, lost_machine, read_public_key(key).id if key else "")
    _say(f"{file}: it goes on here, and its head is kept on this machine from now on")
    if lost_machine:
        _say(f"WARNING: {LOST}")


def print_totals(totals: Mapping[str, Any]) -> None:
    """The totals of a run's ledger."""
    if not totals["events"]:
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


def account_words(path: Path, state: BudgetState) -> None:
    """The totals of a ledger over studies, and what must be known about it."""
    _say(
        f"{state.data}: epsilon {format_epsilon(state.epsilon_used)} of {state.total_epsilon:g} used or set "
        f"aside at delta {state.delta:g}; one more study of up to {state.epsilon_next:.4g} fits "
        f"({ADDED[state.rule.accountant] if state.rule else 'no study yet'})"
    )
    if state.further:
        _say("begun as a further ledger: the same records may have spent in another one too, and what both say adds up")
    if state.handed_over:
        _say(f"handed over to key {state.handed_over}: it goes on there, and this is what it was")
    for when in state.adopted:
        _say(f"adopted on {when}" + (f": WARNING: {LOST}" if when in state.lost_machines else ", handed over"))
    for study in state.studies:
        if study.state == VIOLATED:
            _say(
                f"WARNING: {_study(study.study)} ({study.reservation[:12]}) is violated: it spent more than was "
                "set aside for it, or released what its plan does not cover; all that it spent is counted, and its "
                "whole plan at least"
            )
        if study.non_private:
            _say(
                f"{_study(study.study)} is non_private: {study.non_private}; its noise protected nobody, "
                "and its cost here is nominal"
            )


def _print_reservations(path: Path, studies: Sequence[StudyReservation], by: str) -> None:
    """The studies with their states; `by` names the cost that is added up."""
    rows = [
        (
            _study(s.study),
            s.reservation[:12],
            s.state,
            s.time[:16],
            s.settled[:16],
            f"{getattr(s.cost, by):.4g}",
        )
        for s in studies
    ]
    if rows:
        print_table(("study", "reservation", "state", "begun", "ended", COUNTED[by]), rows, left=5)
    for s in studies:
        name = f"{_study(s.study)} ({s.reservation[:12]})"
        if s.is_open and is_reservation_held(s.reservation):
            _say(f"{name}: a process works under it now")
        elif s.state == RESERVED:
            _say(f"{name} never started: 'taciturn ledger give-back {path} {s.reservation[:12]}' gives it back")
        elif s.state == STARTED:
            folder = _known_folder(s)
            known = f"'taciturn resume {folder}' goes on with it" if folder else "no folder of it is known here"
            _say(f"{name} has started and not ended: {known}, and until it has ended its whole plan counts")


def _known_folder(study: StudyReservation) -> str:
    """Where a study's run folder is, if it is still there."""
    folder = reservation_folder(study.reservation)
    return folder if folder and Path(folder).is_dir() else ""


def _say(sentence: str) -> None:
    stdout.print(sentence, soft_wrap=True, highlight=False)
