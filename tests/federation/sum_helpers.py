"""Studies with a secure sum in one process: five sites with identities and verified peers, real agents, real bytes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taciturn.federation import messages as wire
from taciturn.federation.identity import Identity
from taciturn.federation.messages import Question, Refusal, Reply, SumAnswer, SumRequest, SumRoundRequest
from taciturn.federation.policy import read_site, write_peer
from taciturn.federation.release import ReleaseGate
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.federation.sum_session import SumSession
from taciturn.federation.transcript import read_transcript
from taciturn.privacy.budget import BudgetLedger
from taciturn.secure_sum.epoch import AnnouncedEpoch, DealtEpoch, KeptEpoch, SlotSecrets
from taciturn.secure_sum.shamir import element_bytes
from taciturn.secure_sum.slot_messages import (
    AliveRequest,
    AliveSignature,
    MaskedUpload,
    RevealedShares,
    ShareRequest,
    SumQuestion,
)
from tests.federation.helpers import Fault, Federation, Local, check_like_replay, merged, write_table, write_terms

SUM_SITES = ("s1", "s2", "s3", "s4", "s5")
SUM_STUDY: dict[str, Any] = {
    "algorithm": "dpgd", "trust": "secure-sum", "total_records": 60, "total_epsilon": 3.0, "noise_multiplier": None,
    "missing": 1, "reserve": 3,
}  # fmt: skip
SUM_ACCEPT: dict[str, Any] = {"algorithms": ["dpgd", "objw", "additive"], "study_epsilon_max": 10.0}
SUM_LIMIT = 1 << 26


@dataclass
class SumFederation(Federation):
    """The files of a federation whose study has a secure sum."""

    @property
    def sites(self) -> tuple[str, ...]:
        return self.terms.agents

    def summing(self, without: tuple[str, ...] = ()) -> SumCoordinator:
        """Begin or resume the study."""
        study = self.opened(without)
        assert isinstance(study, SumCoordinator)
        return study


def make_sums(
    root: Path,
    changes: Mapping[str, Any] | None = None,
    accept: Mapping[str, Any] | None = None,
    names: tuple[str, ...] = SUM_SITES,
    rows: int = 12,
    only: tuple[str, ...] = (),
) -> SumFederation:
    """Create sites with tables, ledgers and identities, or only some of them; everybody has verified all peers."""
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
    for number, site in enumerate(only or names):
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
        return wire.UPLOAD
    return message.step if isinstance(message, SumRequest) else ""


def asked_in(message: Question) -> SumQuestion | None:
    """Return the slot's question that a message is about, or None."""
    if isinstance(message, SumRoundRequest):
        return SumQuestion.from_bytes(message.data)
    if isinstance(message, SumRequest) and message.step in (wire.AGREE, wire.REVEAL):
        kind = AliveRequest if message.step == wire.AGREE else ShareRequest
        return kind.from_bytes(message.data).question
    return None


