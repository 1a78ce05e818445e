"""The coordinator's part: rounds with whoever answers, from a checkpoint, over any engine that carries messages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tacit.algorithms import Upload
from tacit.algorithms.server import Full, Received
from tacit.algorithms.steps import consensus_residual
from tacit.errors import InputError
from tacit.federation import wire
from tacit.federation.agreement import Agreement
from tacit.federation.books import close_books, record_round, round_row
from tacit.federation.messages import Answer, Close, Invitation, Ready, Refusal, Round
from tacit.federation.reach import Iterate, Reach, check_reach, reach
from tacit.federation.server_state import ServerState, fresh, journal_w, lines_of, restore, save
from tacit.federation.summary import federated
from tacit.federation.uploads import Rejected, read_answer, read_closed, read_ready, shown
from tacit.privacy.events import BatchEvent
from tacit.privacy.ledger import entries
from tacit.problems.limits import admissible
from tacit.results.chain import Chain
from tacit.results.folder import RunFolder, append_lines, read_lines
from tacit.study.build import Study
from tacit.types import Array

FINISHED, STOPPED, REGROUP, WAITING, FAILED = "finished", "stopped", "regroup", "waiting", "failed"
PATIENCE = 3  # bad answers in a row, after which a site is left out until the sites are gathered anew


class Lost(Exception):
    """The engine has given up in the middle of a question."""


class Exchange(Protocol):
    """An engine: it carries a message to sites, and brings back what they said in time."""

    def ask(self, data: bytes, sites: Sequence[str], seconds: float) -> Mapping[str, bytes]:
        """The answers that came within some seconds, by site; an engine that gives up raises Lost."""
        ...


@dataclass
class Coordinator:
    """A study at the coordinator; `conduct` takes it as far as the sites at hand allow."""

    agreement: Agreement
    study: Study
    folder: RunFolder
    experiment: str
    without: tuple[str, ...] = ()  # sites that are left out for good
    state: ServerState = field(init=False)
    chain: Chain = field(init=False)
    charged: set[tuple[str, int]] = field(init=False)  # site and round
    marked: set[str] = field(init=False)  # sites whose noise protects nobody
    bad: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.state = self._restored()
        self.chain = self.folder.chain
        ledger = self.chain.read()
        self.charged = {(e["agent"], e["first"]) for e in ledger if e["kind"] == "release"}
        self.marked = {e["agent"] for e in ledger if e["kind"] == "non_private"}

    def _restored(self) -> ServerState:
        """The last checkpoint without the sites that are left out, where all that it holds can be gone on from."""
        found = restore(self.folder, self._name, fresh(self.agreement.zero, self.agreement.terms.agents))
        if any(site in self.without for site in found.sites):
            found = found.only([site for site in found.sites if site not in self.without])
            if found.round:
                found = found._replace(w=self.agreement.algorithm.model(found.round, found.w, found.server))
        if self._sound(found.server, found.w):
            return found
        bad = found.unsound
        if bad and len(found.sites) - len(bad) >= self.agreement.terms.quorum:
            way = f"give the command again with {' '.join(f'--without {site}' for site in bad)}"
        else:
            way = "begin the study again with another --out"
        raise InputError(
            f"{self.folder.path} holds numbers from {', '.join(bad) or 'its sites'} that no honest site sends, and the "
            f"study cannot go on from them: {way}"
        )

    @property
    def agents(self) -> tuple[str, ...]:
        """The sites that the study goes on with, in order."""
        return self.state.sites

    @property
    def _name(self) -> str:
        return self.agreement.part.batch.algorithm

    def conduct(self, exchange: Exchange, sites: Sequence[str]) -> str:
        """Rounds with these sites until the study ends, too few answer, or somebody asks to stop or to regroup."""
        quorum = self.agreement.terms.quorum
        ready = self._invite(exchange, [site for site in sites if site in self.agents])
        self.bad.clear()
        while self.state.round < self.agreement.part.rounds:
            for word in (STOPPED, REGROUP):
                if request(self.folder, word).exists():
                    return word
            if len(ready) < quorum:
                self.note(event=WAITING, ready=ready, quorum=quorum)
                return WAITING
            ready = self._round(exchange, ready)
        self._close(exchange, ready)
        return FINISHED

    def _invite(self, exchange: Exchange, sites: Sequence[str]) -> list[str]:
        """The sites that take part, in the agents' order."""
        terms = self.agreement.terms
        message = Invitation(self.experiment, terms.digest)
        ready = []
        replies = exchange.ask(wire.encode(message), sites, terms.ready_seconds)
        for site in sites:
            try:
                found = read_ready(replies[site], site, self.experiment, self.agreement.zero)
            except KeyError:
                self.note(event="missing", site=site, round=self.state.round)
                continue
            except Rejected as error:
                self.note(event="rejected", site=site, reason=str(error))
                continue
            if isinstance(found, Refusal):
                self.note(event="refused", site=site, reason=shown(found.reason))
                continue
            self._mark(found)
            self.note(event="ready", site=site)
            ready.append(site)
        return [site for site in self.agents if site in ready]

    def _mark(self, ready: Ready) -> None:
        """A site whose noise is no protection makes the whole study non-private, and the ledger says so."""
        if ready.non_private and ready.site not in self.marked:
            self.chain.append([{"kind": "non_private", "agent": ready.site, "reason": shown(ready.non_private)}])
            self.marked.add(ready.site)

    def _round(self, exchange: Exchange, ready: list[str]) -> list[str]:
        """One round; the sites to go on with."""
        state, algorithm, agents = self.state, self.agreement.algorithm, self.agents
        t, began = state.round + 1, time.perf_counter()
        server, w = algorithm.server_send(t, state.server)
        w = journal_w(self.folder, t, w)
        self._charge(ready, t)
        message = Round(self.experiment, t, dict(zip(agents, state.bases, strict=True)), w)
        data = wire.encode(message)
        replies = exchange.ask(data, ready, self.agreement.terms.answer_seconds)
        reaches = {site: self._reach(site, t, w) for site in ready}
        uploads, going_on, rejected = self._sort(replies, reaches, t)
        server, model = self._receive(t, w, server, uploads, going_on, rejected)
        if len(uploads) < self.agreement.terms.quorum:
            return going_on  # the same round, with the same w, is asked for again
        by_number = {agents.index(site): Upload(answer.z) for site, answer in uploads.items()}  # in the agents' order
        up, down = sum(map(len, replies.values())), len(data) * len(ready)
        sent = state.sent[0] + up, state.sent[1] + down
        bases = tuple(t if p in by_number else base for p, base in enumerate(state.bases))
        residual = float(consensus_residual(model, [upload.z for upload in by_number.values()])[0])
        record_round(self.folder, round_row(self.study, t, model, residual, sent, self.study.dataset.test))
        missing = [site for site in agents if site not in uploads]
        line = {
            "round": t,
            "of": self.agreement.part.rounds,
            "answered": list(uploads),
            "missing": missing,
            "rejected": rejected,
            "bytes_up": up,
            "bytes_down": down,
        }
        self.note(event="round", round=t, ms=round(1000.0 * (time.perf_counter() - began), 1))
        append_lines(lines_of(self.folder)[1], [line])
        last = tuple(
            self._after(reaches[site], uploads[site]) if site in uploads else before
            for site, before in zip(agents, state.last, strict=True)
        )
        self.state = ServerState(t, server, bases, model, sent, agents, last)
        save(self.folder, self._name, self.state)
        return going_on

    def _reach(self, site: str, t: int, w: Array) -> Reach:
        """What a site may send in round t if it is honest."""
        p = self.agents.index(site)
        return reach(self.agreement.algorithm, t, w, self.state.server.lam[p], self.state.last[p])

    def _after(self, expected: Reach, answer: Answer) -> Iterate:
        """The iterate that a site goes on from: what it sent, unless that is the mean of several."""
        return Iterate(answer.z, 0.0) if self.agreement.algorithm.iterates_sent == 1 else expected.after

    def _receive(
        self,
        t: int,
        w: Array,
        server: Full,
        uploads: dict[str, Answer],
        going_on: list[str],
        rejected: dict[str, str],
    ) -> tuple[Full, Array]:
        """The new state and model, looked at before anything is saved: an upload that would break them is taken out."""
        algorithm = self.agreement.algorithm
        while uploads:
            by_number = {self.agents.index(site): Upload(answer.z) for site, answer in uploads.items()}
            with np.errstate(over="ignore", invalid="ignore"):
                new = algorithm.server_receive(t, w, server, Received.of(by_number))
                model = algorithm.model(t, w, new)
            if self._sound(new, model):
                return new, model
            worst = max(uploads, key=lambda site: float(np.abs(uploads[site].z).max()))
            del uploads[worst]
            going_on.remove(worst)
            rejected[worst] = "with it the model would be beyond all bounds"
            self.note(event="rejected", site=worst, round=t, reason=rejected[worst])
            if len(uploads) < self.agreement.terms.quorum:
                raise InputError(
                    f"in round {t} the model is beyond all bounds, whichever sites are taken out: the study's steps "
                    "are too long, or too many sites send nonsense; choose a smaller eta, and another --out"
                )
        return server, w

    def _sound(self, server: Full, model: Array) -> bool:
        """Whether the study can go on from these numbers: sites refuse a w that is not admissible."""
        return admissible(model) and admissible(server.z) and bool(np.isfinite(server.lam).all())

    def _sort(
        self, replies: Mapping[str, bytes], reaches: Mapping[str, Reach], t: int
    ) -> tuple[dict[str, Answer], list[str], dict[str, str]]:
        """The uploads that count, the sites to go on with, and the reasons of those that do not count."""
        uploads: dict[str, Answer] = {}
        going_on: list[str] = []
        rejected: dict[str, str] = {}
        for site, expected in reaches.items():
            try:
                found = read_answer(replies[site], site, self.experiment, t, self.agreement.zero)
                if isinstance(found, Answer):
                    check_reach(found.z, expected)
            except KeyError:
                self.note(event="missing", site=site, round=t)
                continue
            except Rejected as error:
                rejected[site] = str(error)
                self.bad[site] += 1
                self.note(event="rejected", site=site, round=t, reason=str(error))
                if self.bad[site] < PATIENCE:
                    going_on.append(site)
                continue
            if isinstance(found, Refusal):
                rejected[site] = shown(found.reason)
                self.note(event="refused", site=site, round=t, reason=shown(found.reason))
                continue
            self.bad[site] = 0
            uploads[site] = found
            going_on.append(site)
        return uploads, going_on, rejected

    def _charge(self, sites: Sequence[str], t: int) -> None:
        """What a round may cost each site that is asked; the sites' own ledgers say what it did cost."""
        plan, agents = self.agreement.plan, self.agreement.terms.agents
        event = BatchEvent((plan.event,))
        count = plan.events[plan.event] // plan.rounds
        new = Counter({(agents.index(site), event): count for site in sites if (site, t) not in self.charged})
        span = {"first": t, "last": t, "session": 1}
        self.chain.append(entry | span for entry in entries(new, self.study.parts[0].batch.labels(), agents))
        self.charged |= {(site, t) for site in sites}

    def _close(self, exchange: Exchange, ready: Sequence[str]) -> None:
        """Everybody gets the model, and the books are closed."""
        if not self.folder.finished:
            close_books(self.study, self.folder, self.state.w, self.agreement.terms.name, self._lines())
        message = wire.encode(Close(self.experiment, self.state.round, self.state.w))
        replies = exchange.ask(message, ready, self.agreement.terms.ready_seconds)  # a site writes its report then
        for site in ready:
            try:
                read_closed(replies[site], site, self.experiment, self.agreement.zero)
            except (KeyError, Rejected):
                self.note(event="not closed", site=site)
            else:
                self.note(event="closed", site=site)

    def _lines(self) -> list[str]:
        """What the coordinator's report says of the sites."""
        figures, agents = federated(self.folder), self.agreement.terms.agents
        answered = ", ".join(f"{site} {figures['answered'].get(site, 0)}" for site in agents)
        left_out = [
            f"Left out by the coordinator: {', '.join(self.without)}; what they had sent before no longer enters the "
            "model, and what they spent stays spent."
        ]
        return [
            f"Rounds answered, of {figures['rounds']}: {answered}; answers rejected: {figures['rejected']}.",
            *(left_out if self.without else []),
            f"Sites sent {figures['bytes_up']:,} bytes in all and got {figures['bytes_down']:,}.",
            "The ledger of this folder has every round a site was asked for: at least what it spent. "
            "What a site did spend is in its own ledger.",
        ]

    def note(self, **what: Any) -> None:
        """A line for whoever watches."""
        append_lines(sites_file(self.folder), [{"time": round(time.time(), 3), **what}])


def request(folder: RunFolder, word: str) -> Path:
    """The file by which somebody asks a coordinator at work to stop or to regroup."""
    return folder.checkpoints / word


def sites_file(folder: RunFolder) -> Path:
    """What happened with the sites, and when: private, for times tell of records."""
    return folder.checkpoints / "sites.jsonl"


def round_times(folder: RunFolder) -> list[float]:
    """How long each round took at the coordinator, in milliseconds: for its own eyes alone."""
    return [float(line["ms"]) for line in read_lines(sites_file(folder)) if line["event"] == "round"]
