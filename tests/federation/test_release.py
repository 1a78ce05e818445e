"""The release gate passes only bytes in the journal, and no upload without an event in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.errors import PrivacyViolation
from taciturn.federation import messages as wire
from taciturn.federation import site_database, site_session
from taciturn.federation.agent import SiteAgent
from taciturn.federation.journal import KEPT_BACK, LEFT, PENDING, Journal
from taciturn.federation.messages import Answer, Closed, CloseRequest, Invitation, Refusal
from taciturn.federation.release import ReleaseGate
from taciturn.federation.transcript import read_transcript
from taciturn.runs import metrics_log as growing
from tests.federation.helpers import EXPERIMENT, Federation, closed, invite, make_federation, question


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Federation:
    monkeypatch.setattr(site_session, "finish_study_folder", lambda *given: None)
    return make_federation(tmp_path, only=["north"])


@pytest.fixture
def agent(federation: Federation) -> Iterator[SiteAgent]:
    with federation.agent("north") as found:
        invite(found, federation)
        yield found


@pytest.fixture
def upload(federation: Federation, agent: SiteAgent) -> bytes:
    return agent.answer(wire.encode(question(federation, 1)))


def check(federation: Federation, data: bytes) -> None:
    """Check bytes as the site's process does before they leave."""
    with Journal.read(federation.site("north").state) as journal:
        ReleaseGate(journal).check(federation.site("north"), data)


def test_what_an_agent_says_leaves(federation: Federation, agent: SiteAgent) -> None:
    for message in (
        Invitation(EXPERIMENT, federation.terms.digest),
        question(federation, 1),
        question(federation, 1),
        question(federation, 1, shift=1.0),
        question(federation, 2),
        CloseRequest(EXPERIMENT, 2, federation.agreement.zero),
    ):
        check(federation, agent.answer(wire.encode(message)))
    check(federation, agent.answer(b"garbage"))


