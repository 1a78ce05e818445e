"""Coordinator and sites of a secure sum die at every place and at random: no slot is answered or charged twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from taciturn.federation import coordinator, site_session, sum_coordinator, sum_session
from taciturn.federation import messages as wire
from taciturn.federation.agent import SiteAgent
from taciturn.federation.coordinator import FINISHED
from taciturn.federation.journal import Journal
from taciturn.federation.messages import CloseRequest
from taciturn.federation.site_database import SiteDatabase
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.federation.sum_journal import SumJournal
from taciturn.federation.sum_state import SumFiles
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.hash_chain import HashChain
from taciturn.secure_sum import parameters
from tests.federation.helpers import Local
from tests.federation.sum_helpers import Gated, SumFederation, check_charges, check_sums, make_sums, refusals, step_of


class Crash(BaseException):
    """Simulates the death of a process; no code catches it."""


@dataclass
class Mortal(Gated):
    """Sites that die with `Crash` while they answer: they are started again, and connect again."""

    federation: SumFederation | None = None
    answering: str = ""  # the site
    deaths: Counter[str] = field(default_factory=Counter)
    lives: dict[str, ExitStack] = field(default_factory=dict)

    def start(self, site: str) -> SiteAgent:
        assert self.federation is not None
        self.lives[site] = ExitStack()
        return self.lives[site].enter_context(self.federation.agent(site))

    def request(self, questions: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        replies: dict[str, bytes] = {}
        for site, data in questions.items():
            self.answering = site
            try:
                replies |= super().request({site: data}, seconds)
            except Crash:
                self.deaths[site] += 1
                self.since[site] += 1
                self.lives[site].close()
                self.agents = {**self.agents, site: self.start(site)}
            finally:
                self.answering = ""
        return replies


@contextmanager
def mortal(federation: SumFederation) -> Iterator[Mortal]:
    exchange = Mortal({}, federation=federation)
    try:
        exchange.agents = {site: exchange.start(site) for site in federation.sites}
        yield exchange
    finally:
        for life in exchange.lives.values():
            life.close()


SITE_PLACES: dict[str, tuple[Any, str]] = {
    "write_announced": (SumJournal, "write_announced"),
    "write_dealt": (SumJournal, "write_dealt"),
    "write_kept": (SumJournal, "write_kept"),
    "write_begun": (SumJournal, "write_begun"),
    "write_upload": (SumJournal, "write_upload"),
    "write_opinion": (SumJournal, "write_opinion"),
    "store_count": (SumJournal, "store_count"),
    "departure": (Journal, "record_departure"),
    "repeated": (Journal, "record_repeatable"),
    "truncate_log": (SiteDatabase, "truncate_log"),
    "charge": (site_session.SiteSession, "_charge"),
    "ledger": (HashChain, "append"),
    "head": (HashChain, "_write_heads"),
    "record_round": (sum_session, "record_round"),
    "finish_study_folder": (site_session, "finish_study_folder"),
    "settle": (BudgetLedger, "settle"),
}


def losing_uploads(exchange: Local, rounds: tuple[int, ...]) -> Any:
    """Lose an upload of the last site in some rounds, so that the others sign a set."""
    done: set[int] = set()

    def fault(site: str, message: Any) -> str:
        if step_of(message) == wire.UPLOAD and site == "s7" and (t := len(done) + 1) in rounds:
            done.add(t)
            exchange.since[site] += 1
            return "answer"
        return ""

    return fault


@pytest.mark.parametrize("place", SITE_PLACES)
def test_sites_that_die_at_some_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Each of six sites dies once: the first two in their first call, the next two in their second, and so on."""
    names = ("s1", "s2", "s3", "s4", "s5", "s6", "s7")
    federation = make_sums(tmp_path, {"study": {"missing": 2, "reserve": 12, "rounds": 5}}, names=names, rows=4)
    owner, attribute = SITE_PLACES[place]
    real, calls = getattr(owner, attribute), Counter[str]()
    monkeypatch.setattr(coordinator, "BACKOFF_SECONDS", 0.0)  # who has died is in the next epoch
    monkeypatch.setattr(sum_coordinator, "JOIN_SLOTS", 1)

    with mortal(federation) as exchange:

        def dying(*args: Any, **kwargs: Any) -> Any:
            site = exchange.answering
            calls[site] += 1
            number = int(site[1:]) if site else 7
            if number == 7 or calls[site] != 1 + (number - 1) // 2:
                return real(*args, **kwargs)
            if number % 2:
                real(*args, **kwargs)
            raise Crash

        exchange.fault = losing_uploads(exchange, (1, 3))
        study = federation.summing()
        monkeypatch.setattr(owner, attribute, dying)
        for _ in range(40):
            if study.run(exchange) == FINISHED and not study.unclosed_sites:
                break
    assert exchange.deaths.total() >= (2 if place in ("finish_study_folder", "settle", "write_begun") else 4)
    check_ended(federation, study, exchange)


