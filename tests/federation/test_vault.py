"""Vault and coordinator accept only messages that the other sealed for them, and drop all others."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from taciturn.core.storage import read_arrays, write_arrays
from taciturn.errors import CorruptFile
from taciturn.federation import messages as wire
from taciturn.federation.coordinator import FINISHED
from taciturn.federation.exchange import SealedExchange
from taciturn.federation.identity import Identity
from taciturn.federation.journal import KEPT_BACK, Journal
from taciturn.federation.link import BrokenLink, Frame, Kind, Link, pair
from taciturn.federation.logs import logged
from taciturn.federation.messages import Answer, Closed, CloseRequest, Invitation, Question, Ready, Refusal, Reply
from taciturn.federation.release import ReleaseGate
from taciturn.federation.run_folder import MODEL_SIGNATURE, verify_model_signature
from taciturn.federation.seal import HANDSHAKE, QUESTION, Header, open_answer, reply_header, seal_answer, seal_question
from taciturn.federation.site_operations import site_status
from taciturn.federation.vault import StorageUnavailable, Vault
from taciturn.privacy.hash_chain import HashChain
from tests.federation.helpers import (
    EXPERIMENT,
    LIMIT,
    SITES,
    Federation,
    check_like_replay,
    make_federation,
    question,
)


@dataclass
class Parties:
    """A coordinator and three sites, each with its identity."""

    federation: Federation
    coordinator: Identity
    sites: dict[str, Identity]
    vaults: dict[str, Vault]
    said: list[str] = field(default_factory=list)

    def seal(self, message: Question, site: str = "north", by: Identity | None = None, **changed: Any) -> bytes:
        """Seal a question, by default as the coordinator does."""
        terms = bytes.fromhex(self.federation.terms.digest)
        version = HANDSHAKE if isinstance(message, Invitation) else 1
        header = Header(version, QUESTION, terms, bytes.fromhex(message.experiment), site)._replace(**changed)
        return seal_question(wire.encode(message), header, by or self.coordinator, self.sites[site].public)

    def ask(self, message: Question, site: str = "north") -> Reply:
        sealed = self.seal(message, site)
        answer = self.vaults[site].answer(sealed)
        assert answer is not None, self.said
        opened = open_answer(answer, self.coordinator, self.sites[site].public, LIMIT, reply_header(sealed))
        return wire.decode_reply(opened.body, LIMIT)

    def invite(self, site: str = "north") -> None:
        assert isinstance(self.ask(Invitation(EXPERIMENT, self.federation.terms.digest), site), Ready)

    def departures(self, site: str = "north") -> int:
        return len(self.vaults[site].agent.journal.departures())


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Parties]:
    names = ("coordinator", *SITES)
    made = {name: Identity.create(tmp_path / f"{name}.identity") for name in names}
    public = {name: str(identity.public) for name, identity in made.items()}
    own = public.pop("coordinator")
    terms = {"coordinator": {"identity": own}, "identities": public}
    federation = make_federation(tmp_path / "federation", terms)
    coordinator = made.pop("coordinator")
    with federation.agents() as agents:
        found = Parties(federation, coordinator, made, {})
        for site, agent in agents.items():
            found.vaults[site] = Vault(federation.file(site), agent, made[site], ReleaseGate(agent.journal))
        with logged(None, found.said.append):
            yield found


def test_what_the_coordinator_asks_is_answered(parties: Parties) -> None:
    parties.invite()
    answer = parties.ask(question(parties.federation, 1))
    assert isinstance(answer, Answer) and answer.round == 1
    again = parties.ask(question(parties.federation, 1))
    assert isinstance(again, Answer) and again.z.tobytes() == answer.z.tobytes()
    assert len(parties.federation.released("north")) == 1


def test_nobody_else_is_answered(parties: Parties) -> None:
    """Other sites and the hub, who know all public facts, get not a byte, and nothing is charged."""
    parties.invite()
    before = parties.departures()
    message, federation = question(parties.federation, 1), parties.federation
    stranger = Identity.create(federation.root / "stranger")
    genuine, north = parties.seal(message), parties.sites["north"].public
    forged = {
        "another site": parties.seal(message, by=parties.sites["south"]),
        "a stranger": parties.seal(message, by=stranger),
        "the site itself": parties.seal(message, by=parties.sites["north"]),
        "for another site": parties.seal(message, "south"),
        "renamed": parties.seal(message, "south", by=parties.coordinator).replace(b"south", b"north"),
        "an answer": seal_answer(wire.encode(message), reply_header(genuine), parties.coordinator, north),
        "plain": wire.encode(message),
        "empty": b"",
        "cut": genuine[:-1],
        "longer": genuine + b"x",
        "giant": genuine + bytes(1 << 20),
        "another version": parties.seal(message, version=77),
    }
    for kind, data in forged.items():
        assert parties.vaults["north"].answer(data) is None, kind
    rng = random.Random(5)
    for _ in range(300):
        changed = bytearray(genuine)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        assert parties.vaults["north"].answer(bytes(changed)) is None
    assert parties.departures() == before and parties.federation.released("north") == []
    assert isinstance(parties.ask(message), Answer)  # the study was not disturbed


def test_dropped_messages_are_reported_from_time_to_time(parties: Parties) -> None:
    for _ in range(100):
        assert parties.vaults["north"].answer(os.urandom(200)) is None
    assert len(parties.said) == 7  # the 1st, 2nd, 4th, ... 64th


def test_a_full_disk_makes_a_site_hang_up_and_not_refuse(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal would exclude the site from the study until it restarts."""

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    parties.invite()
    vault = parties.vaults["north"]
    with monkeypatch.context() as patch:
        patch.setattr(HashChain, "append", full)
        with pytest.raises(StorageUnavailable, match="No space left"):
            vault.answer(parties.seal(question(parties.federation, 1)))
    assert vault.agent.journal.departures()[-1].fate == KEPT_BACK
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "record_departure", full)
        with pytest.raises(StorageUnavailable, match="No space left"):
            vault.answer(parties.seal(question(parties.federation, 2)))
    parties.invite()
    assert isinstance(parties.ask(question(parties.federation, 1)), Answer)
    assert len(parties.federation.released("north")) == 1


