"""`taciturn ledger`: what a run spent, or all studies on a data set, and moving a ledger between machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import rich_click as click

from taciturn.cli.output import JSON, PATH, print_json, print_table, say
from taciturn.errors import InputError, missing_file, unknown_name
from taciturn.privacy.accountants import describe_accountant
from taciturn.privacy.budget import BudgetLedger, is_reservation_held, reservation_folder
from taciturn.privacy.budget_state import RESERVED, STARTED, VIOLATED, BudgetState, StudyReservation
from taciturn.privacy.ledger_transfer import read_request
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.privacy.signatures import read_public_key
from taciturn.reporting.statements import PAPER_HEADLINE, headline
from taciturn.reporting.tables import format_epsilon
from taciturn.runs.folder import RunFolder
from taciturn.runs.ledger import SlotCounts
from taciturn.runs.records import PrivacyTotals, RunTotals
from taciturn.settings.rules import one_of, real

SHOWN_DELTAS = (1e-5, 1e-7, 1e-9)
NOT_VERIFIED = (
    "not verified: the hash chain detects damage, but anyone can compute such a chain; without a key nothing shows who "
    "wrote these lines ('taciturn ledger verify {path} --key KEY.pub')"
)
LOST = (
    "taken over from a lost machine without a hand-over: what was reserved or spent after this copy was made is not "
    "known, and another copy may be in use"
)
COST_NAMES = {"gdp": "mu^2", "zcdp": "zCDP"}
ADDED_AS = {"gdp": "Gaussian DP", "zcdp": "zCDP"}


class PathGroup(click.RichGroup):
    """A group whose default command is `show`: a path in place of a command is shown."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `show` before anything that is not the name of a command."""
        if args and args[0] not in self.commands and not {"-h", "--help"} & set(args):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=PathGroup)
def ledger() -> None:
    """Show what a run, or all studies on a data set, have spent and what is left.

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
@click.argument("path", type=PATH)
@JSON
def show(path: Path, as_json: bool) -> None:
    """Add up the ledger of a run folder or of a data set, and list its reservations with their state.

    Damage is detected. Forgery is not, because anyone can compute a valid chain; 'taciturn ledger verify' detects it.

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
        print_budget(state)
        _print_reservations(path, state.studies, state.rule.accountant if state.rule else "gdp")
    else:
        found = open_run_folder(path).read_ledger()
        if as_json:
            slots = {"slots": {agent: counts._asdict() for agent, counts in found.slots.items()}} if found.slots else {}
            print_json({"run": str(path), **found.totals, **slots, "verified": False})
            return
        print_totals(found.totals)
        _print_slots(found.slots)
    say(NOT_VERIFIED.format(path=path))


@ledger.command()
@click.argument("file", type=PATH)
@click.option("--total-epsilon", required=True, metavar="NUMBER", help="what all studies together may spend")
@click.option("--delta", default="1e-6", metavar="NUMBER", help="delta of the total [default: 1e-6]")
@click.option(
    "--adjacency",
    default="add-remove",
    metavar="VALUE",
    help="add-remove or replace-one, of all its studies [default: add-remove]",
)
@click.option("--unit", default="record", metavar="TEXT", help="record, or a schema's unit column [default: record]")
@click.option("--data", "name", default="", metavar="TEXT", help="a name for the data, shown in listings")
@click.option("--further", is_flag=True, help="allow a second ledger for the same records: their totals add up")
def init(file: Path, total_epsilon: str, delta: str, adjacency: str, unit: str, name: str, further: bool) -> None:
    """Create the ledger of a data set over all studies; every run that names it reserves its whole plan there.

    This machine remembers which records have which ledger, by a keyed digest that never leaves it. A second ledger for
    the same table is refused unless it was created with --further; the order of the rows does not matter. The check
    prevents mistakes, not attacks: one edited row evades it.

    \b
    Examples:
      taciturn ledger init patients.ledger --total-epsilon 3 --delta 1e-6
      taciturn ledger init more.ledger --total-epsilon 1 --further
    """
    budget = real(0.0)("total-epsilon", total_epsilon)
    relation = one_of("adjacency", lambda: ADJACENCIES)("adjacency", adjacency)
    BudgetLedger.create(file, name or file.stem, budget, real(0.0, 1.0)("delta", delta), relation, unit, further)
    say(f"{file}: use it with 'taciturn run --ledger {file}'")


