"""Rounds in which every site uploads its own noisy iterate, from a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms import Upload
from taciturn.algorithms.server import FullState, Received
from taciturn.algorithms.steps import consensus_residual
from taciturn.errors import CorruptFile, TrainingDiverged
from taciturn.federation import messages as wire
from taciturn.federation import server_state, validation
from taciturn.federation.coordinator import Coordinator
from taciturn.federation.exchange import Exchange
from taciturn.federation.journal import evaluation_place
from taciturn.federation.messages import Answer, MeasureRequest, Refusal, RoundRequest
from taciturn.federation.server_state import ServerState
from taciturn.federation.validation import Iterate, Reach, Rejected
from taciturn.objectives.clipping import admissible
from taciturn.types import Array

R = TypeVar("R")
EVALUATION_TRIES = 3  # attempts at an evaluation with a quorum of answers, before training continues without it


@dataclass
class UploadCoordinator(Coordinator):
    """A study with noise at every site; see `Coordinator` for its fields."""

    state: ServerState = field(init=False)
    _tries: int = 0  # of the evaluation of this model

    def __post_init__(self) -> None:
        self.state = self._restore()
        super().__post_init__()

    @property
    def agents(self) -> tuple[str, ...]:
        """The sites with which the study continues, in order."""
        return self.state.sites

    @property
    def evaluation_begun(self) -> bool:
        """Whether sites were asked to evaluate this model: each has one answer, however often it is asked."""
        return evaluation_place(self.state.round) in self.measured

    @property
    def _checkpoint_name(self) -> str:
        return self.agreement.part.batch.algorithm

    @property
    def quorum(self) -> int:
        """The number of sites that must answer the next round."""
        if self.folder.finished:
            return 1
        everyone = self.agreement.algorithm.requires_all(self.state.round + 1)
        return len(self.agents) if everyone else self.agreement.terms.quorum

    def _restore(self) -> ServerState:
        """Return the last checkpoint without the excluded sites, and check that the study can continue from it."""
        initial = server_state.initial_state(self.agreement.zero, self.agreement.terms.agents)
        state = server_state.restore_state(self.folder, self._checkpoint_name, initial)
        if any(site in self.excluded for site in state.sites):
            state = state.restricted_to([site for site in state.sites if site not in self.excluded])
            if state.round:
                algorithm = self.agreement.algorithm
                model = algorithm.model(state.round, state.w, state.server)
                state = state._replace(w=algorithm.coefficients(model, state.server))
        if _is_usable(state.server, state.w):
            return state
        invalid = state.invalid_sites
        if invalid and len(state.sites) - len(invalid) >= self.agreement.terms.quorum:
            advice = f"repeat the command with {' '.join(f'--without {site}' for site in invalid)}"
        else:
            advice = "begin the study again with another --out"
        raise CorruptFile(
            f"{self.folder.path} contains values from {', '.join(invalid) or 'its sites'} that no honest site sends, "
            f"and the study cannot continue from them: {advice}"
        )

    def _run_round(self, exchange: Exchange, ready: list[str]) -> list[str]:
        """Run one round with the ready sites, and return the sites for the next one."""
        state, algorithm, agents = self.state, self.agreement.algorithm, self.agents
        t, began = state.round + 1, time.perf_counter()
        server, w = algorithm.server_send(t, state.server)
        w = server_state.journal_w(self.folder, t, w)
        self._charge(ready, t)
        data = wire.encode(RoundRequest(self.experiment, t, dict(zip(agents, state.bases, strict=True)), w))
        replies = exchange.request(dict.fromkeys(ready, data), self.agreement.terms.answer_seconds)
        reaches = {site: self._reach(site, t, w) for site in ready}

        def read(site: str, reply: bytes) -> Answer | Refusal:
            answer = validation.read_answer(reply, site, self.experiment, t, self.agreement.zero)
            if isinstance(answer, Answer):
                validation.check_reach(answer.z, reaches[site])
            return answer

        uploads, continuing, rejected = self._read_replies(ready, replies, t, read)
        for site in uploads:
            self.bad_answers[site] = 0
        server, model = self._aggregate(t, w, server, uploads, continuing, rejected)
        if len(uploads) < self.quorum:
            return continuing  # the same round is repeated with the same w
        by_agent = {agents.index(site): Upload(answer.z) for site, answer in uploads.items()}  # in the agents' order
        traffic = sum(map(len, replies.values())), len(data) * len(ready)
        residual = float(consensus_residual(model, [upload.z for upload in by_agent.values()])[0])
        coefficients = algorithm.coefficients(model, server)
        self._record_round(t, coefficients, residual, list(uploads), rejected, traffic)
        self.log_event("round", round=t, ms=round(1000.0 * (time.perf_counter() - began), 1))
        self.state = ServerState(
            round=t,
            server=server,
            bases=tuple(t if p in by_agent else base for p, base in enumerate(state.bases)),
            w=coefficients,
            sent=self._sent_with(traffic),
            sites=agents,
            last=tuple(
                self._next_iterate(reaches[site], uploads[site]) if site in uploads else before
                for site, before in zip(agents, state.last, strict=True)
            ),
        )
        server_state.save_state(self.folder, self._checkpoint_name, self.state)
        return continuing

    def _run_evaluation(self, exchange: Exchange, ready: list[str]) -> list[str]:
        """Ask the ready sites for their measures of the model; with too few answers, retry a few times."""
        t = self.state.round
        self._charge_evaluation(ready, t)
        data = wire.encode(MeasureRequest(self.experiment, t, self.state.w))
        replies = exchange.request(dict.fromkeys(ready, data), self.agreement.terms.answer_seconds)

        def read(site: str, reply: bytes) -> NDArray[np.int64] | Refusal:
            most = self.agreement.terms.sites[site]
            return validation.read_measures(reply, site, self.experiment, t, self._measure, most)

        answers, continuing, _ = self._read_replies(ready, replies, t, read)
        traffic = sum(map(len, replies.values())), len(data) * len(ready)
        self.state = self.state._replace(sent=self._sent_with(traffic))
        if len(answers) >= self.quorum:
            self._tries = 0
            self._record_evaluation(np.sum(list(answers.values()), axis=0), list(answers))
            return continuing
        self._tries += 1
        if self._tries >= EVALUATION_TRIES:
            self._tries = 0
            self._skip_evaluation(f"only {len(answers)} sites answered; the quorum is {self.quorum}")
        return continuing

    def _reach(self, site: str, t: int, w: Array) -> Reach:
        p = self.agents.index(site)
        return validation.compute_reach(self.agreement.algorithm, t, w, self.state.server.lam[p], self.state.last[p])

    def _next_iterate(self, expected: Reach, answer: Answer) -> Iterate:
        """Return the iterate from which a site continues: its upload, unless that is the mean of several."""
        return Iterate(answer.z, 0.0) if self.agreement.algorithm.iterates_sent == 1 else expected.after

    def _aggregate(
        self,
        t: int,
        w: Array,
        server: FullState,
        uploads: dict[str, Answer],
        continuing: list[str],
        rejected: dict[str, str],
    ) -> tuple[FullState, Array]:
        """Return the new state and model, before anything is saved; uploads that would break them are removed."""
        algorithm = self.agreement.algorithm
        while uploads:
            by_agent = {self.agents.index(site): Upload(answer.z) for site, answer in uploads.items()}
            with np.errstate(over="ignore", invalid="ignore"):
                new = algorithm.server_receive(t, w, server, Received.of(by_agent))
                model = algorithm.model(t, w, new)
            if _is_usable(new, model):
                return new, model
            worst = max(uploads, key=lambda site: float(np.abs(uploads[site].z).max()))
            del uploads[worst]
            continuing.remove(worst)
            self._back_off(worst)
            rejected[worst] = "the model would exceed the largest admissible values with it"
            self.log_event("rejected", site=worst, round=t, reason=rejected[worst])
            if not uploads:
                raise TrainingDiverged(
                    f"the model of round {t} exceeds the largest admissible values, whichever sites are removed: the "
                    "steps are too long, or too many sites send invalid values; choose a smaller eta and another --out"
                )
        return server, w

    def _read_replies(
        self, sites: Sequence[str], replies: Mapping[str, bytes], t: int, read: Callable[[str, bytes], R | Refusal]
    ) -> tuple[dict[str, R], list[str], dict[str, str]]:
        """Return the sites' answers, the sites that continue, and why the others' replies are not used.

        A site with an invalid answer stays in the study until it has sent `MAX_BAD_ANSWERS` in a row.

        Parameters
        ----------
        sites : sequence of str
            The sites that were asked.
        replies : mapping of str to bytes
            Their replies; those that did not answer are missing.
        t : int
            The round.
        read : callable
            Decodes and checks the reply of a site.
        """
        answers: dict[str, R] = {}
        continuing: list[str] = []
        rejected: dict[str, str] = {}
        for site in sites:
            if site not in replies:
                self._record_missing(site, t)
                continue
            try:
                reply = read(site, replies[site])
            except Rejected as error:
                rejected[site] = str(error)
                if self._record_rejection(site, t, rejected[site]):
                    continuing.append(site)
                continue
            if isinstance(reply, Refusal):
                rejected[site] = self._record_refusal(site, reply, round=t)
                continue
            answers[site] = reply
            continuing.append(site)
        return answers, continuing, rejected


def _is_usable(server: FullState, model: Array) -> bool:
    """Return whether the study can continue from these values: sites refuse a w that is not admissible."""
    return admissible(model) and admissible(server.z) and bool(np.isfinite(server.lam).all())
