"""A site that dies at any step and restarts: every round is charged once, and the study is reserved once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from taciturn.federation import messages as wire
from taciturn.federation import site_session, upload_session
from taciturn.federation.agent import INTERNAL_ERROR
from taciturn.federation.journal import Journal
from taciturn.federation.messages import Answer, Closed, CloseRequest, Question, Ready
from taciturn.federation.transcript import read_transcript
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.composition import total_cost
from taciturn.privacy.hash_chain import HashChain
from tests.federation.helpers import (
    EXPERIMENT,
    LIMIT,
    Federation,
    answered,
    closed,
    invite,
    make_federation,
    question,
    refused,
)

ROUNDS = 2


class Crash(BaseException):
    """Simulates the death of the process; no code catches it."""


BOUNDARIES: dict[str, tuple[Any, str]] = {
    "reserve": (BudgetLedger, "reserve"),
    "create_study_folder": (site_session, "create_study_folder"),
    "journal.begin": (Journal, "begin"),
    "journal.write": (Journal, "write_round"),
    "charge": (site_session.SiteSession, "_charge"),
    "journal.depart": (Journal, "record_repeatable"),
    "journal.close": (Journal, "close"),
    "ledger": (HashChain, "append"),
    "head": (HashChain, "_write_heads"),
    "record_round": (upload_session, "record_round"),
    "finish_study_folder": (site_session, "finish_study_folder"),
    "settle": (BudgetLedger, "settle"),
}


def crash_at(monkeypatch: pytest.MonkeyPatch, name: str, number: int, after: bool) -> Callable[[], bool]:
    """Let the process die before or after the n-th call; the result says whether it did."""
    owner, attribute = BOUNDARIES[name]
    real, calls = getattr(owner, attribute), [0]

    def dying(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] != number:
            return real(*args, **kwargs)
        if after:
            real(*args, **kwargs)
        raise Crash

    monkeypatch.setattr(owner, attribute, dying)
    return lambda: calls[0] >= number


def live(federation: Federation, script: list[Question], seed: int | None = 7) -> list[bytes]:
    """Run a site through requests, restarting it and asking again after every crash; return its answers."""
    said: list[bytes] = []
    while len(said) < len(script):
        try:
            with federation.agent("north", seed) as agent:
                reply = invite(agent, federation)
                assert isinstance(reply, Ready) or reply.reason == "this study has ended here", reply.reason
                while len(said) < len(script):
                    data = agent.answer(wire.encode(script[len(said)]))
                    assert isinstance(wire.decode_reply(data, LIMIT), (Answer, Closed)), wire.decode_reply(data, LIMIT)
                    said.append(data)
        except Crash:
            continue
    return said


def rounds(federation: Federation) -> list[Question]:
    return [question(federation, t) for t in range(1, ROUNDS + 1)]


def end(federation: Federation) -> list[Question]:
    return [CloseRequest(EXPERIMENT, ROUNDS, federation.agreement.zero)]


def check(federation: Federation, answers: list[bytes]) -> None:
    """Check the state after a study in which every round was answered."""
    ledger = federation.folder("north").read_ledger()
    rows = [row for row in ledger if row["kind"] == "release"]
    assert [(row["first"], row["upload"]) for row in rows] == [(t, wire.digest(a)) for t, a in enumerate(answers, 1)]
    totals = ledger.totals
    assert totals["total_epsilon"] == pytest.approx(totals["planned_epsilon"])
    studies = federation.account("north").state().studies
    assert len(studies) == 1 and studies[0].settled
    assert asdict(studies[0].cost) == pytest.approx(asdict(federation.agreement.plan.cost))
    found = read_transcript(federation.site("north"))
    assert found.faults == []
    left = {line.departure.sha256 for line in found.lines}
    assert {wire.digest(answer) for answer in answers} <= left


def everywhere(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool, closing: bool) -> None:
    """Repeat a study with a crash at every call of one function."""
    for number in range(1, 20):
        federation = make_federation(folder / str(number), {"study": {"rounds": ROUNDS}}, only=["north"])
        answers = live(federation, rounds(federation)) if closing else []
        with monkeypatch.context() as patch:
            crashed = crash_at(patch, name, number, after)
            answers = answers or live(federation, rounds(federation))
            if closing:
                live(federation, end(federation))
        if not closing:
            live(federation, end(federation))
        check(federation, answers)
        if not crashed():
            assert number > 1, "the boundary was never reached"
            return
    raise AssertionError("more boundaries than expected")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "name", [name for name in BOUNDARIES if name not in {"journal.close", "finish_study_folder", "settle"}]
)
def test_a_crash_costs_nothing_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    everywhere(tmp_path, monkeypatch, name, after, closing=False)


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("finish_study_folder", False),
        ("finish_study_folder", True),
        ("settle", False),
        ("settle", True),
        ("ledger", False),
        ("ledger", True),
        ("head", False),
        ("head", True),
        ("journal.close", False),
        ("journal.close", True),
        ("journal.depart", False),
        ("journal.depart", True),
    ],
)
def test_a_crash_while_the_books_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    everywhere(tmp_path, monkeypatch, name, after, closing=True)


def test_what_a_killed_process_left_of_its_folders_is_cleared_away(tmp_path: Path) -> None:
    federation = make_federation(tmp_path, only=["north"])
    studies = federation.site("north").state / "studies"
    for left in (tmp_path / ".run.new", studies / f".{EXPERIMENT}.new"):
        left.mkdir(parents=True)
        (left / "config.toml").write_text("torn")
    assert federation.coordinator().state.round == 0
    answers = live(federation, [question(federation, 1)])
    assert [row["upload"] for row in federation.released("north")] == [wire.digest(answers[0])]


@pytest.mark.parametrize("name", ["create_study_folder", "journal.begin"])
def test_a_study_that_takes_all_of_a_budget_survives_a_crash_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    federation = make_federation(tmp_path, {"study": {"rounds": ROUNDS}}, epsilon=0.3)
    plan, account = federation.agreement.plan.cost, federation.account("north")
    assert account.state().fits(plan) and not account.state().fits(total_cost([plan, plan]))
    with monkeypatch.context() as patch:
        crash_at(patch, name, 1, False)
        answers = live(federation, rounds(federation))
    live(federation, end(federation))
    check(federation, answers)


def test_what_could_not_be_charged_does_not_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger's disk is full for a moment, and the process continues."""
    federation = make_federation(tmp_path)
    with federation.agent("north") as agent:
        invite(agent, federation)
        with monkeypatch.context() as patch:
            patch.setattr(HashChain, "append", _full)
            assert refused(agent, question(federation, 1)) == INTERNAL_ERROR
            assert refused(agent, question(federation, 1)) == INTERNAL_ERROR
        data = wire.encode(answered(agent, question(federation, 1)))
        assert [row["upload"] for row in federation.released("north")] == [wire.digest(data)]