@ledger.command("give-back")
@click.argument("file", type=PATH)
@click.argument("reservation", required=False)
@click.option("--all", "every", is_flag=True, help="every reservation that never started and that no process holds")
def give_back(file: Path, reservation: str | None, every: bool) -> None:
    """Give back what was reserved for a run that never started, such as one that was killed while reading records.

    A reservation has started once noise may have been drawn; the ledger records that before the first draw. A started
    reservation is never given back: 'taciturn resume' of its folder continues and settles it, and until then its whole
    plan stays spent. The first digits of RESERVATION are enough.

    \b
    Examples:
      taciturn ledger give-back patients.ledger 3f9a2c
      taciturn ledger give-back patients.ledger --all
    """
    budget = BudgetLedger.open(file)
    studies = budget.state().studies
    if every == (reservation is not None):
        raise InputError("give the first digits of one reservation, or --all; 'taciturn ledger FILE' lists them")
    if reservation is None:
        chosen = [s for s in studies if s.state == RESERVED and not is_reservation_held(s.reservation)]
    else:
        chosen = [s for s in studies if s.reservation.startswith(reservation)]
        if len(chosen) != 1:
            raise unknown_name("reservation", reservation, [s.reservation[:12] for s in studies])
    for study in chosen:
        budget.give_back(study.reservation)
        say(f"given back: {study.reservation[:12]}, reserved for {_study_name(study.study)}")
    if not chosen:
        say("nothing to give back: every reservation has started, has ended, or is held by a process")


@ledger.command("hand-over")
@click.argument("file", type=PATH)
@click.option("--to", type=PATH, required=True, metavar="REQUEST", help="the request of the new machine")
def hand_over(file: Path, to: Path) -> None:
    """Close a ledger on this machine so that the machine that requested it can adopt it.

    REQUEST is the file that 'taciturn ledger request --out REQUEST' writes on the new machine. Afterwards copy FILE
    there and adopt it. Runs that have started and not ended stay charged with their whole plan and cannot continue.

    \b
    Examples:
      taciturn ledger hand-over patients.ledger --to new-machine.request
    """
    budget, request = BudgetLedger.open(file), read_request(to)
    unfinished = [s for s in budget.state().studies if s.state == STARTED]
    budget.hand_over(request)
    for study in unfinished:
        say(f"{_study_name(study.study)} has started and not ended: its whole plan stays spent; it cannot continue")
    say(f"{file}: closed here; copy it to machine {request.machine}, and run 'taciturn ledger adopt' there")


@ledger.command()
@click.argument("file", type=PATH)
@click.option("--key", type=PATH, metavar="KEY.pub", help="require that this key handed it over")
@click.option("--lost-machine", is_flag=True, help="adopt without a hand-over, because the old machine is lost")
def adopt(file: Path, key: Path | None, lost_machine: bool) -> None:
    """Continue a ledger that another machine handed over to this one.

    A move has three steps: 'taciturn ledger request' here, 'taciturn ledger hand-over' on the old machine, then this
    command. It refuses a copy from before the hand-over, a second adoption, and any other machine, even one with a copy
    of this machine's keys or of its whole state folder. --lost-machine accepts a copy as it is: what was spent after
    the copy was made is then not known, and another copy may be in use. The ledger says so from then on.

    \b
    Examples:
      taciturn ledger request --out new-machine.request
      taciturn ledger adopt patients.ledger
      taciturn ledger adopt patients.ledger --key old-machine.pub
      taciturn ledger adopt patients.ledger --lost-machine
    """
    BudgetLedger.adopt(file, lost_machine, read_public_key(key).id if key else "")
    say(f"{file}: adopted; this machine keeps its head from now on")
    if lost_machine:
        say(f"WARNING: {LOST}")


def open_run_folder(path: Path) -> RunFolder:
    """Return the run folder of a ledger.

    Raises
    ------
    InputError
        If the path does not exist or is not a run folder.
    """
    if not path.exists():
        raise missing_file("run folder or ledger", path)
    return RunFolder.open(path)


def print_totals(totals: PrivacyTotals) -> None:
    """Print the totals of a run's ledger."""
    runs = totals.runs
    if not totals.events:
        raise InputError("nothing was released yet: the ledger contains only the plan")
    say(PAPER_HEADLINE if totals.mode == "paper" else headline(totals))
    headings = ("run", "agents", "spent", "left", *(f"δ {delta:g}" for delta in SHOWN_DELTAS), "δ 0")
    several = len({run.algorithm for run in runs}) > 1
    print_table(headings, [row for run in runs for row in _agent_rows(run, several)], left=2)
    accountants = dict.fromkeys(run.accountant for run in runs)
    names = "; ".join(describe_accountant(name) for name in accountants)
    say(f"epsilon spent and left at δ {totals.delta:g}, and spent at other δ, by {names}")
    if len(runs) > 1:
        total = format_epsilon(totals.all_runs_epsilon)
        say(f"total ε for an observer who sees all {len(runs)} runs: {total}")


