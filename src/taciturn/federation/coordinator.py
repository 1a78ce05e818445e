"""The coordinator's part: rounds with whoever answers, from a checkpoint, over any engine that carries messages."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from taciturn.algorithms import Upload
from taciturn.algorithms.server import FullState, Received
from taciturn.algorithms.steps import consensus_residual
from taciturn.errors import InputError
from taciturn.federation import SPEAKS
from taciturn.federation import messages as wire
from taciturn.federation.agreement import Agreement
from taciturn.federation.messages import Answer, CloseRequest, Invitation, Ready, Refusal, RoundRequest
from taciturn.federation.run_folder import close_books, federated, record_round, round_row
from taciturn.federation.server_state import ServerState, fresh, journal_w, lines_of, restore, save
from taciturn.federation.validation import (
    Iterate,
    Reach,
    Rejected,
    check_reach,
    reach,
    read_answer,
    read_closed,
    read_ready,
    shown,
)
from taciturn.objectives.clipping import admissible
from taciturn.planning.study import Study
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.hash_chain import HashChain
from taciturn.runs.folder import RunFolder, append_lines, read_lines
from taciturn.runs.ledger import RunLedger, release_entries
from taciturn.runs.records import NonPrivateEntry
from taciturn.types import Array

FINISHED, STOPPED, WAITING = "finished", "stopped", "waiting"
PATIENCE = 3  # bad answers in a row, after which a site is left alone for a while
GATHER = 10.0  # seconds to wait for sites that are not connected, once a quorum is ready
LOOK = 0.05  # seconds between two looks for sites
REST, LONGEST_REST = 15.0, 600.0  # seconds that a site which was too slow, or sent nonsense, is left alone
WORDS = ("ready", "closed", "refused", "left out")  # what says whether a site waits for the end of a study


class Exchange(Protocol):
    """The way to the sites: it carries messages to them, and brings back what they say."""

    def present(self) -> Mapping[str, float]:
        """The sites that are connected, and since when."""
        ...

    def ask(self, data: bytes, sites: Sequence[str], seconds: float) -> Mapping[str, bytes]:
        """The answers that come within some seconds, by site; a site that disconnects is not waited for."""
        ...

    def post(self, data: bytes, site: str, seconds: float) -> None:
        """Send an invitation, and do not wait for the answer."""
        ...

    def posted(self) -> Mapping[str, bytes | None]:
        """The answers to invitations since the last call; None where a site has disconnected or took too long."""
        ...

    def agreed(self, site: str, version: int) -> None:
        """Take note of the version of the messages that a site chose."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait until something happens, at most for some seconds; whether anything can still happen."""
        ...


class Rest(NamedTuple):
    """A site that is left alone: until some time, or until it connects again."""

    since: float  # when it had connected
    until: float
    refusal: str = ""


