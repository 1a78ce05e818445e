"""The end of a run in the ledger over studies, and the signature of its own ledger."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tacit.errors import InputError, LedgerWarning
from tacit.privacy.composition import Cost, cost_of, largest, together
from tacit.privacy.ledger import VIOLATION, releases
from tacit.results.account import Account
from tacit.results.folder import RunFolder
from tacit.results.signing import NAME, Signable


def settle(ledger: str, folder: RunFolder) -> None:
    """Replace the study's reservation in the ledger it names by what its own ledger says was spent.

    After a crash it may have been done already, by the same lines; by others, it is refused.
    """
    if not ledger:
        return
    cost, head = ledger_cost(folder.read_ledger()), folder.chain.hashes()[-1]
    account, reservation = Account.open(Path(ledger)), folder.read_start()["reservation"]
    if not account.settled_from(reservation, head):
        account.settle(reservation, cost, head)


def settle_violated(ledger: str, folder: RunFolder) -> None:
    """End the reservation of a study that a privacy violation stopped: what it drew beyond its plan is not forgotten.

    It cannot go on, and its ledger may not know everything: the whole plan stays spent, or more if its ledger has more.
    """
    rows = folder.read_ledger() if ledger else []
    if any(row["kind"] == VIOLATION for row in rows):
        account, reservation = Account.open(Path(ledger)), folder.read_start()["reservation"]
        account.violated(reservation, ledger_cost(rows), folder.chain.hashes()[-1])


def sign(folder: RunFolder) -> None:
    """Sign a run's ledger as it stands with this machine's key; a run is not lost where that cannot be done."""
    try:
        signable(folder).sign()
    except OSError as error:
        warnings.warn(
            f"{folder.ledger} was not signed ({error.strerror or error}): 'tacit ledger sign {folder.path}' signs it",
            LedgerWarning,
            stacklevel=2,
        )


def signable(folder: RunFolder) -> Signable:
    """A run's ledger, for those who sign it or check who did."""
    identity = folder.read_start(local=False).get("id", "")
    if identity and not NAME.fullmatch(str(identity)):
        raise InputError(f"{folder.start} is damaged: the run's id must have 32 hexadecimal digits")
    return Signable(folder.chain, "run", identity, "ended" if folder.finished else "paused")


def ledger_cost(ledger: Iterable[Mapping[str, Any]]) -> Cost:
    """What the releases of a study's ledger cost a ledger over studies: of every run the most of its agents."""
    return together(largest(map(cost_of, agents.values())) for agents in releases(ledger).values())
