"""A session in which a site's uploads are masked, so that only their sum with other sites' can be read.

The rules are those of `taciturn.secure_sum`; this module gives them the site's records, journal and ledger. The order
of every step is fixed: the journal stores the new state and the reply, the ledger is charged, and only then may bytes
leave. Sites keep no training state: what they sum is the gradient at the model in the question.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms import Agent
from taciturn.algorithms.base import SummableAlgorithm
from taciturn.errors import MissedRound
from taciturn.federation import messages as wire
from taciturn.federation.identity import Identity
from taciturn.federation.journal import Charge, Slot
from taciturn.federation.messages import SumAnswer, SumRequest, SumRoundRequest
from taciturn.federation.run_folder import record_round
from taciturn.federation.site_session import Refused, SiteSession, non_private_reason
from taciturn.federation.sum_journal import PreparedEpoch, SumJournal
from taciturn.federation.sum_terms import SPARE_EPOCHS, noise_number, sum_study, verified_sites
from taciturn.privacy.events import BatchEvent
from taciturn.secure_sum.epoch import AnnouncedEpoch, BoxesUnopened, DealtEpoch, EpochRules, KeptEpoch
from taciturn.secure_sum.epoch_messages import EpochRequest, Roll, UnopenedBoxes
from taciturn.secure_sum.parameters import GRADIENT, MEASURES, epoch_slots
from taciturn.secure_sum.slot import SlotRules, SlotState, SlotStep, next_epoch
from taciturn.secure_sum.slot_messages import AliveRequest, ShareRequest, SumQuestion
from taciturn.secure_sum.sum_wire import SumRefused
from taciturn.types import Array

P = TypeVar("P", AnnouncedEpoch, DealtEpoch, KeptEpoch)


class Sent(NamedTuple):
    """What a question holds besides its slot: where the gradient is taken."""

    w: Array  # [J, 1, K]
    agent: Agent  # the public state that some methods need; zeros for others


@dataclass
class SumSession(SiteSession):
    """A study with a secure sum; see `SiteSession` for its fields."""

    sums: SumJournal = field(init=False)
    epoch_rules: EpochRules = field(init=False)
    slot_rules: SlotRules = field(init=False)
    prepared: PreparedEpoch | None = field(init=False)  # the newest epoch, if it has not begun
    state: SlotState | None = field(init=False)  # of the epoch that has begun

    def __post_init__(self) -> None:
        """Read the state of epochs and slots from the journal, after the ledger is reconciled."""
        super().__post_init__()
        terms, name = self.agreement.terms, self.site.name
        study = sum_study(self.agreement, self.experiment.id, non_private_reason(self.seed))
        signer = Identity.open(self.site.identity)
        if signer.public != terms.identities[name]:
            raise Refused(f"the terms have another identity of {name} than the one in this site's identity file")
        number = terms.agents.index(name) + 1
        self.epoch_rules = EpochRules(study, number, signer, verified_sites(self.site, terms))
        self.slot_rules = SlotRules(study, number, signer)
        self.sums = SumJournal(self.journal, self.experiment)
        self.sums.check_not_restored()
        self.prepared, self.state = self.sums.prepared(), self.sums.state()

    def _participation(self) -> str:
        uploads, rounds = len(self.ledger.uploads), len(self.ledger.rounds)
        return (
            f"The site sent {uploads} masked uploads for {rounds} of {self.agreement.part.rounds} rounds, each in a "
            "separate slot and with its own noise. All of them are charged, whether their sums were opened or not."
        )

    def answer(self, message: SumRequest | SumRoundRequest) -> bytes:
        """Answer a step of the secure sum; the same request gets the same bytes again.

        Raises
        ------
        Refused
            If the request breaks a rule of the protocol.
        PrivacyViolation
            If the noise drawn differs from the plan, or a slot would be used twice.
        """
        try:
            if isinstance(message, SumRoundRequest):
                return self._upload(message)
            steps: dict[str, Callable[[bytes], bytes]] = {
                wire.ANNOUNCE: self._announce,
                wire.DEAL: self._deal,
                wire.KEEP: self._keep,
                wire.BEGIN: self._begin,
                wire.AGREE: self._agree,
                wire.REVEAL: self._reveal,
            }
            if message.step not in steps:
                raise Refused(f"there is no step {message.step!r:.20} of a secure sum; there are {', '.join(steps)}")
            return steps[message.step](message.data)
        except SumRefused as refused:
            raise Refused(str(refused)) from refused

    def _announce(self, data: bytes) -> bytes:
        request, prepared = EpochRequest.from_bytes(data), self.prepared
        if prepared is not None and not isinstance(prepared, KeptEpoch):
            known = (prepared.announced if isinstance(prepared, DealtEpoch) else prepared).announcement
            if (known.epoch, known.slots) == (request.epoch, request.slots):
                return self._repeat(wire.ANNOUNCE, known.to_bytes())
        study = self.slot_rules.study
        if request.study and request.study != study.digest:
            raise Refused(
                "the coordinator computes another plan of this study's sums (noise, grid or sizes) than this site from "
                "the same terms: they run different versions of Taciturn, and all parties need the same one"
            )
        parameters = study.parameters
        if request.slots > epoch_slots(parameters):
            raise Refused(
                f"an epoch of {request.slots} slots is too long: one of this study has {epoch_slots(parameters)}"
            )
        limit = parameters.uploads + SPARE_EPOCHS
        if self.sums.epochs() >= limit:
            raise Refused(f"this site has made keys for {limit} epochs of this study; that is the limit")
        announced, reply = self.epoch_rules.announce(request.epoch, request.slots, self.sums.newest_epoch())
        return self._prepare(wire.ANNOUNCE, reply, self.sums.write_announced, announced)

    def _deal(self, data: bytes) -> bytes:
        prepared = self.prepared
        if not isinstance(prepared, AnnouncedEpoch | DealtEpoch):
            raise Refused("this site has announced no keys for this step")
        dealt, reply = self.epoch_rules.deal(prepared, data)
        if dealt is prepared:
            return self._repeat(wire.DEAL, reply)
        return self._prepare(wire.DEAL, reply, self.sums.write_dealt, dealt)

    def _keep(self, data: bytes) -> bytes:
        prepared = self.prepared
        if not isinstance(prepared, DealtEpoch | KeptEpoch):
            raise Refused("this site has not shared its secrets in this epoch yet")
        try:
            kept, reply = self.epoch_rules.keep(prepared, data)
        except BoxesUnopened as refused:  # the coordinator must know whose, to tell who is at fault
            complaint = UnopenedBoxes(self.epoch_rules.site, prepared.directory.epoch, refused.dealers)
            return self._repeat(wire.KEEP, complaint.to_bytes())
        if kept is prepared:
            return self._repeat(wire.KEEP, reply)
        return self._prepare(wire.KEEP, reply, self.sums.write_kept, kept)

    def _begin(self, data: bytes) -> bytes:
        prepared, state = self.prepared, self.state
        if state is not None and Roll.from_bytes(data).epoch == state.keys.directory.epoch:
            return self._repeat(wire.BEGIN, b"")
        if not isinstance(prepared, KeptEpoch):
            raise Refused("this site does not hold its shares of this epoch yet")
        begun = self.epoch_rules.begin(prepared, data)
        answer = self._store(wire.BEGIN, b"", lambda: self.sums.write_begun(begun))
        self.prepared, self.state = None, SlotState(begun) if state is None else next_epoch(state, begun)
        return self._counted(answer)

    def _upload(self, message: SumRoundRequest) -> bytes:
        """Mask and charge the gradient of a round, lines 15 to 18 of Algorithm 1, at w; or the measures of w."""
        question, state = SumQuestion.from_bytes(message.data), self._begun_state()
        name, t, number = self.experiment.id, question.round, noise_number(question.epoch, question.slot)
        drawn: list[BatchEvent] = []

        def draw() -> NDArray[np.int64]:
            if question.subject == MEASURES:
                integers, event = self._measure(t, message.w, number)
            else:
                integers, event = self._gradient(t, self._read_sent(t, message.w), number)
            drawn.append(event)
            return integers

        with self.journal.exclusive():
            step = self.slot_rules.upload(state, message.data, wire.array_bytes(message.w), draw)
            answer = wire.encode(SumAnswer(name, self.site.name, wire.UPLOAD, t, step.reply))
            slot = str(Slot(question.epoch, question.slot))
            if step.charge:
                charge = Charge(slot, self._entries(drawn, t, wire.digest(answer), slot))
                self.sums.write_upload(state, step, question, charge)
                self.journal.record_departure(name, "sum upload", t, answer)
            else:
                charge = next(charge for charge in self.journal.charges(name) if charge.place == slot)
        self.state = step.state
        self._charge(charge)  # the noise is drawn, even if the upload never leaves
        self.journal.database.truncate_log()  # secrets of this slot and shares of older ones are deleted
        if not step.charge:
            return self.journal.record_repeatable(name, "sum upload again", t, answer).data
        if question.subject == GRADIENT:
            size, w = message.w.nbytes * len(self.ledger.uploads), message.w[: len(self.agreement.zero)]
            record_round(self.folder, self.study, t, w, math.nan, (size, size), None)
        return answer

    def _gradient(self, t: int, sent: Sent, number: int) -> tuple[NDArray[np.int64], BatchEvent]:
        """Return the integers of this site with fresh noise, and the event of the draw."""
        self._begin_draw(self._round_cost, f"round {t}")
        try:
            released = self._algorithm.local_gradient(t, sent.w, sent.agent, self.shard, self._noise(number))
        except MissedRound as missed:
            raise Refused(f"the question of round {t} lacks the statistics of the columns") from missed
        self._check_events([released.event], self._round_cost)
        return np.ascontiguousarray(released.gradient, np.int64).reshape(-1), released.event

    def _read_sent(self, t: int, sent: Array) -> Sent:
        """Return the model in a question of round t, and the public state that the method needs below it."""
        zero = self.agreement.zero
        has_state = self._algorithm.shared_state(t, Agent(zero, zero)) is not None
        rows = (1 + has_state) * len(zero)
        if len(sent) != rows:
            raise Refused(f"a question of round {t} must have {rows} rows of numbers; it has {len(sent)}")
        parts = [sent[start : start + len(zero)] for start in range(0, len(sent), len(zero))]
        for part in parts:
            self._check_parameters(part)
        return Sent(parts[0], Agent(zero, parts[1] if len(parts) == 2 else zero))

    @property
    def _algorithm(self) -> SummableAlgorithm:
        return cast(SummableAlgorithm, self.agreement.algorithm)

    def _agree(self, data: bytes) -> bytes:
        question = AliveRequest.from_bytes(data).question
        return self._store_agreed_set(wire.AGREE, question, self.slot_rules.agree(self._begun_state(), data))

    def _reveal(self, data: bytes) -> bytes:
        question = ShareRequest.from_bytes(data).question
        return self._store_agreed_set(wire.REVEAL, question, self.slot_rules.reveal(self._begun_state(), data))

    def _store_agreed_set(self, name: str, question: SumQuestion, step: SlotStep) -> bytes:
        """Store the only set that this site agrees to in a slot before the reply leaves."""
        state = self._begun_state()
        before = state.records.get(step.slot)
        if before is not None and before.alive:  # the rules have compared the two sets
            self.state = step.state
            return self._repeat(name, step.reply, question.round)
        answer = self._store(name, step.reply, lambda: self.sums.write_opinion(state, step), question.round)
        self.state = step.state
        self.sums.store_count()
        return answer

    def _begun_state(self) -> SlotState:
        if self.state is None:
            raise Refused("no epoch has begun at this site")
        return self.state

    def _store(self, step: str, data: bytes, write: Callable[[], None], t: int = 0) -> bytes:
        """Store a step with its reply in one transaction."""
        answer = wire.encode(SumAnswer(self.experiment.id, self.site.name, step, t, data))
        with self.journal.exclusive():
            write()
            self.journal.record_departure(self.experiment.id, f"sum {step}", t or None, answer)
        return answer

    def _prepare(self, step: str, data: bytes, write: Callable[[P], None], prepared: P) -> bytes:
        """Store a step of an epoch that has not begun; only then the session continues from the state after it."""
        answer = self._store(step, data, lambda: write(prepared))
        self.prepared = prepared
        return self._counted(answer)

    def _counted(self, answer: bytes) -> bytes:
        """Return a reply that may leave: its step is counted, and the secrets it makes useless are gone."""
        self.sums.store_count()
        self.journal.database.truncate_log()
        return answer

    def _repeat(self, step: str, data: bytes, t: int = 0) -> bytes:
        """Return the reply of a step that is stored already, perhaps by a process that died before it left."""
        answer = wire.encode(SumAnswer(self.experiment.id, self.site.name, step, t, data))
        return self._counted(self.journal.record_repeatable(self.experiment.id, f"sum {step}", t or None, answer).data)
