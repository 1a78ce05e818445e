"""A federation in one process: real identities, real rules, every message as bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from taciturn.federation.identity import Identity
from taciturn.privacy.signatures import SigningKey, new_key
from taciturn.secure_sum.epoch import (
    EpochRules,
    make_deliveries,
    make_directory,
    make_roll,
    read_announcement,
    read_held,
)
from taciturn.secure_sum.epoch_messages import Announcement, Deal, Directory, EpochRequest
from taciturn.secure_sum.masking import Integers
from taciturn.secure_sum.opening import OpenedSum, SlotOpening
from taciturn.secure_sum.parameters import SumParameters
from taciturn.secure_sum.slot import SlotRules, SlotState, SlotStep, next_epoch
from taciturn.secure_sum.slot_messages import MaskedUpload, SumQuestion
from taciturn.secure_sum.sum_context import Signer, SumStudy

W = b"the model"


@cache
def identity(number: int) -> Identity:
    place = Path(f"site-{number}")
    return Identity(place, SigningKey(new_key(), place), X25519PrivateKey.generate())


def study_of(
    sites: int, colluders: int, quorum: int, dimension: int = 4, rounds: int = 100, width: int = 40, name: int = 0
) -> SumStudy:
    parameters = SumParameters(sites, colluders, quorum, dimension, width, rounds, reserve=3)
    identities = tuple(identity(number).public for number in range(1, sites + 1))
    return SumStudy(hashlib.sha256(b"terms").digest(), name.to_bytes(16, "big"), parameters, identities)


@dataclass
class Member:
    """A site: its rules, and the state that its journal would hold."""

    epochs: EpochRules
    slots: SlotRules
    state: SlotState | None = None
    departures: list[bytes] = field(default_factory=list)
    charges: int = 0

    @property
    def now(self) -> SlotState:
        assert self.state is not None
        return self.state

    def taken(self, step: SlotStep) -> bytes:
        self.state = step.state
        self.charges += step.charge
        self.departures.append(step.reply)
        return step.reply

    def upload(self, question: SumQuestion, y: Integers, w: bytes = W) -> bytes:
        return self.taken(self.slots.upload(self.now, question.to_bytes(), w, lambda: y))

    def agree(self, data: bytes) -> bytes:
        return self.taken(self.slots.agree(self.now, data))

    def reveal(self, data: bytes) -> bytes:
        return self.taken(self.slots.reveal(self.now, data))


@dataclass
class Group:
    """All sites of a study, and the server's directory."""

    study: SumStudy
    members: dict[int, Member]
    directory: Directory | None = None

    @property
    def now(self) -> Directory:
        assert self.directory is not None
        return self.directory

    def signer(self, site: int) -> Signer:
        return identity(site)

    def question(
        self, slot: int, roster: tuple[int, ...] | None = None, w: bytes = W, round_number: int = 1
    ) -> SumQuestion:
        directory = self.now
        return SumQuestion(directory.epoch, slot, round_number, roster or directory.sites, hashlib.sha256(w).digest())

    def opening(self, question: SumQuestion) -> SlotOpening:
        return SlotOpening(self.study, self.now, question)


def group(
    study: SumStudy,
    slots: int = 2,
    rules: type[SlotRules] = SlotRules,
    epoch_rules: type[EpochRules] = EpochRules,
    cohort: tuple[int, ...] | None = None,
) -> Group:
    """Return sites that have begun epoch 0."""
    everybody = frozenset(range(1, study.parameters.sites + 1))
    members = {
        site: Member(epoch_rules(study, site, identity(site), everybody), rules(study, site, identity(site)))
        for site in everybody
    }
    made = Group(study, members)
    begin_epoch(made, 0, slots, cohort)
    return made


def begin_epoch(made: Group, epoch: int, slots: int, cohort: tuple[int, ...] | None = None) -> None:
    sites = cohort or tuple(sorted(made.members))
    rules = {site: made.members[site].epochs for site in sites}
    announced = {site: one.announce(epoch, slots, epoch - 1) for site, one in rules.items()}
    made.directory = directory_of(made.study, {site: data for site, (_, data) in announced.items()})
    shown = made.directory.to_bytes()
    dealt = {site: one.deal(announced[site][0], shown) for site, one in rules.items()}
    delivered = deliveries_of(made.directory, {site: data for site, (_, data) in dealt.items()})
    kept = {site: one.keep(dealt[site][0], delivered[site]) for site, one in rules.items()}
    roll = roll_of(made.study, made.directory, {site: data for site, (_, data) in kept.items()})
    for site, one in rules.items():
        keys, member = one.begin(kept[site][0], roll), made.members[site]
        member.state = SlotState(keys) if member.state is None else next_epoch(member.state, keys)


def directory_of(study: SumStudy, announced: dict[int, bytes]) -> Directory:
    """Collect announcements as a server does."""
    one = Announcement.from_bytes(next(iter(announced.values())))
    request = EpochRequest(one.epoch, one.slots)
    found = {site: read_announcement(study, request, site, data) for site, data in announced.items()}
    return make_directory(study, found)


def deliveries_of(directory: Directory, dealt: dict[int, bytes]) -> dict[int, bytes]:
    """Collect boxes as a server does that checks nothing: it may be malicious."""
    return make_deliveries(directory, {site: Deal.from_bytes(data) for site, data in dealt.items()})


def roll_of(study: SumStudy, directory: Directory, held: dict[int, bytes]) -> bytes:
    """Collect the cohort's signatures as a server does."""
    return make_roll(directory, {site: read_held(study, directory, site, data) for site, data in held.items()})


def play(
    made: Group,
    question: SumQuestion,
    y: dict[int, Integers],
    uploading: tuple[int, ...],
    helping: tuple[int, ...],
) -> OpenedSum:
    """Run a slot as an honest server does: `uploading` upload, `helping` answer afterwards."""
    opening = made.opening(question)
    uploads: dict[int, MaskedUpload] = {}
    for site in uploading:
        uploads[site] = opening.read_upload(site, made.members[site].upload(question, y[site]))
    masked, signatures = opening.add(uploads), {}
    alive = masked.alive
    if alive != question.roster:
        request = opening.alive_request(masked)
        signatures = {site: opening.read_signature(site, alive, made.members[site].agree(request)) for site in helping}
    request = opening.share_request(alive, signatures)
    answers = {site: opening.read_shares(site, made.members[site].reveal(request)) for site in helping}
    return opening.open(masked, answers)


def numbers_of(group_: Group, seed: int = 0, bound: int = 2**30) -> dict[int, Integers]:
    rng = np.random.default_rng(seed)
    dimension = group_.study.parameters.dimension
    return {site: rng.integers(-bound, bound, dimension) for site in group_.members}
