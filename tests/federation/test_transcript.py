"""The transcript lists every byte string that leaves a site, and finds what the ledgers do not cover."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from taciturn.cli.site_commands import transcript as show
from taciturn.errors import InputError, LedgerTampered
from taciturn.federation import journal as journal_module
from taciturn.federation import messages as wire
from taciturn.federation.coordinator import FINISHED
from taciturn.federation.journal import KEPT_BACK, Journal
from taciturn.federation.messages import Answer, Invitation, Question, RoundRequest
from taciturn.federation.transcript import Transcript, read_transcript
from tests.federation.helpers import (
    EXPERIMENT,
    LIMIT,
    SITES,
    Federation,
    Local,
    closed,
    invite,
    make_federation,
    question,
)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    """North has answered three rounds, one of them twice, and refused two questions."""
    found = make_federation(tmp_path)
    with found.agent("north") as agent:
        invite(agent, found)
        for t in (1, 2, 2, 3):
            agent.answer(wire.encode(question(found, t)))
        agent.answer(wire.encode(question(found, 3, shift=1.0)))
        agent.answer(b"garbage")
    yield found


def told(federation: Federation) -> Transcript:
    return read_transcript(federation.site("north"))


def test_everything_that_leaves_is_reported(tmp_path: Path) -> None:
    federation = make_federation(tmp_path)
    with federation.agents() as agents:

        def fault(site: str, message: Question) -> str:
            return "answer" if isinstance(message, RoundRequest) and message.round == 2 and site == "west" else ""

        exchange = Local(agents, fault)
        assert federation.coordinator().run(exchange) == FINISHED
        for site in SITES:
            found = read_transcript(federation.site(site))
            assert [line.departure.sha256 for line in found.lines] == [
                wire.digest(data) for data in exchange.left[site]
            ]
            assert [line.departure.bytes for line in found.lines] == [len(data) for data in exchange.left[site]]
            assert found.faults == [] and all(line.covered for line in found.lines)
            for line, data in zip(found.lines, exchange.left[site], strict=True):
                message = wire.decode_reply(data, LIMIT)
                assert line.study == "tiny"
                assert (line.event != "–") == isinstance(message, Answer)
                assert line.departure.round == (message.round if isinstance(message, Answer) else None)


def test_repeated_answers_and_refusals_are_reported_too(federation: Federation) -> None:
    found = told(federation)
    kinds = ["ready", "answer", "answer", "answer again", "answer", "refusal", "refusal"]
    assert [line.departure.kind for line in found.lines] == kinds
    assert found.faults == [] and all(line.covered for line in found.lines)
    assert found.lines[2].departure.sha256 == found.lines[3].departure.sha256
    assert [line.study for line in found.lines] == ["tiny"] * 6 + [""]
    assert found.lines[1].event == "1 x discrete-gaussian"


def test_it_can_be_read_while_the_agent_is_at_work_and_after_the_end(federation: Federation) -> None:
    with federation.agent("north") as agent:
        invite(agent, federation)
        assert told(federation).faults == []
        closed(agent, federation, 3)
        assert told(federation).faults == [] and told(federation).lines[-1].departure.kind == "closed"


@pytest.mark.parametrize("line", [0, 2, 3, -2, -1])
def test_a_removed_line_of_the_ledger_is_found(federation: Federation, line: int) -> None:
    path = federation.folder("north").ledger
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[line]
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerTampered):
        told(federation)


def test_a_changed_line_of_the_ledger_is_found(federation: Federation) -> None:
    path = federation.folder("north").ledger
    path.write_bytes(path.read_bytes().replace(b'"first": 2', b'"first": 3'))
    with pytest.raises(LedgerTampered):
        told(federation)


@pytest.mark.parametrize("t", [3, 4, 9])
def test_a_departure_that_no_event_covers_is_found(federation: Federation, t: int) -> None:
    forged = wire.encode(Answer(EXPERIMENT, "north", t, federation.agreement.zero))
    with Journal.open(federation.site("north").state) as journal:
        journal.record_departure(EXPERIMENT, "answer", t, forged)
    found = told(federation)
    assert [line.covered for line in found.lines].count(False) == 1 and not found.lines[-1].covered
    assert any(f"the upload of round {t} ({wire.digest(forged)[:12]}…) has no event" in fault for fault in found.faults)
    assert any("is not in the journal" in fault for fault in found.faults)  # also if the round has another answer


def test_an_upload_of_a_study_that_is_not_known_is_found(federation: Federation) -> None:
    with Journal.open(federation.site("north").state) as journal:
        journal.record_departure("f" * 32, "answer again", 1, b"an upload of another study")
    found = told(federation)
    assert len(found.faults) == 2 and found.lines[-1].study == ""


def test_a_round_that_was_taken_out_of_the_journal_is_found(federation: Federation) -> None:
    with Journal.open(federation.site("north").state) as journal, journal.exclusive():
        journal._execute("delete from rounds where round = 2")
    assert {
        "the upload of round 2" in fault and "is not in the journal" in fault for fault in told(federation).faults
    } == {True}


def test_a_study_without_a_reservation_is_found(federation: Federation) -> None:
    with Journal.open(federation.site("north").state) as journal, journal.exclusive():
        journal._execute("update experiments set reservation = 'none'")
    assert told(federation).faults == ["the study tiny (01234567) has no reservation in patients.ledger"]


def test_without_a_journal_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has not taken part in a study yet"):
        read_transcript(make_federation(tmp_path).site("north"))


def test_a_question_that_is_refused_before_anything_began_is_told(tmp_path: Path) -> None:
    federation = make_federation(tmp_path, accept={"rounds_max": 1})
    with federation.agent("north") as agent:
        data = agent.answer(wire.encode(Invitation(EXPERIMENT, federation.terms.digest)))
    (line,) = told(federation).lines
    assert line.departure.sha256 == wire.digest(data) and line.departure.kind == "refusal" and line.covered


def test_the_command_says_what_was_kept_back_and_how_often_the_rest_left(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(journal_module, "DAILY_LINES", 0)
    forged = wire.encode(Answer(EXPERIMENT, "north", 4, federation.agreement.zero))
    with federation.agent("north") as agent:
        for _ in range(3):
            agent.answer(b"garbage")  # which has its line already
        agent.journal.record_departure(EXPERIMENT, "answer", 4, forged)
        agent.journal.settle_departure(wire.digest(forged), KEPT_BACK)
    found = told(federation)
    assert found.repeats == 3 and [line.kept_back for line in found.lines] == [False] * 7 + [True]
    show.callback(federation.file("north"), False)  # type: ignore[misc]
    said = capsys.readouterr().out
    assert "answer, kept" in said and "7 messages" in said and "3 times" in said
    assert "the ledgers cover all of it" in said
