"""The coordinator of a study: which sites take part, when a round is possible, and the end of the study.

What a round is depends on the trust model: see `upload_coordinator` and `sum_coordinator`.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.core.storage import flushed_size
from taciturn.errors import InputError
from taciturn.federation import MESSAGE_VERSIONS, validation
from taciturn.federation import messages as wire
from taciturn.federation.agreement import Agreement
from taciturn.federation.exchange import Exchange
from taciturn.federation.journal import Place, evaluation_place, place_of
from taciturn.federation.messages import CloseRequest, Invitation, Refusal
from taciturn.federation.run_folder import (
    RoundLine,
    finish_study_folder,
    participation_totals,
    read_rounds,
    record_round,
    rounds_path,
)
from taciturn.federation.server_state import ServerState
from taciturn.federation.sum_state import SumState
from taciturn.federation.validation import Rejected, printable
from taciturn.planning.study import Study
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.hash_chain import HashChain
from taciturn.reporting.evaluation_tables import evaluation_sentence
from taciturn.runs.folder import RunFolder, append_lines, read_lines
from taciturn.runs.ledger import RunLedger, release_entries
from taciturn.runs.private_quality import PrivateQuality
from taciturn.runs.records import EvaluationRow, NonPrivateEntry
from taciturn.training.private_evaluation import EvaluationSchedule, private_quality
from taciturn.types import Array

FINISHED, STOPPED, WAITING, EVALUATED = "finished", "stopped", "waiting", "evaluated"
MAX_BAD_ANSWERS = 3  # in a row, after which a site is skipped for a while
GATHER_SECONDS = 10.0  # to wait for sites that are not connected, once a quorum is ready
POLL_SECONDS = 0.05  # between two checks for sites
BACKOFF_SECONDS, LONGEST_BACKOFF = 15.0, 600.0  # for a site that was too slow or sent invalid answers
CLOSING_EVENTS = ("ready", "closed", "refused", "left out")  # show whether a site waits for the end of a study


Traffic: TypeAlias = tuple[int, int]
"""Bytes of messages from the sites and to the sites."""


class StudyProgress(NamedTuple):
    """How far a study is."""

    round: int  # rounds done
    w: Array  # [J, 1, K]  the model so far, in parameters of the features
    sent: Traffic


class SlotTotals(NamedTuple):
    """The slots of a study with a secure sum, each of which is one attempt at a round."""

    epoch: int  # the newest; -1 before the first
    asked: int  # slots that sites were asked to upload in
    lost: int  # of those, slots that were never opened
    planned: int  # T + reserve, the uploads of a site that the plan pays for


class Backoff(NamedTuple):
    """A site that is skipped until some time, or until it connects again."""

    connected_at: float
    until: float
    refusal: str = ""
    firm_until: float = 0.0  # until then, connecting again does not help


@dataclass
class Coordinator(ABC):
    """A study at the coordinator: invitations, waiting, and the end, over any message exchange.

    Parameters
    ----------
    agreement : Agreement
        The study as the terms define it.
    study, folder
        The run.
    experiment : str
        The study's identifier, 32 hexadecimal digits.
    excluded : tuple of str
        Sites that are left out for good.
    versions : range
        Supported message versions.
    """

    agreement: Agreement
    study: Study
    folder: RunFolder
    experiment: str
    excluded: tuple[str, ...] = ()
    versions: range = MESSAGE_VERSIONS
    state: ServerState | SumState = field(init=False)  # at the last checkpoint
    chain: HashChain = field(init=False)
    charged: set[tuple[str, Place]] = field(init=False)  # site, and round, evaluation or slot
    measured: set[Place] = field(init=False)  # of those, the evaluations, or their slots
    evaluations: list[EvaluationRow] = field(init=False)
    evaluate_now: bool = False  # one evaluation of the model as it is, and no round
    non_private_sites: set[str] = field(init=False)
    bad_answers: Counter[str] = field(default_factory=Counter)  # in a row
    failures: Counter[str] = field(default_factory=Counter)
    invited: set[str] = field(default_factory=set)  # and not answered yet
    invited_at: dict[str, float] = field(default_factory=dict)  # site -> when it had connected at its invitation
    backoffs: dict[str, Backoff] = field(default_factory=dict)
    _reported_waiting: tuple[str, ...] | None = None  # the ready sites when the last lack of a quorum was logged

    def __post_init__(self) -> None:
        self.chain = self.folder.chain
        ledger = RunLedger.from_rows(self.chain.read(), self.chain.path)
        self.charged = {(entry.agent, place_of(entry)) for entry in ledger.releases}
        self.measured = measured_places(ledger)
        self.evaluations = self.folder.read_evaluations()
        self.non_private_sites = {entry.agent for entry in ledger if isinstance(entry, NonPrivateEntry)}

    @property
    def progress(self) -> StudyProgress:
        """Rounds done, the model so far, and the bytes that were sent."""
        return StudyProgress(self.state.round, self.state.w, self.state.sent)

    @property
    @abstractmethod
    def agents(self) -> tuple[str, ...]:
        """The sites with which the study continues, in order."""

    @property
    @abstractmethod
    def quorum(self) -> int:
        """The number of sites that must be ready for the next step."""

    @property
    def slots(self) -> SlotTotals | None:
        """The slots so far; None without a secure sum."""
        return None

    @property
    def is_trained(self) -> bool:
        """Whether no round is left."""
        return self.progress.round == self.agreement.part.rounds

    @property
    def is_complete(self) -> bool:
        """Whether neither a round nor an evaluation is left."""
        return self.is_trained and not self.evaluation_due

    @property
    def schedule(self) -> EvaluationSchedule:
        """The evaluations that are planned, and how many of them are spent."""
        return EvaluationSchedule.of(self.agreement.part, len(self.measured))

    @property
    def is_evaluated(self) -> bool:
        """Whether the model as it is has been evaluated, or its evaluation was given up."""
        return any(row.round == self.progress.round for row in self.evaluations)

    @property
    def _measure(self) -> MeasureRelease:
        if self.agreement.measure is None:
            raise TypeError("this study has no evaluations")
        return self.agreement.measure

    @property
    def evaluation_due(self) -> bool:
        """Whether the model as it is must be evaluated before the next round."""
        t, schedule = self.progress.round, self.schedule
        if self.agreement.measure is None or t == 0 or self.folder.finished or self.is_evaluated:
            return False
        asked = self.evaluate_now and schedule.left > 0
        return self.evaluation_begun or asked or schedule.is_due(t, last=self.is_trained)

    @property
    @abstractmethod
    def evaluation_begun(self) -> bool:
        """Whether sites were asked to evaluate this model, so that they can be asked again without another charge."""

    @abstractmethod
    def _run_round(self, exchange: Exchange, ready: list[str]) -> list[str]:
        """Run one round with the ready sites, and return the sites for the next one."""

    @abstractmethod
    def _run_evaluation(self, exchange: Exchange, ready: list[str]) -> list[str]:
        """Evaluate the model as it is with the ready sites, and return the sites for the next round."""

    def _measured(self) -> dict[str, Array]:
        """Return statistics for estimating the noise in an additive model's curves; empty for other models."""
        statistics = self.state.server.statistics
        if statistics is None:
            return {}
        answered = np.array([len(line.answered) for line in read_rounds(self.folder)])
        return {"server_statistics": statistics, "round": np.array(self.state.round), "answered": answered}

    @property
    def _fate_of_excluded(self) -> str:
        """What happens to the uploads of sites that are left out, in words."""
        return "their uploads are no longer part of the model"

    @property
    def expected_sites(self) -> list[str]:
        """The sites to wait for: those that have not refused; after the end of the study, those not closed yet."""
        sites = self.unclosed_sites if self.folder.finished else self.agents
        return [site for site in sites if site not in self.refusals]

    @property
    def unclosed_sites(self) -> list[str]:
        """The sites that took part and do not know yet that the study has ended.

        The ledger lists the sites that were asked for a round, and no crash removes lines from it.
        """
        path = site_events_path(self.folder)
        lines = read_lines(path) if path.exists() else []
        last = {line["site"]: line["event"] for line in lines if line["event"] in CLOSING_EVENTS}
        began = {site for site, _ in self.charged} | {site for site, event in last.items() if event == "ready"}
        return [site for site in self.agents if site in began and last.get(site, "ready") == "ready"]

    @property
    def refusals(self) -> dict[str, str]:
        """The sites that do not take part, with their reasons."""
        return {site: backoff.refusal for site, backoff in self.backoffs.items() if backoff.refusal}

    def run(self, exchange: Exchange, stop: Callable[[], bool] = lambda: False) -> str:
        """Run rounds until the study ends, no event is possible any more, or `stop()` is true.

        A site that connects later, or again, is invited between rounds and joins when it is ready.

        Parameters
        ----------
        exchange : Exchange
            The connection to the sites.
        stop : callable
            Returns whether to stop.

        Returns
        -------
        str
            FINISHED, WAITING (too few sites, and no event is possible), STOPPED, or with `evaluate_now` EVALUATED.

        Raises
        ------
        InputError
            If so many sites have refused that there cannot be a quorum.
        TrainingDiverged
            If the model is not usable, whichever uploads are removed.
        """
        for memory in (self.invited, self.backoffs, self.bad_answers):  # nothing carries over from another exchange
            memory.clear()
        ready = self._gather(exchange, stop)
        give_up_at = time.monotonic() + self.agreement.terms.ready_seconds
        while not stop():
            if self.folder.finished and not self.expected_sites:
                return FINISHED
            if self.evaluate_now and not self.evaluation_due:
                return EVALUATED
            ready = self._update_ready(exchange, ready)
            if len(ready) < self.quorum:
                if self._reported_waiting != tuple(ready):
                    self._reported_waiting = tuple(ready)
                    self.log_event(WAITING, ready=ready, quorum=self.quorum)
                can_continue = exchange.wait(POLL_SECONDS)
                if (
                    self.is_trained and not self.is_complete and not self.evaluate_now
                ):  # this must not keep a study open
                    if not can_continue or time.monotonic() > give_up_at or len(self.expected_sites) < self.quorum:
                        self._skip_evaluation("too few sites are left")
                    continue
                if not can_continue:
                    return WAITING
                self._check_quorum_possible()
                continue
            self._reported_waiting = None
            give_up_at = time.monotonic() + self.agreement.terms.ready_seconds
            if self.is_complete:
                self._close(exchange, ready)
                return FINISHED
            ready = self._run_evaluation(exchange, ready) if self.evaluation_due else self._run_round(exchange, ready)
        return STOPPED

    def _gather(self, exchange: Exchange, stop: Callable[[], bool]) -> list[str]:
        """Return the sites that are ready once all connected sites have replied to their invitations.

        Once there is a quorum, sites that are not connected are waited for `GATHER_SECONDS` at most.
        """
        ready, quorum_at = self._update_ready(exchange, []), 0.0
        while not stop():
            missing = [site for site in self.expected_sites if site not in exchange.connected()]
            if len(ready) >= self.quorum:
                quorum_at = quorum_at or time.monotonic()
            patient = missing and (not quorum_at or time.monotonic() - quorum_at < GATHER_SECONDS)
            impossible = len(self.expected_sites) < self.quorum
            if impossible or not (self.invited or patient) or not exchange.wait(POLL_SECONDS):
                break
            ready = self._update_ready(exchange, ready)
        return ready

    def _check_quorum_possible(self) -> None:
        if len(self.expected_sites) < self.quorum:
            reasons = "; ".join(f"{site}: {reason}" for site, reason in self.refusals.items())
            raise InputError(f"the study cannot run: {self.quorum} sites must take part, but {reasons}")

    def _update_ready(self, exchange: Exchange, ready: Sequence[str]) -> list[str]:
        """Return the ready sites after disconnections and replies; every other connected site is invited."""
        connected = exchange.connected()
        present = {site for site in ready if site in connected and connected[site] == self.invited_at[site]}
        for site in ready:
            if site not in present:
                self.log_event("missing", site=site, round=self.progress.round + 1)
        present |= self._read_invitation_replies(exchange)
        invitation = Invitation(self.experiment, self.agreement.terms.digest, (self.versions[0], self.versions[-1]))
        for site in self._invitable(connected):
            if site not in present and site not in self.invited:
                self.invited.add(site)
                self.invited_at[site] = connected[site]
                exchange.invite(wire.encode(invitation), site, self.agreement.terms.ready_seconds)
        present |= self._read_invitation_replies(exchange)
        return [site for site in self.agents if site in present]

    def _invitable(self, connected: Mapping[str, float]) -> list[str]:
        """Return the connected sites that are not skipped; most are no longer skipped if they have connected again."""
        now = time.monotonic()
        for site, backoff in list(self.backoffs.items()):
            again = site in connected and connected[site] != backoff.connected_at and now >= backoff.firm_until
            if again or (site in connected and now > backoff.until):
                del self.backoffs[site]
        return [site for site in self.expected_sites if site in connected and site not in self.backoffs]

    def _read_invitation_replies(self, exchange: Exchange) -> set[str]:
        """Return the sites that have accepted an invitation since the last call."""
        ready = set()
        for site, data in exchange.invitation_replies().items():
            self.invited.discard(site)
            if data is None:
                self._record_missing(site, self.progress.round)
                continue
            try:
                reply = validation.read_ready(data, site, self.experiment, self.agreement.message_limit, self.versions)
            except Rejected as error:
                self.log_event("rejected", site=site, reason=str(error))
                self._back_off(site)
                continue
            if isinstance(reply, Refusal):
                self._record_refusal(site, reply)
                continue
            self._note_noise(site, printable(reply.non_private))
            self.bad_answers[site] = 0
            exchange.set_version(site, reply.version)
            self.log_event("ready", site=site)
            ready.add(site)
        return ready

    def _note_noise(self, site: str, non_private: str) -> None:
        """Record why a site's noise protects nobody: then the whole study is not private, and the ledger says so."""
        if non_private and site not in self.non_private_sites:
            self.chain.append([{"kind": "non_private", "agent": site, "reason": non_private}])
            self.non_private_sites.add(site)

    def _record_missing(self, site: str, t: int) -> None:
        self.log_event("missing", site=site, round=t)
        self._back_off(site)

    def _record_refusal(self, site: str, refusal: Refusal, **fields: int) -> str:
        reason = printable(refusal.reason)
        self.log_event("refused", site=site, reason=reason, **fields)
        self.backoffs[site] = Backoff(self.invited_at[site], math.inf, reason)
        return reason

    def _record_rejection(self, site: str, t: int, reason: str) -> bool:
        """Record an invalid answer, and return whether the site continues: not after `MAX_BAD_ANSWERS` in a row."""
        self.bad_answers[site] += 1
        self.log_event("rejected", site=site, round=t, reason=reason)
        if self.bad_answers[site] < MAX_BAD_ANSWERS:
            return True
        self._back_off(site)
        return False

    def _back_off(self, site: str) -> None:
        """Skip a site, longer each time, so that a slow site does not delay every round."""
        self.failures[site] += 1
        self.backoffs[site] = Backoff(self.invited_at[site], time.monotonic() + self._pause(site))

    def _hold_back(self, site: str) -> None:
        """Skip a site for a while even if it connects again, so that it does not stop the others each time it does."""
        if site not in self.backoffs:
            self._back_off(site)
        self.backoffs[site] = self.backoffs[site]._replace(firm_until=time.monotonic() + self._pause(site))

    def _pause(self, site: str) -> float:
        """Return for how many seconds a site is skipped, by how often it failed."""
        return min(LONGEST_BACKOFF, BACKOFF_SECONDS * 2.0 ** min(max(self.failures[site] - 1, 0), 64))

    def _charge(self, sites: Sequence[str], t: int, slot: str | None = None) -> None:
        """Charge each site that is asked with the maximum cost of a round; its own ledger has the actual cost."""
        plan = self.agreement.plan
        count = plan.events[plan.event] // plan.charges
        self._charge_events(sites, slot or t, t, BatchEvent((plan.event,)), count, slot)

    def _charge_evaluation(self, sites: Sequence[str], t: int, slot: str | None = None) -> None:
        """Charge each site that is asked with the cost of an evaluation."""
        place = slot or evaluation_place(t)
        self._charge_events(sites, place, t, self._measure.event, 1, slot)
        self.measured.add(place)

    def _charge_events(
        self, sites: Sequence[str], place: Place, t: int, event: BatchEvent, count: int, slot: str | None
    ) -> None:
        """Charge each site that is not yet charged for this place."""
        agents, labels = self.agreement.terms.agents, self.study.parts[0].batch.labels()
        new = Counter({(agents.index(site), event): count for site in sites if (site, place) not in self.charged})
        self.chain.append(release_entries(new, labels, agents, first=t, last=t, slot=slot))
        self.charged |= {(site, place) for site in sites}

    def _record_round(
        self,
        t: int,
        w: Array,
        residual: float,
        answered: Sequence[str],
        rejected: dict[str, str],
        traffic: Traffic,
        slot: str = "",
    ) -> None:
        """Write the metrics of a finished round and its line in rounds.jsonl."""
        record_round(self.folder, self.study, t, w, residual, self._sent_with(traffic), self.study.dataset.test)
        missing = [site for site in self.agents if site not in answered]
        line = RoundLine(t, self.agreement.part.rounds, list(answered), missing, rejected, *traffic, slot)
        append_lines(rounds_path(self.folder.path), [line._asdict()])

    def _sent_with(self, traffic: Traffic) -> Traffic:
        """Return the bytes of the whole study, with those of a round or an evaluation."""
        return self.state.sent[0] + traffic[0], self.state.sent[1] + traffic[1]

    def _record_evaluation(self, total: NDArray[np.int64], answered: Sequence[str], slot: str | None = None) -> None:
        """Store what the sum [D] over some sites says about the model as it is."""
        quality = private_quality(self._measure, total[:, None], 0, len(answered), self.agreement.target)
        row = self._add_evaluation(quality, tuple(answered), slot)
        self.log_event("evaluated", round=row.round, answered=list(answered), found=evaluation_sentence(row))

    def _skip_evaluation(self, reason: str) -> None:
        """Give up the evaluation of the model as it is; training goes on."""
        self.log_event("evaluation skipped", round=self.progress.round, reason=reason)
        self._add_evaluation(None, (), None)

    def _add_evaluation(
        self, quality: PrivateQuality | None, answered: tuple[str, ...], slot: str | None
    ) -> EvaluationRow:
        row = EvaluationRow(
            **vars(self.study.parts[0].batch.labels()[0]),
            round=self.progress.round,
            agents=len(answered),
            quality=quality,
            answered=answered,
            slot=slot,
        )
        self.folder.add_evaluations([row])
        flushed_size(self.folder.evaluations)
        self.evaluations.append(row)
        return row

    def _close(self, exchange: Exchange, ready: Sequence[str]) -> None:
        """Finish the run folder and send the model to the sites."""
        if not self.folder.finished:
            title = self.agreement.terms.name
            finish_study_folder(self.study, self.folder, self.progress.w, title, self._report_lines(), self._measured())
        message = wire.encode(CloseRequest(self.experiment, self.progress.round, self.progress.w))
        questions = dict.fromkeys(ready, message)
        replies = exchange.request(questions, self.agreement.terms.ready_seconds)  # sites write their reports now
        for site in ready:
            try:
                reply = validation.read_closed(replies[site], site, self.experiment, self.agreement.message_limit)
            except (KeyError, Rejected):
                self.log_event("not closed", site=site)
                continue
            if isinstance(reply, Refusal):  # the site may close at the next attempt
                self.log_event("not closed", site=site, reason=printable(reply.reason))
            else:
                self.log_event("closed", site=site)

    def _report_lines(self) -> list[str]:
        totals, agents = participation_totals(self.folder), self.agreement.terms.agents
        answered = ", ".join(f"{site} {totals.answered.get(site, 0)}" for site in agents)
        excluded = [
            f"Left out by the coordinator: {', '.join(self.excluded)}; {self._fate_of_excluded}, and the budget they "
            "spent stays spent."
        ]
        return [
            f"Rounds answered, of {totals.rounds}: {answered}; answers rejected: {totals.rejected}.",
            *(excluded if self.excluded else []),
            *self._evaluation_lines(),
            f"The sites sent {totals.bytes_up:,} bytes and received {totals.bytes_down:,}.",
            "The ledger of this folder lists every round that a site was asked for: an upper bound of its spending. "
            "The actual spending is in the site's own ledger.",
        ]

    def _evaluation_lines(self) -> list[str]:
        if self.agreement.measure is None:
            return []
        made = sum(row.quality is not None for row in self.evaluations)
        spent, paid = len(self.measured), self.schedule.paid
        return [
            f"Private evaluations on held-out records: {made}, and {len(self.evaluations) - made} that were given up; "
            f"sites were asked {spent} of at most {paid} times."
        ]

    def log_event(self, event: str, **fields: Any) -> None:
        """Append an event to sites.jsonl.

        Parameters
        ----------
        event : str
            ready, missing, refused, rejected, round, evaluated, evaluation lost, evaluation skipped, epoch, epoch
            lost, slot lost, wrong shares, waiting, left out, closed or not closed.
        fields
            The site, the round, the reason, ..., as JSON.
        """
        append_lines(site_events_path(self.folder), [{"time": round(time.time(), 3), "event": event, **fields}])


def measured_places(ledger: RunLedger) -> set[Place]:
    """Return the evaluations of a ledger, or their slots."""
    return {place_of(entry) for entry in ledger.releases if entry.held_out}


def site_events_path(folder: RunFolder) -> Path:
    """Return the file of events with sites and rounds. It is private: times can reveal records."""
    return folder.checkpoints / "sites.jsonl"


def round_milliseconds(folder: RunFolder) -> list[float]:
    """Return how long each round took at the coordinator. The times are private."""
    return [float(line["ms"]) for line in read_lines(site_events_path(folder)) if line["event"] == "round"]
