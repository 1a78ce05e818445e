"""The coordinator's part: rounds with whoever answers, from a checkpoint, over any engine that carries messages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tacit.algorithms import Upload
from tacit.algorithms.server import Received
from tacit.algorithms.steps import consensus_residual
from tacit.federation import wire
from tacit.federation.agreement import Agreement
from tacit.federation.books import close_books, record_round, round_row
from tacit.federation.messages import Answer, Close, Invitation, Ready, Refusal, Round
from tacit.federation.server_state import ServerState, fresh, journal_w, lines_of, restore, save
from tacit.federation.summary import federated
from tacit.federation.uploads import Rejected, read_answer, read_closed, read_ready, shown
from tacit.privacy.events import BatchEvent
from tacit.privacy.ledger import entries
from tacit.results.chain import Chain
from tacit.results.folder import RunFolder, append_lines
from tacit.study.build import Study

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
    state: ServerState = field(init=False)
    chain: Chain = field(init=False)
    charged: set[tuple[str, int]] = field(init=False)  # site and round
    marked: set[str] = field(init=False)  # sites whose noise protects nobody
    bad: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        terms = self.agreement.terms
        self.state = restore(self.folder, self._name, fresh(self.agreement.zero, len(terms.sites)))
        self.chain = self.folder.chain
        ledger = self.chain.read()
        self.charged = {(e["agent"], e["first"]) for e in ledger if e["kind"] == "release"}
        self.marked = {e["agent"] for e in ledger if e["kind"] == "non_private"}

    @property
    def _name(self) -> str:
        return self.agreement.part.batch.algorithm

    def conduct(self, exchange: Exchange, sites: Sequence[str]) -> str:
        """Rounds with these sites until the study ends, too few answer, or somebody asks to stop or to regroup."""
        quorum = self.agreement.terms.quorum
        ready = self._invite(exchange, sites)
        self.bad.clear()
        while self.state.round < self.agreement.part.rounds:
            for word in (STOPPED, REGROUP):
                if request(self.folder, word).exists():
                    return word
            if len(ready) < quorum:
                self._note(event=WAITING, ready=ready, quorum=quorum)
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
                self._note(event="missing", site=site, round=self.state.round)
                continue
            except Rejected as error:
                self._note(event="rejected", site=site, reason=str(error))
                continue
            if isinstance(found, Refusal):
                self._note(event="refused", site=site, reason=shown(found.reason))
                continue
            self._mark(found)
            self._note(event="ready", site=site)
            ready.append(site)
        return [site for site in terms.agents if site in ready]

    def _mark(self, ready: Ready) -> None:
        """A site whose noise is no protection makes the whole study non-private, and the ledger says so."""
        if ready.non_private and ready.site not in self.marked:
            self.chain.append([{"kind": "non_private", "agent": ready.site, "reason": shown(ready.non_private)}])
            self.marked.add(ready.site)

    def _round(self, exchange: Exchange, ready: list[str]) -> list[str]:
        """One round; the sites to go on with."""
        state, algorithm, agents = self.state, self.agreement.algorithm, self.agreement.terms.agents
        t, began = state.round + 1, time.perf_counter()
        server, w = algorithm.server_send(t, state.server)
        w = journal_w(self.folder, t, w)
        self._charge(ready, t)
        message = Round(self.experiment, t, dict(zip(agents, state.bases, strict=True)), w)
        data = wire.encode(message)
        replies = exchange.ask(data, ready, self.agreement.terms.answer_seconds)
        uploads, going_on, rejected = self._sort(replies, ready, t)
        if len(uploads) < self.agreement.terms.quorum:
            return going_on  # the same round, with the same w, is asked for again
        by_number = {agents.index(site): Upload(answer.z) for site, answer in uploads.items()}  # in the agents' order
        server = algorithm.server_receive(t, w, server, Received.of(by_number))
        model = algorithm.model(t, w, server)
        seconds = state.seconds + time.perf_counter() - began
        up, down = sum(map(len, replies.values())), len(data) * len(ready)
        sent = state.sent[0] + up, state.sent[1] + down
        bases = tuple(t if p in by_number else base for p, base in enumerate(state.bases))
        residual = float(consensus_residual(model, [upload.z for upload in by_number.values()])[0])
        record_round(self.folder, round_row(self.study, t, model, residual, seconds, sent, self.study.dataset.test))
        took = {"ms": round(1000.0 * (time.perf_counter() - began), 1), "bytes_up": up, "bytes_down": down}
        missing = [site for site in agents if site not in uploads]
        line = {
            "round": t,
            "of": self.agreement.part.rounds,
            "answered": list(uploads),
            "missing": missing,
            "rejected": rejected,
            **took,
        }
        append_lines(lines_of(self.folder)[1], [line])
        self.state = ServerState(t, server, bases, model, seconds, sent)
        save(self.folder, self._name, self.state)
        return going_on

    def _sort(
        self, replies: Mapping[str, bytes], ready: list[str], t: int
    ) -> tuple[dict[str, Answer], list[str], dict[str, str]]:
        """The uploads that count, the sites to go on with, and the reasons of those that do not count."""
        uploads: dict[str, Answer] = {}
        going_on: list[str] = []
        rejected: dict[str, str] = {}
        for site in ready:
            try:
                found = read_answer(replies[site], site, self.experiment, t, self.agreement.zero)
            except KeyError:
                self._note(event="missing", site=site, round=t)
                continue
            except Rejected as error:
                rejected[site] = str(error)
                self.bad[site] += 1
                self._note(event="rejected", site=site, round=t, reason=str(error))
                if self.bad[site] < PATIENCE:
                    going_on.append(site)
                continue
            if isinstance(found, Refusal):
                rejected[site] = shown(found.reason)
                self._note(event="refused", site=site, round=t, reason=shown(found.reason))
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
                self._note(event="not closed", site=site)
            else:
                self._note(event="closed", site=site)

    def _lines(self) -> list[str]:
        """What the coordinator's report says of the sites."""
        figures, agents = federated(self.folder), self.agreement.terms.agents
        answered = ", ".join(f"{site} {figures['answered'].get(site, 0)}" for site in agents)
        return [
            f"Rounds answered, of {figures['rounds']}: {answered}; answers rejected: {figures['rejected']}.",
            f"Half of the rounds took at most {figures['ms_per_round']:.0f} ms; sites sent "
            f"{figures['bytes_up']:,} bytes in all and got {figures['bytes_down']:,}.",
            "The ledger of this folder has every round a site was asked for: at least what it spent. "
            "What a site did spend is in its own ledger.",
        ]

    def _note(self, **what: Any) -> None:
        """A line for whoever watches."""
        append_lines(sites_file(self.folder), [{"time": round(time.time(), 3), **what}])


def request(folder: RunFolder, word: str) -> Path:
    """The file by which somebody asks a coordinator at work to stop or to regroup."""
    return folder.checkpoints / word


def sites_file(folder: RunFolder) -> Path:
    """What happened with the sites: one line each."""
    return folder.path / "sites.jsonl"