def check_ended(federation: SumFederation, study: SumCoordinator, exchange: Local) -> None:
    """Check a study that has ended everywhere."""
    assert study.state.round == study.agreement.part.rounds and study.folder.finished
    check_sums(federation, study)
    check_charges(federation, study, exchange)
    assert set(refusals(exchange)) <= {"this study has ended here"}  # a site died after it had settled
    for site in federation.sites:
        (entry,) = federation.account(site).state().studies
        assert entry.state == "settled", site


COORDINATOR_PLACES: dict[str, tuple[Any, str]] = {
    "write_epoch": (SumFiles, "write_epoch"),
    "write_attempt": (SumFiles, "write_attempt"),
    "charge": (SumCoordinator, "_charge_slot"),
    "write_masked": (SumFiles, "write_masked"),
    "record_round": (coordinator, "record_round"),
    "line": (SumCoordinator, "_record_round"),
    "save": (SumFiles, "save"),
    "finish_study_folder": (coordinator, "finish_study_folder"),
    "answer": (Local, "request"),
}


@pytest.mark.parametrize("place", COORDINATOR_PLACES)
def test_a_coordinator_that_dies_asks_the_same_again_and_loses_no_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It dies before some calls of a function and after the next ones; one upload is lost on the way."""
    monkeypatch.setattr(parameters, "EPOCH_SLOTS", 2)
    federation = make_sums(tmp_path)
    owner, attribute = COORDINATOR_PLACES[place]
    period = {"write_epoch": 5, "answer": 29}.get(place, 3)  # of calls: it must come through an epoch sometimes
    real, calls = getattr(owner, attribute), [0]

    def dying(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] % period not in (1, 2):
            return real(*args, **kwargs)
        if calls[0] % period == 2:
            real(*args, **kwargs)
        raise Crash

    with federation.agents() as agents:
        exchange = Local(agents)
        federation.summing()
        monkeypatch.setattr(owner, attribute, dying)
        deaths = 0
        for number in range(60):
            study = federation.summing()
            if number == 2:
                exchange.fault = losing_uploads_of(exchange, "s3")
            try:
                if study.run(exchange) == FINISHED and not study.unclosed_sites:
                    break
            except Crash:
                deaths += 1
    assert deaths >= 2
    assert study.attempts <= 5  # the slot of the lost upload may be opened by the other four
    check_ended(federation, study, exchange)


def losing_uploads_of(exchange: Local, site: str) -> Any:
    """Lose the next upload of a site."""
    lost: list[str] = []

    def fault(asked: str, message: Any) -> str:
        if asked == site and step_of(message) == wire.UPLOAD and not lost:
            lost.append(site)
            exchange.since[site] += 1
            return "question"
        return ""

    return fault


@pytest.mark.parametrize("number", range(4))
def test_random_faults_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Messages are lost, and coordinator and sites die at random places, until the study has ended."""
    rng = random.Random(number)
    changes = {"study": {"missing": 1, "reserve": 60, "rounds": 3}}
    federation = make_sums(tmp_path, changes, rows=4)
    left: dict[str, list[bytes]] = {}
    with monkeypatch.context() as patch, mortal(federation) as exchange:
        exchange.left = left

        def unlucky(real: Any, chance: float) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                end = rng.random()
                if end < chance:
                    raise Crash
                found = real(*args, **kwargs)
                if end > 1.0 - chance:
                    raise Crash
                return found

            return call

        def fault(site: str, message: Any) -> str:
            if isinstance(message, CloseRequest):
                return ""
            lost = rng.choice(["question", "answer"]) if rng.random() < 0.03 else ""
            exchange.since[site] += bool(lost)
            return lost

        federation.summing()
        exchange.fault = fault
        for places, chance in ((SITE_PLACES, 0.004), (COORDINATOR_PLACES, 0.01)):
            for owner, attribute in places.values():
                if attribute != "request":
                    patch.setattr(owner, attribute, unlucky(getattr(owner, attribute), chance))
        ended = False
        for _ in range(300):
            try:
                study = federation.summing()
                ended = study.run(exchange) == FINISHED and not study.unclosed_sites
            except Crash:
                continue
            if ended:
                break
    assert ended
    study = federation.summing()
    check_ended(federation, study, exchange)
