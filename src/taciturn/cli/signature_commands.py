"""`taciturn ledger key`, `machine`, `request`, `sign`, `verify` and `countersign`: what other machines must know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import rich_click as click

from taciturn.cli.ledger_commands import account_words, print_totals
from taciturn.cli.output import print_json, stdout
from taciturn.core.storage import write_text
from taciturn.errors import InputError, missing_file
from taciturn.privacy.budget import BudgetLedger, account_state, identity_of
from taciturn.privacy.ledger_transfer import TransferRequest, machine_id, share_machine
from taciturn.privacy.signatures import Signable, own_key, read_public_key, read_signing_key
from taciturn.runs.folder import RunFolder
from taciturn.runs.ledger import RunLedger
from taciturn.runs.records import PrivacyTotals
from taciturn.training.finish import signable

PATH = click.Path(path_type=Path)
SHOWS = (
    "A signature shows that the key's holder stood by these lines; it does not show that the run did what they say, "
    "nor that there is no other ledger: its holder can sign another one, which only a countersigned or remembered "
    "head gives away"
)
UNFINISHED = (
    "NOT AT ITS END: this was signed before the run had ended; the run can have gone on, and later lines can have been "
    "cut off"
)
ENDLESS = (
    "a ledger over studies has no end: what came after the last signature that you were given can have been cut off, "
    "and a first look cannot tell; --officer, or this machine's memory of an earlier look, can"
)
REMEMBERED = (
    "This machine remembers these {lines} lines, and refuses a shorter or another ledger of this name from now on"
)
NOT_REMEMBERED = "A run with seeded noise has no name, and is not remembered"


class FoundLedger(NamedTuple):
    """A ledger that somebody wants to sign or to check."""

    signable: Signable
    rows: Sequence[Mapping[str, Any]]


@click.command()
@click.option("--out", type=PATH, metavar="FILE", help="write the public half here, for those who verify")
def key(out: Path | None) -> None:
    """Show the key of this machine, which signs for its organisation: made on first use, kept in the state folder.

    The private half is keys/ledger.key in taciturn's state folder ($XDG_STATE_HOME/taciturn, else ~/.local/state/taciturn);
    only you may read it. Anyone who has it can sign in your name. Keep a copy of it where you keep such things.

    \b
    Examples:
      taciturn ledger key
      taciturn ledger key --out hospital.pub
    """
    own = own_key()
    if out is not None:
        if out.exists():
            raise InputError(f"{out} exists: choose another --out")
        write_text(out, own.public.pem)
        _say(f"{out}: the public half of key {own.public.id}")
        return
    _say(f"key {own.public.id}, its private half in {own.place}")
    stdout.print(own.public.pem.strip(), highlight=False)


@click.command()
@click.option("--shared", is_flag=True, help="the state folder is one that several machines share over a network")
def machine(shared: bool) -> None:
    """Show the name of this machine, which ledgers over studies are at home on.

    The name is random. It belongs to the state folder at its path on this system: a copy of the folder, on this machine
    or on another one, has another name, and cannot go on with the ledgers in it. Two places are taken for one only
    where the path is the same and the system has no /etc/machine-id, or the same one, as a cloned disk has.

    --shared gives all machines that see this folder the name of this one, from now on. Use it where the state folder is
    on a network file system with locks, on the machine that the ledgers are at home on. A copy of the folder is not
    noticed any more then.

    \b
    Examples:
      taciturn ledger machine
      taciturn ledger machine --shared
    """
    name = share_machine() if shared else machine_id()
    _say(f"machine {name}{', wherever this state folder is seen' if shared else ''}")


@click.command()
@click.option("--out", type=PATH, metavar="FILE", help="write it here, to be carried to the old machine")
def request(out: Path | None) -> None:
    """Ask for a ledger over studies that is at home on another machine: the first step of a move.

    The request names this machine and its key, and is no secret. 'taciturn ledger hand-over' on the old machine takes it,
    and then only this machine can adopt the ledger.

    \b
    Examples:
      taciturn ledger request --out new-machine.request
    """
    own = TransferRequest.own()
    if out is None:
        stdout.print(own.text.strip(), soft_wrap=True, highlight=False)
        return
    if out.exists():
        raise InputError(f"{out} exists: choose another --out")
    write_text(out, own.text)
    _say(
        f"{out}: machine {own.machine} with key {own.key_id} asks; 'taciturn ledger hand-over FILE --to {out.name}' next"
    )


@click.command()
@click.argument("path", type=PATH)
def sign(path: Path) -> None:
    """Sign a ledger as it stands, with this machine's key: a run folder's, or a ledger over studies.

    Certified runs do it themselves when they end or pause, and a federation's sites when they close a study. This is
    for runs that were killed, and for ledgers over studies before somebody else checks them.

    \b
    Examples:
      taciturn ledger sign patients.ledger
      taciturn ledger sign runs/a
    """
    if path.is_file():
        BudgetLedger.open(path)
    else:
        _folder(path).check_home_machine()
    found = _found(path)
    signed = found.signable.sign()
    _say(f"{found.signable.file}: {signed.statement.lines} lines signed by key {signed.key.id}")


@click.command()
@click.argument("path", type=PATH)
@click.option("--key", "public", type=PATH, required=True, metavar="KEY.pub", help="the organisation's public key")
@click.option("--officer", type=PATH, metavar="OFFICER.pub", help="demand this officer's countersignature too")
@click.option("--unfinished", is_flag=True, help="accept the ledger of a run that had not ended when it was signed")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def verify(path: Path, public: Path, officer: Path | None, unfinished: bool, as_json: bool) -> int:
    """Check, on any machine, that a ledger is to its last line what the key's holder signed, and add it up.

    Get KEY.pub from its holder, not from the folder that you check. A signature shows that the key's holder stood by
    these lines. It does not show that the run did what they say. And its holder can write another ledger and sign that:
    only --officer, or a head that was verified or countersigned on this machine before, gives it away.

    A ledger can be cut back to an older signature. Of a run that shows, unless it was signed when the run had paused:
    such a ledger ends with exit code 1, or with 0 if you give --unfinished. A ledger over studies has no end. This
    machine remembers how far each ledger went, and refuses a shorter one afterwards.

    \b
    Examples:
      taciturn ledger verify runs/a --key hospital.pub
      taciturn ledger verify runs/paused --key hospital.pub --unfinished
      taciturn ledger verify patients.ledger --key hospital.pub --officer officer.pub
    """
    found = _found(path)
    keys = read_public_key(public), read_public_key(officer) if officer else None
    totals = _totals(path, found)
    state = found.signable.verify(*keys)
    lines, short = len(found.signable.chain.hashes()) - 1, state == "paused"
    code = 1 if short and not unfinished else 0
    if as_json:
        by = {"organisation": keys[0].id, "officer": keys[1].id if keys[1] else None, "lines": lines}
        print_json({"ledger": str(path), "verified": by | {"state": state, "at_end": not short}, **totals})
        return code
    if short:
        _say(f"{UNFINISHED}{'' if unfinished else '; --unfinished accepts that, and without it the exit code is 1'}")
    print_totals(totals) if isinstance(totals, PrivacyTotals) else account_words(path, totals)
    also = (
        f", countersigned by officer's key {keys[1].id}" if keys[1] else "; no officer's countersignature was asked for"
    )
    how_far = f"the first {lines} lines, and nobody knows of how many," if short else f"all {lines} lines"
    _say(f"{'verified so far' if short else 'verified'}: {how_far} are signed by key {keys[0].id}{also}. {SHOWS}")
    if state == "open":
        _say(ENDLESS)
    _say(REMEMBERED.format(lines=lines) if found.signable.id else NOT_REMEMBERED)
    return code


@click.command()
@click.argument("path", type=PATH)
@click.option("--with", "private", type=PATH, metavar="OFFICER.key", help="a private key [default: this machine's]")
@click.option("--key", "public", type=PATH, metavar="KEY.pub", help="demand the organisation's signature by this key")
def countersign(path: Path, private: Path | None, public: Path | None) -> None:
    """Sign, as an officer, what the organisation has signed, and remember it on this machine.

    An operator can write another ledger and sign it again with the organisation's key. They cannot countersign it, and
    this machine refuses to countersign or verify a ledger that is shorter than what it has seen, or does not go on from
    there.

    \b
    Examples:
      taciturn ledger countersign runs/a --key hospital.pub
      taciturn ledger countersign patients.ledger --key hospital.pub --with officer.key
    """
    found = _found(path)
    _totals(path, found)  # lines that make no sense are not countersigned
    officer = read_signing_key(private) if private else own_key()
    added = found.signable.countersign(officer, read_public_key(public) if public else None)
    if added.statement.state == "paused":
        _say(UNFINISHED)
    _say(f"{found.signable.file}: {added.statement.lines} lines countersigned by key {added.key.id}")


def _found(path: Path) -> FoundLedger:
    """A ledger with its lines, which follow from one another; where this machine keeps its head, they end with it."""
    if path.is_file():
        identity = identity_of(path)
        chain = BudgetLedger(path, identity).chain
        return FoundLedger(
            Signable(chain, "studies", identity, "open"), chain.read() if chain.head.exists() else chain.rows()
        )
    folder = _folder(path)
    return FoundLedger(signable(folder), folder.read_ledger())


def _folder(path: Path) -> RunFolder:
    if not path.exists():
        raise missing_file("run folder or ledger", path)
    return RunFolder.open(path)


def _totals(path: Path, found: FoundLedger) -> dict[str, Any] | PrivacyTotals:
    try:
        return account_state(found.rows) if path.is_file() else RunLedger.from_rows(found.rows).totals
    except (KeyError, TypeError, IndexError, StopIteration, AttributeError):
        raise InputError(f"{found.signable.chain.path} is not a ledger of ours: its lines make no sense") from None


def _say(sentence: str) -> None:
    stdout.print(sentence, soft_wrap=True, highlight=False)