def _print_slots(slots: Mapping[str, SlotCounts]) -> None:
    """Print in how many slots of a secure sum agents were charged, those with the same counts together."""
    groups: dict[SlotCounts, list[str]] = {}
    for agent, counts in slots.items():
        groups.setdefault(counts, []).append(agent)
    for counts, names in groups.items():
        again = counts.slots - counts.rounds
        repeated = f"; {again} of them because a sum was lost and its round was retried" if again else ""
        say(f"{_shorten(names)}: charged in {counts.slots} slots of a secure sum, for {counts.rounds} rounds{repeated}")


def _agent_rows(run: RunTotals, several: bool) -> list[tuple[str, ...]]:
    """Return one row for all agents that spent the same; `several` adds the run's algorithm."""
    label = f"{run.run} {run.algorithm}" if several else str(run.run)
    groups: dict[tuple[str, ...], list[str]] = {}
    for agent in run.agents:
        others = (agent.by_delta[f"{delta:g}"] for delta in SHOWN_DELTAS)
        figures = (agent.epsilon, agent.left, *others, agent.pure_epsilon)
        groups.setdefault(tuple(map(format_epsilon, figures)), []).append(agent.agent)
    return [(label, _shorten(names), *figures) for figures, names in groups.items()]


def _shorten(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]} ({len(names)})"


def _study_name(name: str) -> str:
    """Return a study's name, with the first digits of a federation's experiment."""
    first, slash, experiment = name.partition("/")
    return f"{first}{slash}{experiment[:8]}"


def print_budget(state: BudgetState) -> None:
    """Print the totals of a data set's ledger, and warnings about it."""
    rule = "no study yet"
    if state.rule:
        rule = f"added up as {ADDED_AS[state.rule.accountant]}: two budgets together cost less than their sum"
    say(
        f"{state.data}: epsilon {format_epsilon(state.epsilon_used)} of {state.total_epsilon:g} used or "
        f"reserved at delta {state.delta:g}; {state.room} ({rule})"
    )
    if state.split:
        sides = (format_epsilon(state.epsilon_of_side(side)) for side in (state.used, state.used_held_out))
        train, held_out = sides
        say(
            f"of this, training records have used {train} and held-out records {held_out}: under the split "
            f"{state.split[:12]} a record is either trained on or held out; another split is charged to both"
        )
    if state.further:
        say("created with --further: the same records may have another ledger, and the totals of both add up")
    if state.handed_over:
        say(f"handed over to key {state.handed_over}: it continues there, and this copy is closed")
    for when in state.adopted:
        say(f"adopted on {when}" + (f": WARNING: {LOST}" if when in state.lost_machines else " after a hand-over"))
    for study in state.studies:
        name = _study_name(study.study)
        if study.state == VIOLATED:
            say(
                f"WARNING: {name} ({study.reservation[:12]}) is violated: it spent more than was reserved, or "
                "released what its plan does not cover; everything it spent is counted, and at least its whole plan"
            )
        if study.non_private:
            say(f"{name} is non_private: {study.non_private}; its noise protected no one, and its cost is nominal")


def _print_reservations(path: Path, studies: Sequence[StudyReservation], accountant: str) -> None:
    """Print studies with their states and costs, and what can be done about unfinished ones."""
    rows = []
    for s in studies:
        times = s.time[:16], s.settled[:16]
        rows.append((_study_name(s.study), s.reservation[:12], s.state, *times, f"{getattr(s.cost, accountant):.4g}"))
    if rows:
        print_table(("study", "reservation", "state", "begun", "ended", COST_NAMES[accountant]), rows, left=5)
    for s in studies:
        short = s.reservation[:12]
        name = f"{_study_name(s.study)} ({short})"
        if s.is_open and is_reservation_held(s.reservation):
            say(f"{name}: a process is working under it now")
        elif s.state == RESERVED:
            say(f"{name} never started: 'taciturn ledger give-back {path} {short}' gives it back")
        elif s.state == STARTED:
            folder = _known_folder(s)
            resume = f"'taciturn resume {folder}' continues it" if folder else "its folder is not known here"
            say(f"{name} has started and not ended: {resume}; until it ends, its whole plan counts")


def _known_folder(study: StudyReservation) -> str:
    """Return the path of a study's run folder, or an empty string if it no longer exists."""
    folder = reservation_folder(study.reservation)
    return folder if folder and Path(folder).is_dir() else ""
