"""Rounds of a secure sum: the coordinator sees masked uploads, and opens nothing but their sum.

A round is one slot of the protocol in `taciturn.secure_sum`: masked uploads of a roster, a signature of each site on
who uploaded if a site is missing, and shares of the masks. A slot that cannot be opened is lost. The next attempt is
another slot, with new noise and a new charge.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np

from taciturn.algorithms.base import SummableAlgorithm
from taciturn.algorithms.noisy_gradient import SummedGradient
from taciturn.algorithms.server import Received
from taciturn.errors import BudgetExhausted, TrainingDiverged
from taciturn.federation import messages as wire
from taciturn.federation import validation
from taciturn.federation.coordinator import Backoff, Coordinator, SlotTotals
from taciturn.federation.exchange import Exchange
from taciturn.federation.journal import Slot
from taciturn.federation.logs import LOG
from taciturn.federation.messages import Refusal, SumRequest, SumRoundRequest
from taciturn.federation.run_folder import read_rounds
from taciturn.federation.sum_state import EpochFile, SlotAttempt, SumFiles, SumState
from taciturn.federation.sum_terms import SPARE_EPOCHS, sum_study
from taciturn.federation.validation import Rejected
from taciturn.objectives.clipping import admissible
from taciturn.secure_sum.epoch import (
    BoxesUnopened,
    make_deliveries,
    make_directory,
    make_roll,
    read_announcement,
    read_deal,
    read_held,
)
from taciturn.secure_sum.epoch_messages import Directory, EpochRequest
from taciturn.secure_sum.opening import MaskedSum, OpenedSum, SlotLost, SlotOpening, WrongShares
from taciturn.secure_sum.parameters import GRADIENT, MEASURES, MODULUS_TAIL, epoch_slots
from taciturn.secure_sum.slot_messages import SumQuestion
from taciturn.secure_sum.sum_context import SumStudy
from taciturn.secure_sum.sum_wire import SumRefused
from taciturn.training.simulate_sums import MEAN, mean_gradient
from taciturn.types import Array

SPARE_HELPERS = 2  # sites that are asked for shares beyond the threshold
EPOCH_TRIES = 3  # attempts at an epoch before the sites are looked at again
JOIN_SLOTS = 5  # that an epoch serves at least before another one begins only because a site has come

V = TypeVar("V")


@dataclass
class SumCoordinator(Coordinator):
    """A study with a secure sum; see `Coordinator` for its fields."""

    state: SumState = field(init=False)
    sums: SumStudy = field(init=False)
    files: SumFiles = field(init=False)
    epoch: EpochFile = field(init=False)
    pending: SlotAttempt | None = field(init=False)  # asked, and neither opened nor lost
    masked: MaskedSum | None = None  # the sum of its uploads, once their set is decided
    asked: set[str] = field(init=False)  # the slots that sites were asked to upload in
    begun: set[str] = field(default_factory=set)  # sites that know that the epoch has begun
    doubtful: Counter[str] = field(default_factory=Counter)  # sites -> slots in which they sent wrong shares
    disputes: set[tuple[int, int]] = field(default_factory=set)  # dealers, and receivers whose boxes do not open
    source: str | None = field(init=False)  # why the noise of the sums protects nobody; "" if it does; None: undecided
    sources: dict[str, str] = field(default_factory=dict)  # the same of each site, as it said when it was ready
    _gone: set[str] = field(default_factory=set)  # sites that this round has lost
    _rejected: dict[str, str] = field(default_factory=dict)  # in this round: site -> reason
    _traffic: tuple[int, int] = (0, 0)  # bytes of this round from the sites and to the sites

    def __post_init__(self) -> None:
        self.files = SumFiles(self.folder, self.agreement.part.batch.algorithm)
        self.state, self.epoch = self.files.restore(self.agreement.zero), self.files.read_epoch()
        super().__post_init__()
        self.source = self._read_source()
        self.sums = sum_study(self.agreement, self.experiment, self.source or "")
        self.pending = self.files.read_attempt(self.state.round, self.epoch)
        if self.evaluation_begun and self.is_evaluated:
            self.pending = None
        if self.pending is not None:
            self.masked = self.files.read_masked(self.pending.question)
        self.asked = {str(slot) for _, slot in self.charged}

    @property
    def slots(self) -> SlotTotals:
        """The slots so far."""
        lost = self.attempts - self.state.round - self._round_begun
        return SlotTotals(self.epoch.number, self.attempts, lost, self.sums.parameters.charges)

    @property
    def agents(self) -> tuple[str, ...]:
        """The sites with which the study continues, in order."""
        return tuple(site for site in self.agreement.terms.agents if site not in self.excluded)

    @property
    def quorum(self) -> int:
        """The minimum number of sites in a sum; 1 after the end, when sites are only notified of it."""
        return 1 if self.is_complete else self.sums.parameters.quorum

    @property
    def _fate_of_excluded(self) -> str:
        return "sums that were opened before still contain what they sent"

    @property
    def evaluation_begun(self) -> bool:
        """Whether the pending slot is an evaluation."""
        return self.pending is not None and self.pending.question.subject == MEASURES

    @property
    def is_trained(self) -> bool:
        """Whether no round is left, or no upload that the plan pays for.

        Raises
        ------
        BudgetExhausted
            If all uploads were lost before the first round was finished.
        """
        if self.folder.finished or super().is_trained:
            return True
        if self.attempts < self.sums.parameters.charges or self._round_begun:
            return False
        if self.state.round == 0:
            raise BudgetExhausted(
                f"{self.attempts} slots were lost before the first sum was opened, and the plan pays for no more; the "
                "sites must agree on a new study"
            )
        return True

    @property
    def attempts(self) -> int:
        """How many slots sites were asked to upload gradients in."""
        return len(self.asked - self.measured)

    def _read_source(self) -> str | None:
        """Return the source of the noise in a study that is resumed: its first epoch has decided."""
        if self.non_private_sites:
            return self.folder.read_ledger().non_private
        return None if self.epoch.number < 0 else ""

    def _note_noise(self, site: str, non_private: str) -> None:
        self.sources[site] = non_private  # the ledger notes it once the site takes part in sums

    def _of_one_source(self, ready: Sequence[str]) -> list[str]:
        """Return the sites that can be in one sum, and refuse those whose noise has another source.

        Every site relies on the others' shares of the noise. So sites whose noise protects nobody are only in sums of
        such sites, and `SumStudy` has the source. The first sites that are ready decide on it.
        """
        if self.source is None:
            self.source = min(self.sources[site] for site in ready)  # "" if the noise of any of them protects
            self.sums = sum_study(self.agreement, self.experiment, self.source)
        for site in ready:
            own = self.sources[site]
            if own == self.source:
                super()._note_noise(site, own)
                continue
            reason = (
                f"its noise is {own or 'not seeded'}, and this study's sums are of sites whose noise is "
                f"{self.source or 'not seeded'}: each relies on the shares of the others, so the two do not mix"
            )
            self.log_event("refused", site=site, round=self.progress.round + 1, reason=reason)
            self.backoffs[site] = Backoff(self.invited_at[site], math.inf, reason)
            self._gone.add(site)
        return [site for site in ready if site not in self._gone]

    @property
    def _round_begun(self) -> bool:
        """Whether the pending slot is a round."""
        return self.pending is not None and not self.evaluation_begun

    def _run_round(self, exchange: Exchange, ready: list[str]) -> list[str]:
        """Run one slot with the ready sites, and return the sites for the next one."""
        began, t = time.perf_counter(), self.state.round + 1
        if (result := self._open_slot(exchange, ready, t, self._new_attempt)) is not None:
            self._advance(*result)
            self.log_event("round", round=t, ms=round(1000.0 * (time.perf_counter() - began), 1))
            self.pending = self.masked = None
        return [site for site in ready if site not in self._gone]

    def _run_evaluation(self, exchange: Exchange, ready: list[str]) -> list[str]:
        """Run one slot whose sum is of measures; if it is lost and no other is paid for, give the evaluation up."""
        if self._round_begun:  # a newer slot would end it
            return self._run_round(exchange, ready)
        t, names = self.state.round, self.agreement.terms.agents
        if (result := self._open_slot(exchange, ready, t, self._new_evaluation)) is not None:
            attempt, opened = result
            self._record_evaluation(opened.total, [names[site - 1] for site in opened.alive], attempt.slot)
            self.pending = self.masked = None
        self.state = self.state._replace(sent=self._sent_with(self._traffic))
        if not (self.is_evaluated or self.evaluation_due):
            self._skip_evaluation("its slot was lost, and the others are for later models")
        return [site for site in ready if site not in self._gone]

    def _open_slot(
        self,
        exchange: Exchange,
        ready: list[str],
        t: int,
        choose: Callable[[int, Sequence[str], Directory], SlotAttempt],
    ) -> tuple[SlotAttempt, OpenedSum] | None:
        """Continue the pending slot or begin a new one, and return what was opened; None if it is lost or must wait.

        A slot that was opened stays pending until the caller has stored its sum.
        """
        self._gone, self._rejected, self._traffic = set(), {}, (0, 0)
        ready = self._of_one_source(ready)
        directory = self._join_epoch(exchange, ready, t)
        roster = [] if directory is None else self._present(ready, directory.sites)
        if directory is None or not (self.pending or len(roster) >= self.quorum):
            return None
        attempt = self.pending = self.pending or choose(t, roster, directory)
        self._charge_slot(attempt)
        try:
            opened = self._open(exchange, attempt, directory, ready)
            self._check_plausible(attempt.question, opened)
        except (SlotLost, WrongShares) as error:
            event = "evaluation lost" if self.evaluation_begun else "slot lost"
            self.log_event(event, round=t, slot=attempt.slot, reason=str(error))
            self.files.write_attempt(attempt, lost=True)
            self.pending = self.masked = None
            return None
        return attempt, opened

    def _join_epoch(self, exchange: Exchange, ready: Sequence[str], t: int) -> Directory | None:
        """Return the directory of an epoch in which the ready sites can upload, or None if too few are left."""
        directory = self.epoch.directory
        if self.pending is None and (directory is None or not self._has_room(directory, ready)):
            directory = None
            for _ in range(EPOCH_TRIES):
                present = [site for site in ready if site not in self._gone]
                if directory is None and len(present) >= self.quorum:
                    directory = self._begin_epoch(exchange, present, t)
        if directory is None:
            return None
        uninformed = [site for site in self._present(ready, directory.sites) if site not in self.begun]
        informed = self._prepare(exchange, dict.fromkeys(uninformed, self.epoch.roll), wire.BEGIN, t, _unread)
        self.begun |= {site for site in uninformed if self._number(site) in informed}
        return directory

    def _has_room(self, directory: Directory, ready: Sequence[str]) -> bool:
        """Return whether the next slot is one of this epoch.

        It has an unused slot, and a quorum of its cohort is ready. A site that is ready and not in the cohort waits
        until the epoch has served some slots, and while many epochs have failed: else one site that comes and goes
        could use up the epochs that sites make in a study.
        """
        present = self._present(ready, directory.sites)
        used = self._next_slot(directory)
        if used >= directory.slots or len(present) < self.quorum:
            return False
        spare = len(self.asked) + SPARE_EPOCHS // 2 - (self.epoch.number + 1)
        return len(present) == len(ready) or used < JOIN_SLOTS or spare < EPOCH_TRIES

    def _begin_epoch(self, exchange: Exchange, sites: Sequence[str], t: int) -> Directory | None:
        """Make the keys of a new epoch with these sites, or return None if one of them is lost on the way."""
        number = self.epoch.number + 1
        self.epoch, self.begun = EpochFile(number, None, b""), set()
        self.files.write_epoch(self.epoch)  # a number is used once, whatever happens next
        study, request = self.sums, EpochRequest(number, epoch_slots(self.sums.parameters), self.sums.digest)
        try:
            announced = self._prepare(
                exchange,
                dict.fromkeys(sites, request.to_bytes()),
                wire.ANNOUNCE,
                t,
                lambda site, data: read_announcement(study, request, site, data),
            )
            directory = make_directory(study, announced)
            cohort = self._present(sites, directory.sites)
            questions = dict.fromkeys(cohort, directory.to_bytes())
            deals = self._prepare(
                exchange, questions, wire.DEAL, t, lambda site, data: read_deal(study, directory, site, data)
            )
            boxes = make_deliveries(directory, deals)
            questions = {site: boxes[self._number(site)] for site in cohort}
            complaints: dict[int, tuple[int, ...]] = {}

            def read(site: int, data: bytes) -> bytes:
                try:
                    return read_held(study, directory, site, data)
                except BoxesUnopened as unopened:
                    complaints[site] = unopened.dealers
                    return b""

            held = self._prepare(exchange, questions, wire.KEEP, t, read)
            if complaints:
                raise SumRefused(self._settle_disputes(complaints, t))
            roll = make_roll(directory, held)
        except SumRefused as error:
            self.log_event("epoch lost", round=t, epoch=number, reason=str(error))
            return None
        self.epoch = EpochFile(number, directory, roll)
        self.files.write_epoch(self.epoch)
        self.log_event("epoch", round=t, epoch=number, sites=cohort)
        return directory

    def _prepare(
        self, exchange: Exchange, messages: Mapping[str, bytes], step: str, t: int, read: Callable[[int, bytes], V]
    ) -> dict[int, V]:
        """Ask sites for a step of an epoch, which takes all of them; a site that fails is left out for a while."""
        answers = self._ask(exchange, messages, step, t, read)
        for site in messages:
            if self._number(site) not in answers:
                self._hold_back(site)
                self._gone.add(site)
        return answers

    def _settle_disputes(self, complaints: Mapping[int, tuple[int, ...]], t: int) -> str:
        """Leave out the sites at fault for boxes that do not open, and return in words who cannot open whose boxes.

        An honest site is in dispute only with sites at fault, of which there are at most c. So a site that is in
        dispute with more is at fault itself: a dealer whom more than c receivers name, or a receiver who names more
        than c dealers. Otherwise nobody can tell, and the receiver is left out for a while.
        """
        new = {(dealer, receiver) for receiver, dealers in complaints.items() for dealer in dealers}
        self.disputes |= new
        names, counts = self.agreement.terms.agents, Counter(number for pair in self.disputes for number in pair)
        guilty = {number for number, count in counts.items() if count > self.sums.parameters.colluders}
        for number in sorted(guilty & {one for pair in new for one in pair}):
            others = sorted({one for pair in self.disputes if number in pair for one in pair if one != number})
            against = ", ".join(names[other - 1] for other in others)
            site, reason = names[number - 1], f"its boxes, or what it says about boxes, do not agree with {against}"
            self.log_event("rejected", site=site, round=t, reason=reason)
            self.backoffs[site] = Backoff(self.invited_at[site], math.inf, reason, firm_until=math.inf)
            self._gone.add(site)
        for number in sorted({receiver for dealer, receiver in new if not {dealer, receiver} & guilty}):
            site = names[number - 1]
            self.log_event("refused", site=site, round=t, reason=str(BoxesUnopened(complaints[number])))
            self._hold_back(site)
            self._gone.add(site)
        return "; ".join(f"{names[n - 1]}: {BoxesUnopened(dealers)}" for n, dealers in sorted(complaints.items()))

    def _new_attempt(self, t: int, roster: Sequence[str], directory: Directory) -> SlotAttempt:
        """Choose a slot for round t; the question is on disk before any site is asked."""
        algorithm = self._algorithm
        _, w = algorithm.server_send(t, self.state.server)
        shared = algorithm.shared_state(t, self.state.agent)
        sent = w if shared is None else np.concatenate([w, np.asarray(shared, w.dtype)])
        return self._store_attempt(t, roster, directory, sent, GRADIENT)

    def _new_evaluation(self, t: int, roster: Sequence[str], directory: Directory) -> SlotAttempt:
        """Choose a slot for the evaluation of the model of round t."""
        return self._store_attempt(t, roster, directory, self.state.w, MEASURES)

    def _store_attempt(
        self, t: int, roster: Sequence[str], directory: Directory, sent: Array, subject: int
    ) -> SlotAttempt:
        digest = hashlib.sha256(wire.array_bytes(sent)).digest()
        numbers = tuple(sorted(map(self._number, roster)))
        question = SumQuestion(directory.epoch, self._next_slot(directory), t, numbers, digest, subject)
        attempt = SlotAttempt(question, sent)
        self.files.write_attempt(attempt)
        return attempt

    def _charge_slot(self, attempt: SlotAttempt) -> None:
        """Charge all sites that are asked in a slot, before they are; after a crash, only if that was not done."""
        names, question = self.agreement.terms.agents, attempt.question
        charge = self._charge_evaluation if question.subject == MEASURES else self._charge
        charge([names[number - 1] for number in question.roster], question.round, attempt.slot)
        self.asked.add(attempt.slot)

    def _open(self, exchange: Exchange, attempt: SlotAttempt, directory: Directory, ready: Sequence[str]) -> OpenedSum:
        """Ask for uploads, for signatures if a site is missing, and for shares; return the opened sum."""
        t, opening = attempt.question.round, SlotOpening(self.sums, directory, attempt.question)
        masked = self.masked or self._collect(exchange, opening, attempt, ready)
        alive = masked.alive
        signatures: dict[int, bytes] = {}
        if alive != attempt.question.roster:
            questions = dict.fromkeys(self._present(ready, alive), opening.alive_request(masked))
            signatures = self._ask(
                exchange, questions, wire.AGREE, t, lambda site, data: opening.read_signature(site, alive, data)
            )
        request = opening.share_request(alive, signatures)
        helpers = self._helpers(attempt.question, self._present(ready, alive))
        most = opening.threshold + SPARE_HELPERS

        def ask(some: Sequence[str]) -> dict[int, list[int]]:
            return self._ask(exchange, dict.fromkeys(some, request), wire.REVEAL, t, opening.read_shares)

        answers = ask(helpers[:most])
        try:
            opened = opening.open(masked, answers)
        except (SlotLost, WrongShares):
            if not helpers[most:]:
                raise
            opened = opening.open(masked, answers | ask(helpers[most:]))
        self._note_wrong_shares(attempt, opened)
        return opened

    def _note_wrong_shares(self, attempt: SlotAttempt, opened: OpenedSum) -> None:
        """Record whose shares did not agree with those that opened the sum; others are asked before them from now on.

        One of them may be innocent, if their dealer dealt wrong shares, or if several helpers lie together.
        """
        names = self.agreement.terms.agents
        for helper, dealers in sorted(opened.disputed.items()):
            site, whose = names[helper - 1], [names[dealer - 1] for dealer in dealers]
            self.doubtful[site] += 1
            self.log_event("wrong shares", site=site, round=attempt.question.round, slot=attempt.slot, dealers=whose)
            LOG.warning(
                "slot %s: the shares that %s sent do not agree with those of the others, for the secrets of %s",
                attempt.slot,
                site,
                ", ".join(whose),
            )

    def _collect(
        self, exchange: Exchange, opening: SlotOpening, attempt: SlotAttempt, ready: Sequence[str]
    ) -> MaskedSum:
        """Ask the roster for masked uploads, and store the sum of those that arrive: their set is then decided."""
        question = attempt.question
        request = wire.encode(SumRoundRequest(self.experiment, question.to_bytes(), attempt.sent))
        questions = dict.fromkeys(self._present(ready, question.roster), request)
        uploads = self._exchange(exchange, questions, wire.UPLOAD, question.round, opening.read_upload)
        self.masked = opening.add(uploads)
        self.files.write_masked(question, self.masked)
        return self.masked

    def _longest_sum(self, subject: int, alive: Sequence[int]) -> float:
        """Return the greatest length of the sum over these sites: that of the records' parts, and that of the noise."""
        records, measure = sum(self._sizes[site - 1] for site in alive), self.agreement.measure
        reach = math.sqrt(self.sums.parameters.size(subject)) + MODULUS_TAIL
        if subject == MEASURES and measure is not None:
            longest = records * measure.layout.length
            return 2.0 ** measure.bits[0] * (longest + reach * measure.deviation(0, len(alive)))
        release, problem = self._release.hardened, self._algorithm.problem
        noise = reach * float(release.mechanism.scale.max()) * math.sqrt(len(alive))
        return release.unit(problem) * (records / problem.records * float(release.clipping.l2.max()) + noise)

    def _check_plausible(self, question: SumQuestion, opened: OpenedSum) -> None:
        """Raise `SlotLost` if honest sites cannot have this sum.

        Garbage is spread over all numbers of the width, so it is longer: in few dimensions with a probability, in many
        always.
        """
        most = self._longest_sum(question.subject, opened.alive)
        length = float(np.linalg.norm(opened.total.astype(np.float64)))
        if length > most:
            raise SlotLost(
                f"the length of the opened sum is {length:.3g}; honest sites cannot exceed {most:.3g}, so a site sent "
                "invalid values"
            )

    def _advance(self, attempt: SlotAttempt, opened: OpenedSum) -> None:
        """Take the step of the mean agent with the opened sum, and store the round."""
        algorithm, state, t = self._algorithm, self.state, attempt.question.round
        server, w = algorithm.server_send(t, state.server)
        answered = [site - 1 for site in opened.alive]
        total = opened.total.reshape(w.shape)
        noisy = mean_gradient(algorithm, t, w, total, self._sizes, answered)
        agent, upload = algorithm.local_step(t, w, state.agent, noisy)
        server = algorithm.server_receive(t, w, server, Received.of({MEAN: upload}))
        model = algorithm.model(t, w, server)
        if not admissible(model):
            raise TrainingDiverged(
                f"the model of round {t} exceeds the largest admissible values: the steps are too long, or a site "
                "sends invalid values; choose a smaller eta and another --out"
            )
        coefficients = algorithm.coefficients(model, server)
        names = [self.agreement.terms.agents[p] for p in answered]
        self._record_round(t, coefficients, math.nan, names, self._rejected, self._traffic, attempt.slot)
        self.state = SumState(t, server, agent, coefficients, self._sent_with(self._traffic))
        self.files.save(self.state)

    def _ask(
        self, exchange: Exchange, messages: Mapping[str, bytes], step: str, t: int, read: Callable[[int, bytes], V]
    ) -> dict[int, V]:
        """Ask sites for a step of the protocol; see `_exchange`."""
        questions = {site: wire.encode(SumRequest(self.experiment, step, data)) for site, data in messages.items()}
        return self._exchange(exchange, questions, step, t, read)

    def _exchange(
        self, exchange: Exchange, questions: Mapping[str, bytes], step: str, t: int, read: Callable[[int, bytes], V]
    ) -> dict[int, V]:
        """Return what `read` makes of each site's valid reply, by the site's number; other sites are recorded."""
        if not questions:
            return {}
        replies = exchange.request(questions, self.agreement.terms.answer_seconds)
        up, down = self._traffic
        self._traffic = up + sum(map(len, replies.values())), down + sum(map(len, questions.values()))
        answers: dict[int, V] = {}
        for site in questions:
            if site not in replies:
                self._record_missing(site, t)
                self._gone.add(site)
                continue
            try:
                reply = validation.read_sum_answer(
                    replies[site], site, self.experiment, step, self.agreement.message_limit
                )
                if isinstance(reply, Refusal):
                    self._rejected[site] = self._record_refusal(site, reply, round=t)
                    self._gone.add(site)
                    continue
                answers[self._number(site)] = read(self._number(site), reply.data)
                self.bad_answers[site] = 0
            except (Rejected, SumRefused) as error:
                self._rejected[site] = str(error)
                if not self._record_rejection(site, t, str(error)):
                    self._gone.add(site)
        return answers

    def _present(self, ready: Sequence[str], numbers: Sequence[int]) -> list[str]:
        """Return the ready sites with these numbers that this round has not lost."""
        return [site for site in ready if site not in self._gone and self._number(site) in numbers]

    def _helpers(self, question: SumQuestion, sites: list[str]) -> list[str]:
        """Return the sites to ask for shares, in another order in each slot, so that they share the work.

        Those that have sent wrong shares come last.
        """
        turn = question.slot % max(1, len(sites))
        return sorted(sites[turn:] + sites[:turn], key=lambda site: self.doubtful[site])

    def _next_slot(self, directory: Directory) -> int:
        """Return the first slot of an epoch that no site was asked to upload in."""
        asked = map(Slot.parse, self.asked)
        return 1 + max((one.slot for one in asked if one.epoch == directory.epoch), default=-1)

    def _number(self, site: str) -> int:
        """Return the number of a site in the protocol, from 1."""
        return self.agreement.terms.agents.index(site) + 1

    @property
    def _algorithm(self) -> SummableAlgorithm:
        return cast(SummableAlgorithm, self.agreement.algorithm)

    @property
    def _release(self) -> SummedGradient:
        return cast(SummedGradient, self._algorithm.release)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """The declared records of every site."""
        return tuple(self.agreement.terms.sites.values())

    def _report_lines(self) -> list[str]:
        parameters, slots = self.sums.parameters, self.slots
        fewest = min((len(line.answered) for line in read_rounds(self.folder)), default=0)
        over = f"all {fewest}" if fewest == parameters.sites else f"at least {fewest} of {parameters.sites}"
        return [
            f"The coordinator saw no upload of a single site. It opened one sum in each round: over {over} sites, "
            f"where sums over fewer than {parameters.quorum} cannot be opened.",
            f"Every sum has at least {parameters.honest} honest shares of noise, which is all that the total epsilon "
            f"needs, if at most {parameters.colluders} of the sites told the coordinator what they know.",
            f"Slots that sites were asked to upload in: {slots.asked} of at most {slots.planned}. Of these, "
            f"{slots.lost} were lost: their sums were never opened, and their uploads stay charged.",
            *super()._report_lines(),
        ]


def _unread(site: int, data: bytes) -> bytes:
    """Return a message that the next step of the protocol reads."""
    return data
