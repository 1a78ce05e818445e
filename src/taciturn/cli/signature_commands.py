"""`taciturn ledger key`, `machine`, `request`, `sign`, `verify` and `countersign`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import rich_click as click

from taciturn.cli.ledger_commands import ledger, open_run_folder, print_budget, print_totals
from taciturn.cli.output import JSON, PATH, check_new, print_json, say
from taciturn.core.storage import write_text
from taciturn.errors import CorruptFile
from taciturn.privacy.budget import BudgetLedger, identity_of
from taciturn.privacy.budget_state import BudgetState
from taciturn.privacy.ledger_transfer import TransferRequest, machine_id, share_machine
from taciturn.privacy.signatures import Signable, own_key, read_public_key, read_signing_key
from taciturn.runs.ledger import RunLedger
from taciturn.runs.records import PrivacyTotals
from taciturn.training.finish import signable

MEANING = (
    "A signature shows that the key's holder vouched for these lines. It does not show that the run did what they say"
)
ANOTHER = (
    ", or that there is no other ledger: the holder can sign another one. Only a countersignature, or an earlier check "
    "on this machine, can reveal another ledger."
)
COUNTERSIGNED = ". Another ledger would need the officer's countersignature too."
UNFINISHED = (
    "NOT COMPLETE: this was signed before the run had finished; the run may have continued, and later lines may have "
    "been removed"
)
OPEN_ENDED = (
    "a ledger of a data set has no last line: lines after the last signature that you received may have been removed, "
    "which a first check cannot detect; --officer, or an earlier check on this machine, can."
)


class _OpenedLedger(NamedTuple):
    """A ledger to sign or to check, with its rows."""

    signable: Signable
    rows: Sequence[Mapping[str, object]]


@click.command()
@click.option("--out", type=PATH, metavar="FILE", help="write the public key to this file, for those who verify")
def key(out: Path | None) -> None:
    """Show the signing key of this machine; it is created on first use and kept in the state folder.

    The private key is keys/ledger.key in Taciturn's state folder ($XDG_STATE_HOME/taciturn, else
    ~/.local/state/taciturn). Only you can read it. Anyone who has it can sign in your name. Keep a backup in a safe
    place.

    \b
    Examples:
      taciturn ledger key
      taciturn ledger key --out hospital.pub
    """
    own = own_key()
    if out is None:
        say(f"key {own.public.id}, private key in {own.path}")
        say(own.public.pem.strip())
        return
    check_new(out)
    write_text(out, own.public.pem)
    say(f"{out}: the public key {own.public.id}")


@click.command()
@click.option("--shared", is_flag=True, help="the state folder is shared by several machines over a network")
def machine(shared: bool) -> None:
    """Show the name of this machine, to which data sets' ledgers are bound.

    The name is random. It belongs to the state folder at its path on this system: a copy of the folder, on this or
    another machine, has another name and cannot continue the ledgers in it. Two places have the same name only if the
    path is the same and both systems have the same /etc/machine-id, as a cloned disk has, or none.

    --shared gives this machine's name to all machines that see this folder, from now on. Use it if the state folder is
    on a network file system with locks, on the machine to which the ledgers are bound. Afterwards a copy of the folder
    is no longer detected.

    \b
    Examples:
      taciturn ledger machine
      taciturn ledger machine --shared
    """
    name = share_machine() if shared else machine_id()
    say(f"machine {name}{', for every machine that sees this state folder' if shared else ''}")


@click.command()
@click.option("--out", type=PATH, metavar="FILE", help="write it to this file, to be taken to the old machine")
def request(out: Path | None) -> None:
    """Request a data set's ledger that is bound to another machine: the first step of a move.

    The request contains this machine's name and key and is not secret. 'taciturn ledger hand-over' on the old machine
    takes it; then only this machine can adopt the ledger.

    \b
    Examples:
      taciturn ledger request --out new-machine.request
    """
    own = TransferRequest.own()
    if out is None:
        say(own.text.strip())
        return
    check_new(out)
    write_text(out, own.text)
    say(f"{out}: request of machine {own.machine} with key {own.key_id}")
    say(f"next, on the old machine: 'taciturn ledger hand-over FILE --to {out.name}'")


@click.command()
@click.argument("path", type=PATH)
def sign(path: Path) -> None:
    """Sign the ledger of a run folder or of a data set, in its current state, with this machine's key.

    Certified runs sign their ledgers when they finish or pause, and the sites of a federation when they close a study.
    Use this command for runs that were killed, and for a data set's ledger before another party checks it.

    \b
    Examples:
      taciturn ledger sign patients.ledger
      taciturn ledger sign runs/a
    """
    if path.is_file():
        BudgetLedger.open(path)
    else:
        open_run_folder(path).check_home_machine()
    found = _open_ledger(path)
    signed = found.signable.sign()
    say(f"{found.signable.file}: {signed.statement.lines} lines signed by key {signed.key.id}")


@click.command()
@click.argument("path", type=PATH)
@click.option("--key", "public", type=PATH, required=True, metavar="KEY.pub", help="the organisation's public key")
@click.option("--officer", type=PATH, metavar="OFFICER.pub", help="also require this officer's countersignature")
@click.option("--unfinished", is_flag=True, help="accept the ledger of a run that had not finished when it was signed")
@JSON
def verify(path: Path, public: Path, officer: Path | None, unfinished: bool, as_json: bool) -> int:
    """Check, on any machine, that the key's holder signed every line of a ledger, and add it up.

    Get KEY.pub from its holder, not from the folder that you check. A signature shows that the key's holder vouched for
    these lines. It does not show that the run did what they say. The holder can also write another ledger and sign it:
    this is detected only by --officer, or if this machine verified or countersigned the ledger before.

    A ledger can be truncated to an older signature. For a run this is detected, unless it was signed while paused: such
    a ledger gives exit code 1, or 0 with --unfinished. A data set's ledger never ends, so a first check cannot detect
    truncation; afterwards this machine remembers how long each ledger was and refuses a shorter one.

    \b
    Examples:
      taciturn ledger verify runs/a --key hospital.pub
      taciturn ledger verify runs/paused --key hospital.pub --unfinished
      taciturn ledger verify patients.ledger --key hospital.pub --officer officer.pub
    """
    found = _open_ledger(path)
    organisation, countersigner = read_public_key(public), read_public_key(officer) if officer else None
    totals = _totals(path, found)
    state = found.signable.verify(organisation, countersigner)
    lines, paused = len(found.signable.chain.hashes()) - 1, state == "paused"
    code = 1 if paused and not unfinished else 0
    if as_json:
        verified = {
            "organisation": organisation.id,
            "officer": countersigner.id if countersigner else None,
            "lines": lines,
            "state": state,
            "at_end": not paused,
        }
        print_json({"ledger": str(path), "verified": verified, **totals.to_json()})
        return code
    if paused:
        say(f"{UNFINISHED}{'' if unfinished else '; without --unfinished the exit code is 1'}")
    if isinstance(totals, BudgetState):
        print_budget(totals)
    else:
        print_totals(totals)
    also = f", countersigned by key {countersigner.id}" if countersigner else "; no countersignature was required"
    extent = (
        f"verified so far: the first {lines} lines, of an unknown number," if paused else f"verified: all {lines} lines"
    )
    say(f"{extent} are signed by key {organisation.id}{also}. {MEANING}{COUNTERSIGNED if countersigner else ANOTHER}")
    if state == "open" and not countersigner:
        say(OPEN_ENDED)
    if found.signable.id:
        say(f"This machine remembers these {lines} lines and refuses a shorter or different ledger with this name.")
    else:
        say("A run with seeded noise has no name, so this machine does not remember it.")
    return code


@click.command()
@click.argument("path", type=PATH)
@click.option("--with", "private", type=PATH, metavar="OFFICER.key", help="a private key [default: this machine's]")
@click.option("--key", "public", type=PATH, metavar="KEY.pub", help="require the organisation's signature by this key")
def countersign(path: Path, private: Path | None, public: Path | None) -> None:
    """Countersign, as an officer, what the organisation has signed, and remember it on this machine.

    An operator can write another ledger and sign it with the organisation's key, but cannot countersign it. This
    machine refuses to countersign or verify a ledger that is shorter than the one it has seen, or does not continue it.

    \b
    Examples:
      taciturn ledger countersign runs/a --key hospital.pub
      taciturn ledger countersign patients.ledger --key hospital.pub --with officer.key
    """
    found = _open_ledger(path)
    _totals(path, found)  # lines that cannot be added up are not countersigned
    officer = read_signing_key(private) if private else own_key()
    added = found.signable.countersign(officer, read_public_key(public) if public else None)
    if added.statement.state == "paused":
        say(UNFINISHED)
    say(f"{found.signable.file}: {added.statement.lines} lines countersigned by key {added.key.id}")


def _open_ledger(path: Path) -> _OpenedLedger:
    """Read a ledger and check its hash chain, and its head where this machine keeps it."""
    if path.is_file():
        identity = identity_of(path)
        chain = BudgetLedger(path, identity).chain
        rows = chain.read() if chain.head.exists() else chain.read_unverified()
        return _OpenedLedger(Signable(chain, "studies", identity, "open"), rows)
    folder = open_run_folder(path)
    return _OpenedLedger(signable(folder), folder.read_ledger())


def _totals(path: Path, found: _OpenedLedger) -> BudgetState | PrivacyTotals:
    try:
        return BudgetState.from_rows(found.rows) if path.is_file() else RunLedger.from_rows(found.rows).totals
    except (KeyError, TypeError, IndexError, StopIteration, AttributeError) as error:
        raise CorruptFile(f"{found.signable.chain.path} is not a Taciturn ledger: its lines cannot be read") from error


for command in (key, machine, request, sign, verify, countersign):
    ledger.add_command(command)