@dataclass
class Coordinator:
    """A study at the coordinator; `conduct` takes it as far as the sites at hand allow."""

    agreement: Agreement
    study: Study
    folder: RunFolder
    experiment: str
    without: tuple[str, ...] = ()  # sites that are left out for good
    speaks: range = SPEAKS  # versions of the messages
    state: ServerState = field(init=False)
    chain: HashChain = field(init=False)
    charged: set[tuple[str, int]] = field(init=False)  # site and round
    marked: set[str] = field(init=False)  # sites whose noise protects nobody
    bad: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    invited: set[str] = field(default_factory=set)  # and not heard of yet
    asked: dict[str, float] = field(default_factory=dict)  # when a site that was invited had connected
    resting: dict[str, Rest] = field(default_factory=dict)
    told: tuple[str, ...] | None = None  # the sites that were too few when that was noted last

    def __post_init__(self) -> None:
        self.state = self._restored()
        self.chain = self.folder.chain
        ledger = RunLedger.from_rows(self.chain.read(), self.chain.path)
        self.charged = {(entry.agent, entry.first or 0) for entry in ledger.releases}
        self.marked = {entry.agent for entry in ledger if isinstance(entry, NonPrivateEntry)}

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

    @property
    def wanted(self) -> list[str]:
        """The sites to wait for: all that have not refused; of a study that has ended, those it has not told yet."""
        sites = self.untold if self.folder.finished else self.agents
        return [site for site in sites if site not in self.refusals]

    @property
    def untold(self) -> list[str]:
        """The sites that took part and have not been told that the study has ended.

        Those that were asked for a round are in the ledger, which no crash takes lines from.
        """
        path = sites_file(self.folder)
        lines = read_lines(path) if path.exists() else []
        last = {line["site"]: line["event"] for line in lines if line["event"] in WORDS}
        began = {site for site, _ in self.charged} | {site for site, event in last.items() if event == "ready"}
        return [site for site in self.agents if site in began and last.get(site, "ready") == "ready"]

    @property
    def refusals(self) -> dict[str, str]:
        """The sites that do not take part, and why."""
        return {site: rest.refusal for site, rest in self.resting.items() if rest.refusal}

    @property
    def quorum(self) -> int:
        """How many sites must answer."""
        return 1 if self.folder.finished else self.agreement.terms.quorum

    def conduct(self, exchange: Exchange, stop: Callable[[], bool] = lambda: False) -> str:
        """Rounds with the sites that are there until the study ends, too few are left, or somebody asks to stop.

        A site that connects later, or again, is invited beside the rounds and joins them when it is ready.
        """
        for memory in (self.invited, self.resting, self.bad):  # a new exchange is a new beginning
            memory.clear()
        ready = self._gather(exchange, stop)
        while not stop():
            if self.folder.finished and not self.wanted:
                return FINISHED
            ready = self._joined(exchange, ready)
            if len(ready) < self.quorum:
                if self.told != tuple(ready):
                    self.told = tuple(ready)
                    self.note(event=WAITING, ready=ready, quorum=self.quorum)
                if not exchange.wait(LOOK):
                    return WAITING
                self._check_possible()
                continue
            self.told = None
            if self.state.round == self.agreement.part.rounds:
                self._close(exchange, ready)
                return FINISHED
            ready = self._round(exchange, ready)
        return STOPPED

    def _gather(self, exchange: Exchange, stop: Callable[[], bool]) -> list[str]:
        """The sites that are ready once all that are connected have said whether they take part."""
        ready, enough = self._joined(exchange, []), 0.0
        while not stop():
            missing = [site for site in self.wanted if site not in exchange.present()]
            if len(ready) >= self.quorum:
                enough = enough or time.monotonic()
            patient = missing and (not enough or time.monotonic() - enough < GATHER)
            if len(self.wanted) < self.quorum or not (self.invited or patient) or not exchange.wait(LOOK):
                break
            ready = self._joined(exchange, ready)
        return ready

    def _check_possible(self) -> None:
        if len(self.wanted) < self.quorum:
            reasons = "; ".join(f"{site}: {reason}" for site, reason in self.refusals.items())
            raise InputError(f"the study cannot run, {self.quorum} sites must take part: {reasons}")

    def _joined(self, exchange: Exchange, ready: Sequence[str]) -> list[str]:
        """The ready sites, and those that have become ready; every other connected site is invited."""
        present = exchange.present()
        going = {site for site in ready if site in present and present[site] == self.asked[site]}
        for site in ready:
            if site not in going:
                self.note(event="missing", site=site, round=self.state.round + 1)
        going |= self._answers(exchange)
        for site in self._wanted_back(present):
            if site not in going and site not in self.invited:
                self.invited.add(site)
                self.asked[site] = present[site]
                exchange.post(wire.encode(self._invitation()), site, self.agreement.terms.ready_seconds)
        going |= self._answers(exchange)
        return [site for site in self.agents if site in going]

    def _wanted_back(self, present: Mapping[str, float]) -> list[str]:
        """The connected sites that may be asked: not those at rest, unless they have connected again since."""
        for site, rest in list(self.resting.items()):
            if site in present and (present[site] != rest.since or time.monotonic() > rest.until):
                del self.resting[site]
        return [site for site in self.wanted if site in present and site not in self.resting]

    def _invitation(self) -> Invitation:
        return Invitation(self.experiment, self.agreement.terms.digest, (self.speaks[0], self.speaks[-1]))

    def _answers(self, exchange: Exchange) -> set[str]:
        """The sites whose answers to an invitation say that they take part."""
        ready = set()
        for site, data in exchange.posted().items():
            self.invited.discard(site)
            if data is None:
                self._miss(site, self.state.round)
                continue
            try:
                found = read_ready(data, site, self.experiment, self.agreement.zero, self.speaks)
            except Rejected as error:
                self.note(event="rejected", site=site, reason=str(error))
                self._leave_alone(site)
                continue
            if isinstance(found, Refusal):
                self._refused(site, found)
                continue
            self._mark(found)
            self.bad[site] = 0
            exchange.agreed(site, found.version)
            self.note(event="ready", site=site)
            ready.add(site)
        return ready

    def _miss(self, site: str, t: int) -> None:
        self.note(event="missing", site=site, round=t)
        self._leave_alone(site)

    def _refused(self, site: str, found: Refusal, **more: int) -> None:
        reason = shown(found.reason)
        self.note(event="refused", site=site, reason=reason, **more)
        self.resting[site] = Rest(self.asked[site], math.inf, reason)

    def _leave_alone(self, site: str) -> None:
        """Longer each time: a slow site must not hold up every round. One that connects again is asked at once."""
        self.losses[site] += 1
        rest = min(LONGEST_REST, REST * 2.0 ** (self.losses[site] - 1))
        self.resting[site] = Rest(self.asked[site], time.monotonic() + rest)

    def _mark(self, ready: Ready) -> None:
        """A site whose noise is no protection makes the whole study non-private, and the ledger says so."""
        if ready.non_private and ready.site not in self.marked:
            self.chain.append([NonPrivateEntry(agent=ready.site, reason=shown(ready.non_private))])
            self.marked.add(ready.site)

    def _round(self, exchange: Exchange, ready: list[str]) -> list[str]:
        """One round; the sites to go on with."""
        state, algorithm, agents = self.state, self.agreement.algorithm, self.agents
        t, began = state.round + 1, time.perf_counter()
        server, w = algorithm.server_send(t, state.server)
        w = journal_w(self.folder, t, w)
        self._charge(ready, t)
        message = RoundRequest(self.experiment, t, dict(zip(agents, state.bases, strict=True)), w)
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
        server: FullState,
        uploads: dict[str, Answer],
        going_on: list[str],
        rejected: dict[str, str],
    ) -> tuple[FullState, Array]:
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
            self._leave_alone(worst)
            rejected[worst] = "with it the model would be beyond all bounds"
            self.note(event="rejected", site=worst, round=t, reason=rejected[worst])
            if not uploads:
                raise InputError(
                    f"in round {t} the model is beyond all bounds, whichever sites are taken out: the study's steps "
                    "are too long, or too many sites send nonsense; choose a smaller eta, and another --out"
                )
        return server, w

    def _sound(self, server: FullState, model: Array) -> bool:
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
                self._miss(site, t)
                continue
            except Rejected as error:
                rejected[site] = str(error)
                self.bad[site] += 1
                self.note(event="rejected", site=site, round=t, reason=str(error))
                if self.bad[site] < PATIENCE:
                    going_on.append(site)
                else:
                    self._leave_alone(site)
                continue
            if isinstance(found, Refusal):
                rejected[site] = shown(found.reason)
                self._refused(site, found, round=t)
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
        self.chain.append(release_entries(new, self.study.parts[0].batch.labels(), agents, first=t, last=t))
        self.charged |= {(site, t) for site in sites}

    def _close(self, exchange: Exchange, ready: Sequence[str]) -> None:
        """Everybody gets the model, and the books are closed."""
        if not self.folder.finished:
            close_books(self.study, self.folder, self.state.w, self.agreement.terms.name, self._lines())
        message = wire.encode(CloseRequest(self.experiment, self.state.round, self.state.w))
        replies = exchange.ask(message, ready, self.agreement.terms.ready_seconds)  # a site writes its report then
        for site in ready:
            try:
                found = read_closed(replies[site], site, self.experiment, self.agreement.zero)
            except (KeyError, Rejected):
                self.note(event="not closed", site=site)
                continue
            if isinstance(found, Refusal):  # it may close when it is told again
                self.note(event="not closed", site=site, reason=shown(found.reason))
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


def sites_file(folder: RunFolder) -> Path:
    """What happened with the sites, and when: private, for times tell of records."""
    return folder.checkpoints / "sites.jsonl"


def round_times(folder: RunFolder) -> list[float]:
    """How long each round took at the coordinator, in milliseconds: for its own eyes alone."""
    return [float(line["ms"]) for line in read_lines(sites_file(folder)) if line["event"] == "round"]
