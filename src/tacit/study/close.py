"""The end of a run in the ledger over studies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tacit.privacy.composition import Cost, cost_of, largest, together
from tacit.privacy.ledger import releases
from tacit.results.account import Account
from tacit.results.folder import RunFolder
from tacit.study.build import Study


def settle(study: Study, folder: RunFolder) -> None:
    """Replace the study's reservation by what its ledger says was spent."""
    if study.settings.ledger:
        cost = ledger_cost(folder.read_ledger())
        Account.open(Path(study.settings.ledger)).settle(folder.read_start()["reservation"], cost)


def ledger_cost(ledger: Iterable[Mapping[str, Any]]) -> Cost:
    """What the releases of a study's ledger cost a ledger over studies: of every run the most of its agents."""
    return together(largest(map(cost_of, agents.values())) for agents in releases(ledger).values())
