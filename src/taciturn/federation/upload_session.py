"""A session in which a site sends its own noisy iterate every round: lines 14-23 of Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taciturn.algorithms.steps import consensus_residual
from taciturn.errors import MissedRound
from taciturn.federation import messages as wire
from taciturn.federation.journal import EvaluationRecord, RoundRecord
from taciturn.federation.messages import Answer, MeasureAnswer, MeasureRequest, RoundRequest
from taciturn.federation.run_folder import record_round
from taciturn.federation.site_session import Refused, SiteSession
from taciturn.types import Array


@dataclass
class UploadSession(SiteSession):
    """A study with noise at every site; see `SiteSession` for its fields."""

    def answer(self, message: RoundRequest | MeasureRequest) -> bytes:
        """Answer a round or an evaluation; the same request gets the same bytes again.

        Raises
        ------
        Refused
            If the request does not follow from this site's answers so far.
        PrivacyViolation
            If the noise drawn differs from the plan.
        """
        return self._answer_round(message) if isinstance(message, RoundRequest) else self._evaluate(message)

    def _evaluate(self, message: MeasureRequest) -> bytes:
        """Measure a model on the held-out records, with all the noise of the plan.

        The journal has one answer for each round, whatever w is: a second model for the same round is refused.
        """
        t, w, name = message.round, wire.array_digest(message.w), self.experiment.id
        with self.journal.exclusive():
            record = next((one for one in self.journal.evaluations(name) if one.round == t), None)
            new = record is None
            if record is None:
                record = self._draw_measures(message, w)
                self.journal.write_evaluation(name, record)
        if record.w != w:
            raise Refused(f"the model of round {t} was evaluated here, and this is another one")
        self._charge(record.charge)  # the noise is drawn, even if the measures never leave
        if record.upload is None:
            raise Refused(f"the evaluation of round {t} has ended here")
        if new:
            return record.upload
        return self.journal.record_repeatable(name, "measures again", t, record.upload).data

    def _draw_measures(self, message: MeasureRequest, w: str) -> EvaluationRecord:
        """Return a new answer to an evaluation, with its ledger entries."""
        t = message.round
        integers, event = self._measure(t, message.w, t)
        data = wire.encode(MeasureAnswer(self.experiment.id, self.site.name, t, integers.astype("<i8").tobytes()))
        return EvaluationRecord(t, w, self._entries([event], t, wire.digest(data)), data)

    def _answer_round(self, message: RoundRequest) -> bytes:
        """Answer a round: lines 14-23 of Algorithm 1; the same request gets the same bytes again.

        No other thread or process writes to the journal between the check of the last round and the stored answer, and
        the round is claimed before noise is drawn. Concurrent requests therefore never get two answers of one round.

        Raises
        ------
        Refused
            If the request does not follow from this site's answers so far.
        PrivacyViolation
            If the noise drawn differs from the plan.
        """
        t, w, name = message.round, wire.array_digest(message.w), self.experiment.id
        base = message.bases.get(self.site.name)
        if base is None:
            raise Refused("the message names no base for this site")
        with self.journal.exclusive():
            last = self.journal.last_round(name)
            answered = last if last is not None and t <= last.round else None
            record, z = (answered, message.w) if answered else self._draw(message, base, w)
        if answered:
            return self._answer_again(answered, t, w, base)
        self._charge(record.charge)  # the noise is drawn, even if the upload never leaves
        if record.upload is None:
            raise Refused(f"round {t} gave values that are not finite; it is charged, and they stay here")
        residual = float(consensus_residual(message.w, [z])[0])
        size = message.w.nbytes * len(self.ledger.uploads)
        record_round(self.folder, self.study, t, message.w, residual, (size, size), None)
        return record.upload

    def _draw(self, message: RoundRequest, base: int, w: str) -> tuple[RoundRecord, Array]:
        """Claim and compute a new round, and store everything that may leave."""
        t, name = message.round, self.experiment.id
        agent = self.journal.agent_state(name, base, self.agreement.zero)
        if agent is None or not base < t <= self.agreement.part.rounds:
            raise Refused(f"round {t} from base {base} does not follow from this site's answers")
        self._check_parameters(message.w)
        self._begin_draw(self._round_cost, f"round {t}")
        self.journal.claim_round(name, t, base, w)
        try:
            step = self.agreement.algorithm.agent_step(t, message.w, agent, self.shard, self._noise(t))
        except MissedRound as missed:
            raise Refused(f"this site can no longer answer in this study: {missed}") from missed
        self._check_events(step.events, self._round_cost)
        data = wire.encode(Answer(name, self.site.name, t, step.upload.z))
        entries, finite = self._entries(step.events, t, wire.digest(data)), bool(np.isfinite(step.upload.z).all())
        record = RoundRecord(t, base, w, entries, data if finite else None)
        self.journal.write_round(name, record, step.agent)
        return record, step.upload.z

    def _answer_again(self, last: RoundRecord, t: int, w: str, base: int) -> bytes:
        if t < last.round:
            raise Refused(f"round {t} is stale; this site has answered round {last.round}")
        if (w, base) != (last.w, last.base):
            raise Refused(f"round {t} was answered for another w or base; a second answer would fork the study")
        if last.upload is None:
            raise Refused(f"round {t} is older than what the server has accepted")
        self._charge(last.charge)  # in case the ledger could not be written before
        return self.journal.record_repeatable(self.experiment.id, "answer again", t, last.upload).data
