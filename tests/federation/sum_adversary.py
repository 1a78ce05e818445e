"""A malicious coordinator with a colluding site against real agents: it asks what it likes of whom it likes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np

from taciturn.algorithms import Agent
from taciturn.algorithms.base import SummableAlgorithm
from taciturn.federation import messages as wire
from taciturn.federation.agent import SiteAgent
from taciturn.federation.identity import Identity
from taciturn.federation.messages import Invitation, Question, Ready, Refusal, SumAnswer, SumRequest, SumRoundRequest
from taciturn.federation.site_session import non_private_reason
from taciturn.federation.sum_session import SumSession
from taciturn.federation.sum_terms import noise_number, sum_study
from taciturn.privacy.noise import SeededNoise
from taciturn.secure_sum.epoch import (
    make_deliveries,
    make_directory,
    make_roll,
    read_announcement,
    read_deal,
    read_held,
)
from taciturn.secure_sum.epoch_messages import Directory, EpochRequest
from taciturn.secure_sum.masking import Integers
from taciturn.secure_sum.slot import SlotRules, SlotState
from taciturn.secure_sum.slot_messages import SumQuestion
from taciturn.secure_sum.sum_context import Signer, SumStudy
from taciturn.types import Array
from tests.federation.helpers import EXPERIMENT, SEED
from tests.federation.sum_helpers import SUM_LIMIT, SumFederation, make_sums
from tests.secure_sum.coalition import Coalition


class SiteRefused(Exception):
    """A site's refusal; the text is its reason."""


@dataclass
class AgentVictim:
    """A site's agent, asked step by step."""

    crew: Crew
    number: int

    @property
    def name(self) -> str:
        return self.crew.federation.sites[self.number - 1]

    @property
    def agent(self) -> SiteAgent:
        return self.crew.agents[self.name]

    @property
    def session(self) -> SumSession:
        session = self.agent._session
        assert isinstance(session, SumSession)
        return session

    @property
    def now(self) -> SlotState:
        assert self.session.state is not None
        return self.session.state

    @property
    def slots(self) -> SlotRules:
        return self.session.slot_rules

    def ask(self, message: Question) -> bytes:
        """Return the protocol's message in a reply; raise `SiteRefused` if there is none."""
        reply = wire.decode_reply(self.agent.answer(wire.encode(message)), SUM_LIMIT)
        if isinstance(reply, Refusal):
            raise SiteRefused(reply.reason)
        assert isinstance(reply, SumAnswer), reply
        return reply.data

    def step(self, name: str, data: bytes) -> bytes:
        return self.ask(SumRequest(self.crew.experiment, name, data))

    def upload(self, question: SumQuestion, y: Integers, w: bytes) -> bytes:
        """Ask for an upload at the model that the question names; what the site sums follows from its records."""
        sent = self.crew.models.get(question.w, self.crew.model())
        return self.ask(SumRoundRequest(self.crew.experiment, question.to_bytes(), sent))

    def agree(self, data: bytes) -> bytes:
        return self.step(wire.AGREE, data)

    def reveal(self, data: bytes) -> bytes:
        return self.step(wire.REVEAL, data)