def test_another_copy_of_the_terms_is_refused_in_words(parties: Parties) -> None:
    sealed = parties.seal(Invitation(EXPERIMENT, "0" * 64), terms=bytes(32))
    answer = parties.vaults["north"].answer(sealed)
    assert answer is not None
    opened = open_answer(answer, parties.coordinator, parties.sites["north"].public, LIMIT, reply_header(sealed))
    found = wire.decode_reply(opened.body, LIMIT)
    assert isinstance(found, Refusal) and "the two copies of federation.toml differ" in found.reason


def test_a_new_coordinator_in_the_terms_is_the_only_one(parties: Parties) -> None:
    """The site reads its own copy again: a coordinator that was replaced has no rights from then on."""
    parties.invite()
    other = Identity.create(parties.federation.root / "other")
    path = parties.federation.site("north").study
    path.write_text(path.read_text().replace(str(parties.coordinator.public), str(other.public)))
    assert parties.vaults["north"].answer(parties.seal(question(parties.federation, 1))) is None


def test_inside_and_outside_of_an_envelope_agree(parties: Parties) -> None:
    """The engine sees the envelope; journal and ledger use the content."""
    parties.invite()
    before, message = parties.departures(), question(parties.federation, 1)
    invitation = Invitation(EXPERIMENT, parties.federation.terms.digest)
    for sealed in (
        parties.seal(message, experiment=bytes(16)),
        parties.seal(message, version=HANDSHAKE),
        parties.seal(invitation, version=1),
    ):
        assert parties.vaults["north"].answer(sealed) is None
    assert parties.departures() == before and parties.federation.released("north") == []
    assert isinstance(parties.ask(message), Answer)


def test_the_model_is_kept_with_the_coordinators_signature(parties: Parties) -> None:
    parties.invite()
    parties.ask(question(parties.federation, 1))
    close = CloseRequest(EXPERIMENT, 1, parties.federation.agreement.zero + 0.25)
    assert isinstance(parties.ask(close), Closed)
    folder, terms = parties.federation.folder("north"), parties.federation.terms.digest
    assert verify_model_signature(folder, EXPERIMENT, terms) == parties.coordinator.public
    status = site_status(parties.federation.file("north"))["studies"][0]["model"]
    assert status == f"signed by the coordinator {parties.coordinator.public.fingerprint}"
    with pytest.raises(CorruptFile, match="another study"):
        verify_model_signature(folder, "f" * 32, terms)
    with pytest.raises(CorruptFile, match="another study"):
        verify_model_signature(folder, EXPERIMENT, "0" * 64)

    kept = json.loads((folder.path / MODEL_SIGNATURE).read_text())
    south = str(parties.sites["south"].public)
    parts: list[dict[str, Any]] = [
        {"coordinator": south},
        {"site": south},
        {"close": "AAAA"},
        {"signed": 3},
        {"close": 7},
    ]
    for part in parts:
        (folder.path / MODEL_SIGNATURE).write_text(json.dumps(kept | part))
        with pytest.raises(CorruptFile, match="valid signature"):
            verify_model_signature(folder, EXPERIMENT, terms)
    (folder.path / MODEL_SIGNATURE).write_text(json.dumps(kept))
    arrays = read_arrays(folder.model)
    write_arrays(folder.model, arrays | {"w": arrays["w"] * 1.5})
    with pytest.raises(CorruptFile, match="another model"):
        verify_model_signature(folder, EXPERIMENT, terms)
    assert site_status(parties.federation.file("north"))["studies"][0]["model"].startswith("NOT SIGNED")


