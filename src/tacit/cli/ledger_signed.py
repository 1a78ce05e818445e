"""`tacit ledger key`, `sign`, `verify` and `countersign`: who stands by a ledger, for those on another machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import rich_click as click

from tacit.cli.ledger import account_words, print_totals
from tacit.cli.output import print_json, stdout
from tacit.errors import InputError, absent
from tacit.privacy.totals import ledger_totals
from tacit.results.account import Account, account_state, identity_of
from tacit.results.files import write_text
from tacit.results.folder import RunFolder
from tacit.results.keys import own_key, read_public_key, read_signing_key
from tacit.results.signing import Signable
from tacit.study.close import signable

PATH = click.Path(path_type=Path)
SHOWS = (
    "A signature shows that the key's holder stood by these lines; it does not show that the run did what they say, "
    "nor that there is no other ledger: its holder can sign another one, which only a countersigned or remembered "
    "head gives away"
)


class Found(NamedTuple):
    """A ledger that somebody wants to sign or to check."""

    signable: Signable
    rows: Sequence[Mapping[str, Any]]


@click.command()
@click.option("--out", type=PATH, metavar="FILE", help="write the public half here, for those who verify")
def key(out: Path | None) -> None:
    """Show the key of this machine, which signs for its organisation: made on first use, kept in the state folder.

    The private half is keys/ledger.key in tacit's state folder ($XDG_STATE_HOME/tacit, else ~/.local/state/tacit);
    only you may read it. Anyone who has it can sign in your name. Keep a copy of it where you keep such things.

    \b
    Examples:
      tacit ledger key
      tacit ledger key --out hospital.pub
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
@click.argument("path", type=PATH)
def sign(path: Path) -> None:
    """Sign a ledger as it stands, with this machine's key: a run folder's, or a ledger over studies.

    Certified runs do it themselves when they end or pause, and a federation's sites when they close a study. This is
    for runs that were killed, and for ledgers over studies before somebody else checks them.

    \b
    Examples:
      tacit ledger sign patients.ledger
      tacit ledger sign runs/a
    """
    if path.is_file():
        Account.open(path)
    else:
        _folder(path).check_at_home()
    found = _found(path)
    signed = found.signable.sign()
    _say(f"{found.signable.file}: {signed.statement.lines} lines signed by key {signed.key.id}")


@click.command()
@click.argument("path", type=PATH)
@click.option("--key", "public", type=PATH, required=True, metavar="KEY.pub", help="the organisation's public key")
@click.option("--officer", type=PATH, metavar="OFFICER.pub", help="demand this officer's countersignature too")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def verify(path: Path, public: Path, officer: Path | None, as_json: bool) -> None:
    """Check, on any machine, that a ledger is to its last line what the key's holder signed, and add it up.

    Get KEY.pub from its holder, not from the folder that you check. A signature shows that the key's holder stood by
    these lines. It does not show that the run did what they say. And its holder can write another ledger and sign that:
    only --officer, or a head that was countersigned on this machine before, gives it away.

    \b
    Examples:
      tacit ledger verify runs/a --key hospital.pub
      tacit ledger verify patients.ledger --key hospital.pub --officer officer.pub
    """
    found = _found(path)
    keys = read_public_key(public), read_public_key(officer) if officer else None
    state = found.signable.verify(*keys)
    lines = len(found.signable.chain.hashes()) - 1
    totals = _totals(path, found)
    if as_json:
        by = {"organisation": keys[0].id, "officer": keys[1].id if keys[1] else None, "lines": lines}
        by |= {"state": state}
        print_json({"ledger": str(path), "verified": by, **totals})
        return
    account_words(path, totals) if path.is_file() else print_totals(totals)
    also = (
        f", countersigned by officer's key {keys[1].id}" if keys[1] else "; no officer's countersignature was asked for"
    )
    if state == "paused":
        _say("signed when the run had paused: it may have gone on, and later lines may have been cut off")
    _say(f"verified: all {lines} lines are signed by key {keys[0].id}{also}. {SHOWS}")


@click.command()
@click.argument("path", type=PATH)
@click.option("--with", "private", type=PATH, metavar="OFFICER.key", help="a private key [default: this machine's]")
@click.option("--key", "public", type=PATH, metavar="KEY.pub", help="demand the organisation's signature by this key")
def countersign(path: Path, private: Path | None, public: Path | None) -> None:
    """Sign, as an officer, what the organisation has signed, and remember it on this machine.

    An operator can write another ledger and sign it again with the organisation's key. They cannot countersign it,
    and this machine refuses to countersign or verify a ledger that does not go on from the lines it countersigned.

    \b
    Examples:
      tacit ledger countersign runs/a --key hospital.pub
      tacit ledger countersign patients.ledger --key hospital.pub --with officer.key
    """
    found = _found(path)
    _totals(path, found)  # lines that make no sense are not countersigned
    officer = read_signing_key(private) if private else own_key()
    added = found.signable.countersign(officer, read_public_key(public) if public else None)
    _say(f"{found.signable.file}: {added.statement.lines} lines countersigned by key {added.key.id}")


def _found(path: Path) -> Found:
    """A ledger with its lines, which follow from one another; where this machine keeps its head, they end with it."""
    if path.is_file():
        identity = identity_of(path)
        chain = Account(path, identity).chain
        return Found(
            Signable(chain, "studies", identity, "open"), chain.read() if chain.head.exists() else chain.rows()
        )
    folder = _folder(path)
    return Found(signable(folder), folder.read_ledger())


def _folder(path: Path) -> RunFolder:
    if not path.exists():
        raise absent("run folder or ledger", path)
    return RunFolder.open(path)


def _totals(path: Path, found: Found) -> dict[str, Any]:
    try:
        return account_state(found.rows) if path.is_file() else ledger_totals(found.rows)
    except (KeyError, TypeError, IndexError, StopIteration, AttributeError):
        raise InputError(f"{found.signable.chain.path} is not a ledger of ours: its lines make no sense") from None


def _say(sentence: str) -> None:
    stdout.print(sentence, soft_wrap=True, highlight=False)