@dataclass
class Crew:
    """All sites of a study, as a malicious coordinator sees them."""

    federation: SumFederation
    agents: dict[str, SiteAgent]
    experiment: str = EXPERIMENT
    directory: Directory | None = None
    models: dict[bytes, Array] = field(default_factory=dict)  # by their digest

    def __post_init__(self) -> None:
        self.members = {number: AgentVictim(self, number) for number in range(1, len(self.agents) + 1)}

    @property
    def study(self) -> SumStudy:
        (source,) = {non_private_reason(agent.seed) for agent in self.agents.values()}
        return sum_study(self.federation.agreement, self.experiment, source)

    @property
    def now(self) -> Directory:
        assert self.directory is not None
        return self.directory

    def signer(self, site: int) -> Signer:
        return Identity.open(self.federation.site(self.federation.sites[site - 1]).identity)

    def model(self, shift: float = 0.0) -> Array:
        return self.federation.agreement.zero + shift

    def invite(self) -> None:
        for member in self.members.values():
            message = Invitation(self.experiment, self.federation.terms.digest)
            reply = wire.decode_reply(member.agent.answer(wire.encode(message)), SUM_LIMIT)
            if isinstance(reply, Refusal):
                raise SiteRefused(reply.reason)
            assert isinstance(reply, Ready)

    def begin_epoch(self, number: int, slots: int = 4, cohort: tuple[int, ...] = ()) -> Directory:
        """Make the keys of an epoch as an honest coordinator does."""
        sites, request = cohort or tuple(self.members), EpochRequest(number, slots)
        ask = {site: self.members[site].step for site in sites}
        announced = {site: one(wire.ANNOUNCE, request.to_bytes()) for site, one in ask.items()}
        read = {site: read_announcement(self.study, request, site, data) for site, data in announced.items()}
        self.directory = directory = make_directory(self.study, read)
        dealt = {site: one(wire.DEAL, directory.to_bytes()) for site, one in ask.items()}
        boxes = make_deliveries(
            directory, {site: read_deal(self.study, directory, site, data) for site, data in dealt.items()}
        )
        held = {site: one(wire.KEEP, boxes[site]) for site, one in ask.items()}
        roll = make_roll(directory, {s: read_held(self.study, directory, s, data) for s, data in held.items()})
        for one in ask.values():
            one(wire.BEGIN, roll)
        return directory

    def question(
        self, slot: int, roster: tuple[int, ...] | None = None, w: bytes = b"", round_number: int = 1
    ) -> SumQuestion:
        """Return the question of a slot; `w` is one byte, by which the model is shifted."""
        model = self.model(0.01 * w[0] if w else 0.0)
        digest = sha256(wire.array_bytes(model)).digest()
        self.models[digest] = model
        return SumQuestion(self.now.epoch, slot, round_number, roster or self.now.sites, digest)

    def integers(self, site: int, question: SumQuestion) -> Integers:
        """Return the integers that a site's upload in a slot hides: its gradient with its seeded noise."""
        agreement = self.federation.agreement
        algorithm = cast(SummableAlgorithm, agreement.algorithm)
        noise = SeededNoise(
            (SEED,), site - 1, noise_number(question.epoch, question.slot), agreement.part.batch.streams
        )
        zero, shard = agreement.zero, self.federation.shards()[site - 1]
        found = algorithm.local_gradient(question.round, self.models[question.w], Agent(zero, zero), shard, noise)
        return np.asarray(found.gradient, np.int64).reshape(-1)

    def total(self, sites: tuple[int, ...], question: SumQuestion) -> Integers:
        return cast(Integers, sum(self.integers(site, question) for site in sites))


NOTHING: Any = dict.fromkeys(range(1, 20))  # agents sum what their records say


@contextmanager
def crew(
    root: Path,
    names: tuple[str, ...] = ("s1", "s2", "s3", "s4", "s5", "s6"),
    missing: int = 2,
    begun: bool = True,
    rounds: int | None = None,
) -> Iterator[Crew]:
    """Yield agents of sites that have begun epoch 0; with six sites, q = tau = 4."""
    study = {"missing": missing} | ({"rounds": rounds} if rounds else {})
    federation = make_sums(root, {"study": study}, {"rounds_max": 1000}, names, 4)
    with ExitStack() as stack:
        made = Crew(federation, {site: stack.enter_context(federation.agent(site)) for site in names})
        if begun:
            made.invite()
            made.begin_epoch(0)
        yield made


def coalition_of(made: Crew, *colluders: int) -> Coalition:
    """Return the coordinator with colluders, who also run agents and hand over what these hold."""
    return Coalition(made, colluders)
