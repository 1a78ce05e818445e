"""The end of a run in the ledger over studies."""

from __future__ import annotations

import math
from pathlib import Path

from tacit.privacy.accountants import Counts
from tacit.privacy.accountants.zcdp import zcdp_sum
from tacit.privacy.ledger import releases
from tacit.results.account import Account
from tacit.results.folder import RunFolder
from tacit.study.build import Study


def settle(study: Study, folder: RunFolder) -> None:
    """Replace the study's reservation by what its ledger says was spent."""
    if not study.settings.ledger:
        return
    spent = releases(folder.read_ledger())
    costs = [max(_cost(events) for events in agents.values()) for agents in spent.values()]
    Account.open(Path(study.settings.ledger)).settle(folder.read_start()["reservation"], math.fsum(costs))


def _cost(events: Counts) -> float:
    cost = zcdp_sum(events)
    return math.inf if cost is None else cost