def _full(*given: Any) -> None:
    raise OSError("no space left on device")


def test_a_study_ends_whose_only_line_of_metrics_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = make_federation(tmp_path, {"study": {"rounds": 1}})
    with monkeypatch.context() as patch:
        crash_at(patch, "record_round", 1, False)
        live(federation, rounds(federation)[:1])
    with federation.agent("north") as agent:
        invite(agent, federation)
        assert isinstance(closed(agent, federation, 1), Closed)
    assert federation.account("north").state().studies[0].settled


def test_a_hardened_site_does_not_draw_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies after the write: the same bytes leave later, although the noise cannot be drawn again."""
    federation = make_federation(tmp_path, {"study": {"rounds": ROUNDS}})
    with monkeypatch.context() as patch:
        crash_at(patch, "charge", 1, False)
        with pytest.raises(Crash), federation.agent("north", None) as agent:
            invite(agent, federation)
            agent.answer(wire.encode(question(federation, 1)))
    assert federation.released("north") == []
    with federation.journal("north") as journal:
        kept = journal.last_round(EXPERIMENT)
    with federation.agent("north", None) as agent:
        assert isinstance(invite(agent, federation), Ready)
        assert len(federation.released("north")) == 1  # charged before anything leaves
        assert kept is not None and agent.answer(wire.encode(question(federation, 1))) == kept.upload
        assert len(federation.released("north")) == 1


def test_before_it_is_written_down_a_round_has_not_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = make_federation(tmp_path, {"study": {"rounds": ROUNDS}})
    with monkeypatch.context() as patch:
        crash_at(patch, "journal.write", 1, False)
        with pytest.raises(Crash), federation.agent("north", None) as agent:
            invite(agent, federation)
            agent.answer(wire.encode(question(federation, 1)))
    with federation.agent("north", None) as agent:
        invite(agent, federation)
        assert federation.released("north") == [] and agent.journal.last_round(EXPERIMENT) is None
        answered(agent, question(federation, 1, shift=1.0))  # so another w is no fork