@dataclass
class Gated(Local):
    """Checks every reply as a vault does before it leaves: it is in the journal, and an upload in the ledger."""

    def request(self, questions: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        replies: dict[str, bytes] = {}
        for site, data in questions.items():
            count = len(self.left.get(site, []))
            replies |= super().request({site: data}, seconds)
            for reply in self.left.get(site, [])[count:]:
                agent = self.agents[site]
                ReleaseGate(agent.journal).check(read_site(agent.path), reply)
        return replies


Losses = dict[tuple[str, str, int], str]
"""(site, step, round) -> what is lost: "question" or "answer". Steps of an epoch have the round 0."""


def losing(exchange: Local, losses: Losses) -> Fault:
    """Lose each of these messages once; the site has connected again by the next round."""

    def fault(site: str, message: Question) -> str:
        question = asked_in(message)
        lost = losses.pop((site, step_of(message), question.round if question else 0), "")
        exchange.since[site] += bool(lost)
        return lost

    return fault


def slots_asked(exchange: Local) -> list[str]:
    """Return the slots in which uploads were asked for, in order."""
    questions = [asked_in(message) for message, _ in exchange.asked if step_of(message) == wire.UPLOAD]
    return list(dict.fromkeys(f"{question.epoch}/{question.slot}" for question in questions if question))


def replies_of(exchange: Local, site: str, step: str) -> list[bytes]:
    """Return the protocol's messages of one step among what left a site, without repetitions."""
    replies = [wire.decode_reply(data, SUM_LIMIT) for data in exchange.left.get(site, [])]
    found = [reply.data for reply in replies if isinstance(reply, SumAnswer) and reply.step == step]
    return list(dict.fromkeys(found))


def refusals(exchange: Local) -> list[str]:
    """Return why sites refused something, in order of the sites."""
    replies = [wire.decode_reply(data, SUM_LIMIT) for left in exchange.left.values() for data in left]
    return [reply.reason for reply in replies if isinstance(reply, Refusal)]


def check_sums(federation: SumFederation, study: SumCoordinator) -> None:
    """Check that the study equals the simulation with the recorded participation, bit for bit."""
    check_like_replay(federation, study)


def charged_slots(federation: SumFederation, site: str, experiment: str) -> list[str]:
    """Return the slots that a site's ledger has charged, in order."""
    return [str(row["slot"]) for row in federation.released(site, experiment)]


def check_charges(federation: SumFederation, study: SumCoordinator, exchange: Local) -> None:
    """Check that no slot has two answers, and that each upload that left is charged, here and at the coordinator."""
    expected = {(e["agent"], e["slot"]) for e in federation.run.read_ledger() if e["kind"] == "release"}
    limit = study.sums.parameters.uploads
    assert len({slot for _, slot in expected}) == study.attempts + len(study.measured) <= limit
    for site in exchange.left:
        answers = [reply for reply in map(_decoded, exchange.left[site]) if isinstance(reply, SumAnswer)]
        charged = federation.released(site, study.experiment) if answers else []
        slots = [str(row["slot"]) for row in charged]
        assert len(set(slots)) == len(slots) <= limit
        assert {(site, slot) for slot in slots} <= expected
        uploads = {wire.digest(wire.encode(reply)) for reply in answers if reply.step == wire.UPLOAD}
        assert uploads <= {row["upload"] for row in charged}
        assert len(uploads) == len({_slot(MaskedUpload, data) for data in replies_of(exchange, site, wire.UPLOAD)})
        for kind, step in ((AliveSignature, wire.AGREE), (RevealedShares, wire.REVEAL)):
            opinions = replies_of(exchange, site, step)
            assert len(opinions) == len({_slot(kind, data) for data in opinions})
        assert read_transcript(federation.site(site)).faults == []


def _decoded(data: bytes) -> Reply:
    return wire.decode_reply(data, SUM_LIMIT)


def _slot(kind: type[MaskedUpload | AliveSignature | RevealedShares], data: bytes) -> tuple[int, int]:
    message = kind.from_bytes(data)
    return message.epoch, message.slot


Secrets = dict[bytes, tuple[int, int, str]]
"""Bytes of a secret -> its epoch, its slot (-1 for a key of boxes), and whose it is: "own", "share" or "box"."""


def secrets_of(session: SumSession) -> Secrets:
    """Return every secret that a site holds now."""
    found: Secrets = {}
    prepared = session.prepared
    if isinstance(prepared, AnnouncedEpoch | DealtEpoch):
        announced = prepared if isinstance(prepared, AnnouncedEpoch) else prepared.announced
        epoch = announced.announcement.epoch
        found[announced.box_key] = epoch, -1, "box"
        for slot, own in enumerate(announced.secrets):
            found |= dict.fromkeys(_elements(own), (epoch, slot, "own"))
    for kept in (prepared, session.state.keys if session.state else None):
        if isinstance(kept, KeptEpoch):
            for slot, held in enumerate(kept.shares):
                for share in (held or {}).values():
                    found |= dict.fromkeys(_elements(share), (kept.directory.epoch, slot, "share"))
    return found


def _elements(secrets: SlotSecrets) -> list[bytes]:
    return [element_bytes(value) for value in (secrets.pair, secrets.own)]


def files_of(root: Path) -> bytes:
    """Return everything in a folder: a site's journal, its log, its free pages, ledgers and reports."""
    return b"\0".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())
