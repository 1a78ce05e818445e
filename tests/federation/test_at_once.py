"""Concurrent requests: a round has one upload and one ledger entry, and never more rounds than are reserved."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taciturn.core import storage as files
from taciturn.errors import InputError, PrivacyViolation
from taciturn.federation import agent as agent_module
from taciturn.federation import messages as wire
from taciturn.federation import site_session
from taciturn.federation.agent import INTERNAL_ERROR, STUDY_BROKEN, SiteAgent
from taciturn.federation.agreement import Agreement
from taciturn.federation.journal import DAILY_LINES, Journal
from taciturn.federation.logs import logged
from taciturn.federation.messages import Answer, CloseRequest, Invitation, Ready, Refusal
from taciturn.federation.site_operations import close_study, site_status
from taciturn.privacy import hash_chain as chain_module
from taciturn.privacy.budget import BudgetLedger
from tests.federation.helpers import (
    EXPERIMENT,
    LIMIT,
    Federation,
    answered,
    ask,
    invite,
    make_federation,
    question,
    refused,
)

ROUNDS = 200
MANY = {"study": {"rounds": ROUNDS, "noise_multiplier": 400.0}}


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return make_federation(tmp_path, MANY, {"rounds_max": ROUNDS}, only=["north"])


@pytest.fixture
def agent(federation: Federation) -> Iterator[SiteAgent]:
    with federation.agent("north", None) as found:
        assert isinstance(invite(found, federation), Ready)
        yield found


def slow_down(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Slow a function down, so that other threads run between the read and the write of the journal."""
    real = getattr(owner, name)

    def slow(*given: Any) -> Any:
        time.sleep(0.002)
        return real(*given)

    monkeypatch.setattr(owner, name, slow)


def uploads(answers: list[bytes]) -> set[bytes]:
    return {data for data in answers if isinstance(wire.decode_reply(data, LIMIT), Answer)}


def check_once(federation: Federation, rounds: int) -> None:
    charged = Counter(row["first"] for row in federation.released("north"))
    assert charged == Counter(range(1, rounds + 1))


