"""Studies with a secure sum in one process: five sites with identities and verified peers, real agents, real bytes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taciturn.federation import messages as wire
from taciturn.federation.coordinator_process import open_study
from taciturn.federation.identity import Identity
from taciturn.federation.messages import Question, SumRequest, SumRoundRequest
from taciturn.federation.policy import write_peer
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.privacy.budget import BudgetLedger
from tests.federation.helpers import Federation, Local, check_like_replay, merged, write_table, write_terms

SUM_SITES = ("s1", "s2", "s3", "s4", "s5")
SUM_STUDY: dict[str, Any] = {
    "algorithm": "dpgd", "trust": "secure-sum", "total_records": 60, "total_epsilon": 3.0, "noise_multiplier": None,
    "missing": 1, "reserve": 3,
}  # fmt: skip
SUM_ACCEPT: dict[str, Any] = {"algorithms": ["dpgd", "objw", "additive"], "study_epsilon_max": 10.0}
UPLOAD = "upload"


@dataclass
class SumFederation(Federation):
    """The files of a federation whose study has a secure sum."""

    @property
    def sites(self) -> tuple[str, ...]:
        return self.terms.agents

    def summing(self) -> SumCoordinator:
        """Begin or resume the study."""
        study = open_study(self.terms, self.root / "run")
        assert isinstance(study, SumCoordinator)
        return study


def make_sums(
    root: Path,
    changes: Mapping[str, Any] | None = None,
    accept: Mapping[str, Any] | None = None,
    names: tuple[str, ...] = SUM_SITES,
    rows: int = 12,
) -> SumFederation:
    """Create sites with tables, ledgers and identities, in which everybody has verified all peers."""
    root.mkdir(parents=True, exist_ok=True)
    identities = {name: Identity.create(root / f"{name}.identity") for name in names}
    parties: dict[str, Any] = {
        "coordinator": {"identity": str(Identity.create(root / "coordinator.identity").public)},
        "identities": {name: str(identity.public) for name, identity in identities.items()},
        "sites": dict.fromkeys(("north", "south", "west")) | dict.fromkeys(names, 20),
        "running": {"quorum": None},
        "study": SUM_STUDY,
    }
    write_terms(root, merged(parties, changes or {}))
    found = SumFederation(root)
    for number, site in enumerate(names):
        home = root / site
        home.mkdir()
        for name in ("federation.toml", "schema.toml"):
            shutil.copy(root / name, home)
        shutil.move(root / f"{site}.identity", home / "identity.key")
        write_table(home / "table.csv", number, rows)
        BudgetLedger.create(home / "patients.ledger", site, 10.0, 1e-6)
        found.change(site, {"accept": merged(SUM_ACCEPT, accept or {})})
        for peer in names:
            if peer != site:
                write_peer(found.site(site), peer, parties["identities"][peer])
    return found


def step_of(message: Question) -> str:
    """Return the step of the protocol that a question asks for; empty for other questions."""
    if isinstance(message, SumRoundRequest):
        return UPLOAD
    return message.step if isinstance(message, SumRequest) else ""


def check_sums(federation: SumFederation, study: SumCoordinator) -> None:
    """Check that the study equals the simulation with the recorded participation, bit for bit."""
    check_like_replay(federation, study)


def charged_slots(federation: SumFederation, site: str, experiment: str) -> list[str]:
    """Return the slots that a site's ledger has charged, in order."""
    return [str(row["slot"]) for row in federation.released(site, experiment)]


def check_charges(federation: SumFederation, study: SumCoordinator, exchange: Local) -> None:
    """Check that every masked upload that left is charged once, where and when it left, and at the coordinator too."""
    expected = {(e["agent"], e["slot"]) for e in federation.run.read_ledger() if e["kind"] == "release"}
    limit = study.sums.parameters.charges
    for site, left in exchange.left.items():
        replies = [wire.decode_reply(data, 1 << 22) for data in left]
        uploads = {wire.digest(data) for data, reply in zip(left, replies, strict=True)
                   if isinstance(reply, wire.SumAnswer) and reply.step == UPLOAD}  # fmt: skip
        charged = federation.released(site, study.experiment)
        assert uploads <= {row["upload"] for row in charged}
        slots = [str(row["slot"]) for row in charged]
        assert len(set(slots)) == len(slots) <= limit
        assert {(site, slot) for slot in slots} <= expected