def test_what_was_tampered_with_stays(federation: Federation, upload: bytes) -> None:
    for place in (-1, len(upload) // 2, 20):
        changed = bytearray(upload)
        changed[place] ^= 1
        with pytest.raises(PrivacyViolation):
            check(federation, bytes(changed))
    for other in (upload + b"x", upload[:-1], b"", b"garbage"):
        with pytest.raises(PrivacyViolation):
            check(federation, other)
    check(federation, upload)


@pytest.mark.parametrize("site", ["north", "south"])
def test_what_is_not_in_the_journal_stays(federation: Federation, agent: SiteAgent, site: str) -> None:
    zero = federation.agreement.zero
    for message in (
        Answer(EXPERIMENT, site, 1, zero),
        Refusal(EXPERIMENT, site, "42 records"),
        Closed(EXPERIMENT, site),
    ):
        with pytest.raises(PrivacyViolation, match="not in the journal"):
            check(federation, wire.encode(message))


def test_a_question_is_nothing_that_leaves_a_site(federation: Federation, agent: SiteAgent) -> None:
    data = wire.encode(question(federation, 1))
    agent.journal.record_departure(EXPERIMENT, "answer", 1, data)
    with pytest.raises(PrivacyViolation):
        check(federation, data)


def test_an_upload_without_an_event_stays(federation: Federation, agent: SiteAgent) -> None:
    forged = wire.encode(Answer(EXPERIMENT, "north", 1, federation.agreement.zero))
    agent.journal.record_departure(EXPERIMENT, "answer", 1, forged)
    with pytest.raises(PrivacyViolation, match="has no event in the ledger"):
        check(federation, forged)


def test_an_upload_of_no_open_study_stays(federation: Federation, agent: SiteAgent, upload: bytes) -> None:
    other = wire.encode(Answer("f" * 32, "north", 1, federation.agreement.zero))
    agent.journal.record_departure("f" * 32, "answer", 1, other)
    with pytest.raises(PrivacyViolation, match="no study that is open"):
        check(federation, other)
    closed(agent, federation, 1)
    with pytest.raises(PrivacyViolation, match="no study that is open"):
        check(federation, upload)


def fates(agent: SiteAgent, kind: str = "answer") -> list[str]:
    return [departure.fate for departure in agent.journal.departures() if departure.kind.startswith(kind)]


def test_the_filter_writes_nothing_but_what_became_of_the_bytes(
    federation: Federation, agent: SiteAgent, upload: bytes
) -> None:
    before = agent.journal.departures(), federation.folder("north").ledger.read_bytes()
    assert fates(agent) == [PENDING]
    check(federation, upload)
    after = [departure._replace(fate=PENDING) for departure in agent.journal.departures()]
    assert (after, federation.folder("north").ledger.read_bytes()) == before and fates(agent) == [LEFT]
    with Journal.read(federation.site("north").state) as journal:
        assert journal.has_departure(wire.digest(upload))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_upload_that_is_not_finite_stays(federation: Federation, agent: SiteAgent, value: float) -> None:
    """This holds even if journal and ledger have it."""
    bad = wire.encode(Answer(EXPERIMENT, "north", 1, federation.agreement.zero + value))
    agent.journal.record_departure(EXPERIMENT, "answer", 1, bad)
    chain = federation.folder("north").chain
    chain.append([{"kind": "release", "first": 1, "upload": wire.digest(bad)}])
    with pytest.raises(PrivacyViolation, match="not finite"):
        check(federation, bad)
    assert fates(agent) == [KEPT_BACK]


def test_an_upload_of_a_broken_study_stays(federation: Federation, agent: SiteAgent, upload: bytes) -> None:
    agent.journal.mark_broken(EXPERIMENT)
    with pytest.raises(PrivacyViolation, match="no study that is open"):
        check(federation, upload)


def test_what_was_kept_back_is_not_listed_as_having_left(federation: Federation, agent: SiteAgent) -> None:
    """An upload without an event never left, so the transcript reports no fault."""
    forged = wire.encode(Answer(EXPERIMENT, "north", 1, federation.agreement.zero))
    agent.journal.record_departure(EXPERIMENT, "answer", 1, forged)
    assert read_transcript(federation.site("north")).faults  # it may have left
    with pytest.raises(PrivacyViolation, match="has no event in the ledger"):
        check(federation, forged)
    found = read_transcript(federation.site("north"))
    assert found.faults == [] and found.lines[-1].kept_back and found.lines[-1].covered


def test_what_passed_once_stays_listed_when_it_is_kept_back_later(
    federation: Federation, agent: SiteAgent, upload: bytes
) -> None:
    check(federation, upload)
    assert agent.answer(wire.encode(question(federation, 1))) == upload
    closed(agent, federation, 1)
    with pytest.raises(PrivacyViolation, match="no study that is open"):
        check(federation, upload)
    assert fates(agent) == [LEFT, KEPT_BACK]


def test_a_process_that_dies_before_it_could_tell_has_sent_it(federation: Federation) -> None:
    """If the fate of recorded bytes is unknown, the next process lists them as left, whatever the gate says later."""
    with federation.agent("north") as agent:
        invite(agent, federation)
        upload = agent.answer(wire.encode(question(federation, 1)))
    with federation.agent("north") as agent:
        assert fates(agent) == [LEFT]
        invite(agent, federation)
        assert agent.answer(wire.encode(question(federation, 1))) == upload
        closed(agent, federation, 1)
        with pytest.raises(PrivacyViolation):
            check(federation, upload)
        assert fates(agent) == [LEFT, KEPT_BACK]


def test_a_busy_journal_does_not_hold_up_what_may_leave(
    federation: Federation, agent: SiteAgent, upload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_database, "BRIEF_WAIT_SECONDS", 0.01)
    with agent.journal.exclusive():
        check(federation, upload)
    assert fates(agent) == [PENDING]  # which counts as left


def test_the_ledger_is_read_once_however_many_uploads_leave(
    federation: Federation, agent: SiteAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check reads only new lines of the ledger."""
    release = ReleaseGate(agent.journal)
    read: list[int] = []
    whole = growing.JsonlTail._parsed

    def parsed(file: growing.JsonlTail, content: bytes) -> list[dict[str, Any]]:
        read.append(len(content))
        return whole(file, content)

    monkeypatch.setattr(growing.JsonlTail, "_parsed", parsed)
    for t in range(1, 5):
        release.check(federation.site("north"), agent.answer(wire.encode(question(federation, t))))
    assert sum(read) == federation.folder("north").ledger.stat().st_size