def test_a_study_does_not_close_without_the_signature_on_the_disk(parties: Parties) -> None:
    parties.invite()
    parties.ask(question(parties.federation, 1))
    blocked = parties.federation.folder("north").path / MODEL_SIGNATURE
    blocked.mkdir()
    close = CloseRequest(EXPERIMENT, 1, parties.federation.agreement.zero)
    assert parties.vaults["north"].answer(parties.seal(close)) is None
    assert not site_status(parties.federation.file("north"))["studies"][0]["closed"]
    assert "cannot store the signature" in parties.said[-1]
    blocked.rmdir()
    assert isinstance(parties.ask(close), Closed)
    assert blocked.is_file()


@pytest.fixture
def linked() -> Iterator[Callable[[int], tuple[Link, socket.socket]]]:
    """Yield a function that creates link pairs, and close them at the end."""
    with contextlib.ExitStack() as stack:

        def make(limit: int) -> tuple[Link, socket.socket]:
            link, theirs = pair(limit)
            stack.callback(link.close)
            stack.callback(theirs.close)
            return link, theirs

        yield make


Linked = Callable[[int], tuple[Link, socket.socket]]


@dataclass
class Wires:
    """A hostile engine in this process, between the coordinator's link and the vaults."""

    parties: Parties
    end: Link
    evil: bool = False
    seen: list[bytes] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    def step(self) -> None:
        """Carry all waiting messages."""
        while (frame := self.end.receive(0.0)) is not None:
            self.seen.append(frame.data)
            answer = self.parties.vaults[frame.peer].answer(frame.data)
            if answer is None:
                continue
            self.seen.append(answer)
            for data in self._and_more(frame, answer):
                self.end.send(Frame(Kind.MESSAGE, frame.peer, data))

    def _and_more(self, frame: Frame, answer: bytes) -> list[bytes]:
        if not self.evil:
            return [answer]
        changed = bytearray(answer)
        changed[self.rng.randrange(len(changed))] ^= 1
        others = [data for data in self.seen if data is not answer]
        junk = [bytes(changed), frame.data, b"", os.urandom(300), self.rng.choice(others), answer[:-1]]
        self.rng.shuffle(junk)
        return [*junk, answer, answer]  # the honest answer comes last, twice


class Stepping(SealedExchange):
    """An exchange that runs the engine before it receives frames."""

    wires: Wires

    def _receive(self, seconds: float) -> None:
        self.wires.step()
        super()._receive(0.0)


@pytest.mark.parametrize("evil", [False, True])
def test_a_study_over_any_engine_is_the_study_in_one_process(parties: Parties, linked: Linked, evil: bool) -> None:
    """An engine that replays, changes, mixes and forges messages has no effect and sees no values."""
    terms = parties.federation.terms
    study = parties.federation.coordinator()
    link, theirs = linked(LIMIT)
    wires = Wires(parties, Link(theirs, LIMIT), evil)
    exchange = Stepping(link, terms, parties.coordinator, study.experiment, LIMIT)
    exchange.wires = wires
    for site in SITES:
        wires.end.send(Frame(Kind.UP, site))
    assert study.run(exchange) == FINISHED
    check_like_replay(parties.federation, study)
    for z in study.state.server.z:
        assert not any(z.tobytes()[:64] in data for data in wires.seen)
    assert not any(study.state.w.tobytes()[:64] in data for data in wires.seen)
    assert (exchange.status.dropped > 100) == evil


def test_a_frame_is_no_longer_than_agreed(linked: Linked) -> None:
    link, theirs = linked(1000)
    other = Link(theirs, 1 << 20)
    other.send(Frame(Kind.MESSAGE, "north", bytes(1000)))
    found = link.receive(1.0)
    assert found is not None and len(found.data) == 1000
    other.send(Frame(Kind.MESSAGE, "north", bytes(1001)))
    with pytest.raises(BrokenLink, match="at most 1000"):
        link.receive(1.0)


@pytest.mark.parametrize(
    "data",
    [
        bytes([9, 0, 0, 0, 0, 0]),
        bytes([0, 0, 0, 0, 0, 0]),
        b"\x03\x05\x00\x00\x00\x00../..",
        b"\x03\x05\x00\x00\x00\x00NORTH",
        b"\x03\xff\x00\x00\x00\x00" + b"a" * 255,
        b"\x03\x00\xff\xff\xff\xff",
    ],
)
def test_a_frame_of_another_kind_or_name_breaks_the_link(linked: Linked, data: bytes) -> None:
    link, theirs = linked(1000)
    theirs.send(data)
    with pytest.raises(BrokenLink):
        link.receive(1.0)


def test_a_link_takes_any_bytes_without_harm(linked: Linked) -> None:
    rng = random.Random(1)
    for _ in range(300):
        link, theirs = linked(1000)
        theirs.send(rng.randbytes(rng.randrange(1, 60)))
        theirs.close()
        with pytest.raises(BrokenLink):
            for _ in range(60):
                link.receive(0.1)


def test_an_end_that_does_not_read_breaks_the_link(linked: Linked) -> None:
    link, _ = linked(1 << 24)
    with pytest.raises(BrokenLink, match="does not read"):
        link.send(Frame(Kind.MESSAGE, "north", bytes(1 << 23)), patience=0.1)
