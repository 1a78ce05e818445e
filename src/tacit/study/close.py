"""The end of a run in the ledger over studies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tacit.privacy.accountants import Counts
from tacit.privacy.accountants.zcdp import zcdp_sum
from tacit.privacy.ledger import releases
from tacit.results.account import Account
from tacit.results.folder import RunFolder
from tacit.study.build import Study


def settle(study: Study, folder: RunFolder) -> None:
    """Replace the study's reservation by what its ledger says was spent."""
    if study.settings.ledger:
        cost = ledger_cost(folder.read_ledger())
        Account.open(Path(study.settings.ledger)).settle(folder.read_start()["reservation"], cost)


def ledger_cost(ledger: Iterable[Mapping[str, Any]]) -> float:
    """What the releases of a study's ledger cost a ledger over studies."""
    spent = releases(ledger)
    return math.fsum(max(_cost(events) for events in agents.values()) for agents in spent.values())


def _cost(events: Counts) -> float:
    cost = zcdp_sum(events)
    return math.inf if cost is None else cost