@pytest.mark.parametrize("where", ["", "agent_step", "record_departure"])
def test_one_round_asked_with_many_w_at_once_has_one_upload(
    federation: Federation, agent: SiteAgent, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Six threads ask for three histories, two for each: only one history is answered, with the same bytes twice."""
    rounds = 30 if where else ROUNDS
    if where:
        owner: Any = Journal if where == "record_departure" else type(federation.agreement.algorithm)
        slow_down(monkeypatch, owner, where)
    with ThreadPoolExecutor(6) as pool:
        for t in range(1, rounds + 1):
            asked = [wire.encode(question(federation, t, shift=0.001 * n)) for n in (0, 1, 2, 0, 1, 2)]
            found = list(pool.map(agent.answer, asked))
            assert len(uploads(found)) == 1, t
            chosen = {asked[n] for n, data in enumerate(found) if data in uploads(found)}
            assert len(chosen) == 1
            assert all((data in uploads(found)) == (asked[n] in chosen) for n, data in enumerate(found))
    check_once(federation, rounds)


PROGRAM = """
import sys
from contextlib import ExitStack
from pathlib import Path
from taciturn.federation import messages as wire
from taciturn.federation.agent import SiteAgent
from taciturn.federation.journal import Journal
from taciturn.federation.messages import Answer
from taciturn.privacy.budget import ReservationLock

ReservationLock.__init__ = lambda lock, reservation: ExitStack.__init__(lock)  # past the lock of the reservation
ReservationLock.write_folder = lambda lock, folder: None
path = Path(sys.argv[1])
agent = SiteAgent(path, Journal.connect(path.parent / "state" / "journal.sqlite"))  # and of the folder
for line in sys.stdin:
    data = agent.answer(bytes.fromhex(line))
    found = wire.decode_reply(data, 1 << 20)
    print(wire.digest(data) if isinstance(found, Answer) else "", flush=True)
"""


def test_two_processes_that_got_past_the_lock_do_not_draw_twice(federation: Federation) -> None:
    """Both processes have their own connection to the journal, and are asked at the same time."""
    with federation.agent("north", None) as agent:
        invite(agent, federation)
    command = [sys.executable, "-c", PROGRAM, str(federation.file("north"))]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]

    def ask_both(messages: list[Any]) -> list[str]:
        for process, message in zip(processes, messages, strict=True):
            assert process.stdin is not None
            process.stdin.write(wire.encode(message).hex() + "\n")
            process.stdin.flush()
        return [process.stdout.readline().strip() for process in processes if process.stdout is not None]

    try:
        ask_both([Invitation(EXPERIMENT, federation.terms.digest)] * 2)
        for t in range(1, 21):
            shift = 0.0 if t % 2 else 0.001
            found = set(ask_both([question(federation, t), question(federation, t, shift=shift)]))
            assert len(found - {""}) == 1, t
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    check_once(federation, 20)


def test_a_second_row_of_a_round_is_an_error_of_the_database_before_noise_is_drawn(
    federation: Federation, agent: SiteAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(agent, question(federation, 1))
    drawn = _counting(federation, monkeypatch)
    monkeypatch.setattr(agent.journal, "last_round", lambda name: None)  # as if the look had come too early
    lines: list[str] = []
    with logged(None, lines.append):
        assert refused(agent, question(federation, 1, shift=1.0)) == INTERNAL_ERROR
    assert drawn == [] and "UNIQUE constraint failed" in lines[0]
    with pytest.raises(sqlite3.IntegrityError), agent.journal.exclusive():
        agent.journal.claim_round(EXPERIMENT, 1, 0, "w")
    with pytest.raises(RuntimeError, match="must be claimed"):
        agent.journal.claim_round(EXPERIMENT, 2, 1, "w")
    check_once(federation, 1)


def _counting(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the rounds that are computed."""
    algorithm, drawn = type(federation.agreement.algorithm), []
    real = algorithm.agent_step

    def step(self: Any, t: int, *given: Any) -> Any:
        drawn.append(t)
        return real(self, t, *given)

    monkeypatch.setattr(algorithm, "agent_step", step)
    return drawn


def test_a_round_that_fails_has_claimed_nothing(
    federation: Federation, agent: SiteAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(federation.agreement.algorithm), "agent_step", _fail)
        assert refused(agent, question(federation, 1)) == INTERNAL_ERROR
    answered(agent, question(federation, 1, shift=1.0))
    check_once(federation, 1)


def _fail(*given: Any) -> Any:
    raise ValueError("no")


def test_no_round_beyond_what_was_reserved(
    federation: Federation, agent: SiteAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the ledger is charged with more than the journal knows, no more noise is drawn."""
    answered(agent, question(federation, 1))
    (row,) = federation.released("north")
    federation.folder("north").chain.append([row | {"count": ROUNDS - 1, "upload": "0" * 64}])
    drawn = _counting(federation, monkeypatch)
    assert refused(agent, question(federation, 2)).startswith("round 2 would exceed")
    assert drawn == []


def test_a_plan_other_than_the_reserved_one_is_refused(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of the planner may compute another plan from the same terms."""
    with federation.agent("north") as agent:
        invite(agent, federation)
    plan = federation.agreement.plan
    other = replace(plan, events=Counter({event: 2 * count for event, count in plan.events.items()}))
    monkeypatch.setattr(Agreement, "plan", property(lambda agreement: other))
    with federation.agent("north") as agent:
        found = invite(agent, federation)
        assert isinstance(found, Refusal) and "another plan" in found.reason


# ---- a full disk for the kept heads alone


def test_a_round_is_charged_once_where_only_the_disk_of_the_heads_is_full(
    federation: Federation, agent: SiteAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is in the ledger but its head cannot be written: nothing leaves, and nothing is charged again."""
    one = answered(agent, question(federation, 1))
    real = files.write_text
    with monkeypatch.context() as patch:

        def full(path: Path, text: str, *given: Any) -> None:
            if path.parent.name == "ledgers":
                raise OSError(28, "No space left on device")
            real(path, text, *given)

        patch.setattr(chain_module, "write_text", full)
        for _ in range(4):
            assert refused(agent, question(federation, 2)) == INTERNAL_ERROR
        assert [row["first"] for row in federation.released("north")] == [1, 2]
    two = answered(agent, question(federation, 2))
    answered(agent, question(federation, 3))
    rows = federation.released("north")
    assert [row["first"] for row in rows] == [1, 2, 3]
    assert [row["upload"] for row in rows[:2]] == [wire.digest(wire.encode(answer)) for answer in (one, two)]


def test_a_round_is_charged_once_where_the_disk_of_the_heads_stays_full_over_a_restart(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = files.write_text

    def full(path: Path, text: str, *given: Any) -> None:
        if path.parent.name == "ledgers":
            raise OSError(28, "No space left on device")
        real(path, text, *given)

    with federation.agent("north", None) as agent:
        invite(agent, federation)
        with monkeypatch.context() as patch:
            patch.setattr(chain_module, "write_text", full)
            assert refused(agent, question(federation, 1)) == INTERNAL_ERROR
    with federation.agent("north", None) as agent:
        invite(agent, federation)
        answered(agent, question(federation, 1))
    check_once(federation, 1)


# ---- invitations and refusals


def test_invitations_do_not_set_a_budget_aside_study_by_study(tmp_path: Path) -> None:
    federation = make_federation(tmp_path, only=["north"], epsilon=30.0)
    with federation.agent("north") as agent:
        assert isinstance(invite(agent, federation), Ready)
        for n in range(37):
            found = invite(agent, federation, f"{n:032x}")
            assert isinstance(found, Refusal) and "01234567" in found.reason
            assert "at most 1 at a time" in found.reason
        assert isinstance(invite(agent, federation), Ready)  # the study itself continues
        answered(agent, question(federation, 1))
    assert len(federation.account("north").state().studies) == 1
    federation.change("north", {"accept": {"open_studies_max": 3}})
    with federation.agent("north") as agent:
        said = [invite(agent, federation, f"{n:032x}") for n in range(5)]
        assert [type(one).__name__ for one in said] == ["Ready"] * 2 + ["Refusal"] * 3


def test_a_study_that_never_had_a_round_is_given_back_by_its_site(tmp_path: Path) -> None:
    federation = make_federation(tmp_path, only=["north"])
    with federation.agent("north") as agent:
        invite(agent, federation)
    assert federation.account("north").state().used.gdp > 0.0
    close_study(federation.file("north"), EXPERIMENT[:8])
    assert federation.account("north").state().used.gdp == 0.0
    with federation.agent("north") as agent:
        found = invite(agent, federation)
        assert isinstance(found, Refusal) and found.reason == "this study has ended here"
        assert isinstance(invite(agent, federation, "f" * 32), Ready)


@pytest.mark.parametrize("where", ["reserve", "create_study_folder"])
def test_a_study_that_a_crash_left_without_reservation_or_folder_can_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    federation = make_federation(tmp_path, only=["north"])
    owner: Any = BudgetLedger if where == "reserve" else site_session
    with monkeypatch.context() as patch, federation.agent("north") as agent:
        patch.setattr(owner, where, _fail)
        assert isinstance(invite(agent, federation), Refusal)
    assert site_status(federation.file("north"))["studies"][0]["spent_epsilon"] == 0.0
    close_study(federation.file("north"), EXPERIMENT[:8])
    assert federation.account("north").state().used.gdp == 0.0
    with federation.agent("north") as agent:
        assert isinstance(invite(agent, federation, "f" * 32), Ready)


def test_studies_that_end_before_they_begin_are_few_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "NEW_STUDIES_PER_DAY", 3)
    federation = make_federation(tmp_path, only=["north"])
    with federation.agent("north") as agent:
        for n in range(3):
            assert isinstance(invite(agent, federation, f"{n:032x}"), Ready)
            ask(agent, CloseRequest(f"{n:032x}", 0, federation.agreement.zero))
        found = invite(agent, federation, "f" * 32)
        assert isinstance(found, Refusal) and "daily limit" in found.reason


def test_refusals_cost_a_bounded_number_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound holds for any invented studies and across restarts of the agent."""
    federation = make_federation(tmp_path, only=["north"])
    commits = [0]
    lines: list[str] = []
    for start in range(3):
        with federation.agent("north") as agent, logged(None, lines.append):
            agent.journal.database.connection.set_trace_callback(
                lambda statement: commits.__setitem__(0, commits[0] + (statement == "commit"))
            )
            for n in range(400):
                message = question(federation, 1)._replace(experiment=f"{1000 * start + n:032x}")
                data = agent.answer(wire.encode(message))
                assert isinstance(wire.decode_reply(data, LIMIT), Refusal)
                assert agent.journal.has_departure(wire.digest(data))  # so that the filter lets it pass
            assert len(agent.journal.departures()) == DAILY_LINES + 1
    with federation.journal("north") as journal:
        assert len(journal.departures()) == DAILY_LINES + 1 and journal.repeats() == 1200 - DAILY_LINES - 1
    assert commits[0] < DAILY_LINES + 20 and len(lines) < DAILY_LINES + 10


def test_a_round_asked_for_again_and_again_costs_a_bounded_number_of_lines(
    federation: Federation, agent: SiteAgent
) -> None:
    asked = wire.encode(question(federation, 1))
    first = agent.answer(asked)
    assert all(agent.answer(asked) == first for _ in range(DAILY_LINES + 50))
    assert len(agent.journal.departures()) <= DAILY_LINES + 2
    answered(agent, question(federation, 2))  # what is new is always listed
    assert agent.journal.departures()[-1].round == 2


# ---- a broken promise


def test_a_study_that_broke_its_promise_is_over_at_this_site(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    with federation.agent("north", None) as agent, logged(None, lines.append):
        invite(agent, federation)
        answered(agent, question(federation, 1))
        algorithm = type(federation.agreement.algorithm)
        real = algorithm.agent_step
        with monkeypatch.context() as patch:
            patch.setattr(algorithm, "agent_step", lambda *given: real(*given)._replace(events=()))
            assert refused(agent, question(federation, 2)) == STUDY_BROKEN
        assert any(line.startswith(f"PRIVACY VIOLATION in study {EXPERIMENT}") for line in lines)
        assert refused(agent, question(federation, 1)) == STUDY_BROKEN
        assert refused(agent, question(federation, 2)) == STUDY_BROKEN
        assert refused(agent, CloseRequest(EXPERIMENT, 1, federation.agreement.zero)) == STUDY_BROKEN
        assert invite(agent, federation) == Refusal(EXPERIMENT, "north", STUDY_BROKEN)
    with federation.agent("north", None) as agent:  # nor after a restart
        assert invite(agent, federation) == Refusal(EXPERIMENT, "north", STUDY_BROKEN)
        assert agent.journal.last_round(EXPERIMENT) is not None and len(federation.released("north")) == 1
    assert site_status(federation.file("north"))["studies"][0]["broken"]
    close_study(federation.file("north"), EXPERIMENT)  # its owner settles it


def test_a_violation_anywhere_in_a_message_ends_its_study(
    federation: Federation, agent: SiteAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def violated(*given: Any) -> Any:
        raise PrivacyViolation("without noise")

    monkeypatch.setattr(type(federation.agreement.algorithm), "agent_step", violated)
    assert refused(agent, question(federation, 1)) == STUDY_BROKEN
    begun = agent.journal.experiment(EXPERIMENT)
    assert begun is not None and begun.violated_at


def test_a_journal_of_another_version_is_refused_with_a_sentence(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "journal.sqlite")
    connection.execute("create table experiments (id text)")
    connection.commit()
    connection.close()
    with pytest.raises(InputError, match="another version"), Journal.open(tmp_path):
        pass
