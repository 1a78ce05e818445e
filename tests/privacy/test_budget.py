"""The budget ledger: a study reserves its whole plan, and a plan that does not fit is refused."""

from __future__ import annotations

import json
import math
import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.core.storage import state_folder
from taciturn.errors import BudgetExhausted, CorruptFile, InputError, LedgerTampered, PrivacyViolation, TaciturnError
from taciturn.privacy import ledger_transfer as moves
from taciturn.privacy.accountants.gdp import NO_SLACK, gdp_budget, gdp_epsilon
from taciturn.privacy.budget import BudgetLedger, ReservationLock, is_reservation_held
from taciturn.privacy.composition import StudyCost

DELTA = 1e-6


def gaussian(mu_squared: float) -> StudyCost:
    """Return the cost of continuous Gaussian releases."""
    return StudyCost(mu_squared, mu_squared / 2.0)


@pytest.fixture
def account(tmp_path: Path) -> BudgetLedger:
    return BudgetLedger.create(tmp_path / "patients.ledger", "patients", 2.0, DELTA)


def test_reservations_add_up_and_are_settled(account: BudgetLedger) -> None:
    first = account.reserve("one", gaussian(0.02))
    account.reserve("two", gaussian(0.01))
    state = BudgetLedger.open(account.path).state()
    assert state.used.gdp == pytest.approx(0.03)
    assert state.epsilon_used == pytest.approx(gdp_epsilon(0.03, NO_SLACK, DELTA))
    account.settle(first, gaussian(0.005))
    state = account.state()
    assert state.used.gdp == pytest.approx(0.015)
    assert [study.study for study in state.studies] == ["one", "two"]
    assert state.studies[0].settled and not state.studies[1].settled


def test_an_exhausted_budget_is_refused_whatever_was_settled_later(account: BudgetLedger) -> None:
    whole = gdp_budget(2.0, NO_SLACK, DELTA)
    account.reserve("almost all", gaussian(0.9 * whole))
    with pytest.raises(BudgetExhausted, match=r"epsilon 2 at delta 1e-06.*one more study of up to"):
        account.reserve("too much", gaussian(0.2 * whole))
    account.reserve("the rest", gaussian(0.0999 * whole))
    with pytest.raises(BudgetExhausted):
        account.reserve("a little", gaussian(0.0002 * whole))
    assert account.state().epsilon_used <= 2.0
    assert account.state().epsilon_used == pytest.approx(2.0, rel=1e-3)


def test_the_head_is_kept_where_a_backup_does_not_reach(account: BudgetLedger, tmp_path: Path) -> None:
    backup = account.path.read_bytes()
    account.reserve("one", gaussian(0.02))
    account.path.write_bytes(backup)
    with pytest.raises(LedgerTampered, match="an old copy"):
        BudgetLedger.open(account.path)
    assert not list(tmp_path.glob("*.json"))
    assert list((state_folder() / "ledgers").glob(f"{account.identity}.json"))


def test_a_ledger_from_elsewhere_must_be_adopted(account: BudgetLedger) -> None:
    account.reserve("one", gaussian(0.02))
    head = state_folder() / "ledgers" / f"{account.identity}.json"
    head.unlink()
    with pytest.raises(CorruptFile, match="ledger adopt"):
        BudgetLedger.open(account.path)
    with pytest.raises(InputError, match="was not handed over"):
        BudgetLedger.adopt(account.path)
    assert BudgetLedger.adopt(account.path, lost_machine=True).state().used.gdp == pytest.approx(0.02)
    for lost in (False, True):
        with pytest.raises(InputError, match="nothing to adopt"):
            BudgetLedger.adopt(account.path, lost)


def test_files_that_are_not_ledgers_are_refused(tmp_path: Path, account: BudgetLedger) -> None:
    with pytest.raises(InputError, match="taciturn ledger init"):
        BudgetLedger.open(tmp_path / "none")
    (tmp_path / "other").write_text('{"kind": "study"}\n')
    for opening in (BudgetLedger.open, BudgetLedger.adopt):
        with pytest.raises(CorruptFile, match="is not a budget ledger"):
            opening(tmp_path / "other")
    with pytest.raises(InputError, match="exists"):
        BudgetLedger.create(account.path, "x", 1.0, DELTA)
    with pytest.raises(InputError, match="no folder"):
        BudgetLedger.create(tmp_path / "a" / "b", "x", 1.0, DELTA)


def test_studies_of_another_relation_or_unit_are_refused(account: BudgetLedger) -> None:
    with pytest.raises(InputError, match=r"adjacency add-remove, .* replace-one"):
        account.reserve("other", gaussian(0.001), "replace-one")
    with pytest.raises(InputError, match=r"unit record, .* patient"):
        account.reserve("other", gaussian(0.001), unit="patient")


def test_only_an_open_reservation_can_continue(account: BudgetLedger) -> None:
    name = account.reserve("one", gaussian(0.01))
    account.check_open(name)
    account.settle(name, gaussian(0.01))
    for gone, said in ((name, f"{name} .* already settled"), ("unknown", "no reservation unknown")):
        with pytest.raises(InputError, match=said):
            account.check_open(gone)


def test_a_reservation_is_settled_once_and_by_one_folder(account: BudgetLedger) -> None:
    name, other = account.reserve("one", gaussian(0.01)), account.reserve("two", gaussian(0.01))
    account.start(name)
    account.settle(name, gaussian(0.01), head="a" * 64)
    for again in (0.01, 0.0, 0.5):
        with pytest.raises(InputError, match=f"{name} .* already settled"):
            account.settle(name, gaussian(again), head="b" * 64)
    assert account.is_settled_by(name, "a" * 64) and not account.is_settled_by(name, "b" * 64)
    assert not account.is_settled_by(other, "")
    with pytest.raises(InputError, match="has no reservation nobody"):
        account.settle("nobody", gaussian(0.01))
    assert account.state().used.gdp == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("cost", "counted"),
    [
        (StudyCost(0.03, 0.005), StudyCost(0.03, 0.01)),
        (StudyCost(0.0, 0.0, above=1e-9), StudyCost(0.02, 0.01, above=1e-9)),
        (StudyCost(math.inf, math.inf), StudyCost(math.inf, math.inf)),
        (StudyCost(math.nan, 0.01), StudyCost(math.inf, 0.01)),
        (StudyCost(-1.0, 0.01), StudyCost(math.inf, 0.01)),
    ],
)
def test_spending_more_than_reserved_is_a_violation_and_counts(
    account: BudgetLedger, cost: StudyCost, counted: StudyCost
) -> None:
    name, other = account.reserve("one", gaussian(0.02)), account.reserve("two", gaussian(0.01))
    account.start(name)
    with pytest.raises(PrivacyViolation, match=name):
        account.settle(name, cost, head="a" * 64)
    first, second = BudgetLedger.open(account.path).state().studies
    assert (first.state, first.cost, second.state) == ("violated", counted, "reserved")
    with pytest.raises(PrivacyViolation, match=name):
        account.is_settled_by(name, "a" * 64)  # after a crash it is raised again
    with pytest.raises(InputError, match="already violated"):
        account.settle(name, gaussian(0.0))
    with pytest.raises(InputError, match="already violated"):
        account.check_open(name)
    if not counted.finite and counted.gdp == math.inf:
        assert math.isinf(account.state().epsilon_used) and account.state().epsilon_next == 0.0
        with pytest.raises(BudgetExhausted):
            account.reserve("three", gaussian(1e-9))
    account.settle(other, gaussian(0.01 * (1.0 + 1e-12)))  # equal except for rounding


@settings(max_examples=8)
@given(st.lists(st.floats(0.0, 0.1), min_size=1, max_size=6))
def test_a_ledger_never_counts_less_than_what_was_settled(costs: list[float]) -> None:
    with TemporaryDirectory() as folder:
        account = BudgetLedger.create(Path(folder) / "l", "patients", 8.0, DELTA)
        for cost in costs:
            name = account.reserve("one", gaussian(0.05))
            with suppress(PrivacyViolation):
                account.settle(name, gaussian(cost))
        assert account.state().used.gdp >= math.fsum(costs) * (1.0 - 1e-12)


def test_two_reservations_of_one_name_are_refused(account: BudgetLedger) -> None:
    account.reserve("one", gaussian(0.02), name="n")
    with pytest.raises(InputError, match="reservation n"):
        account.reserve("two", gaussian(0.01), name="n")
    assert account.state().used.gdp == pytest.approx(0.02)
    account.chain.append([{"kind": "reserve", "reservation": "n", "study": "two", "cost": {}, "time": "now"}])
    with pytest.raises(LedgerTampered, match="'reserve' too many for reservation n"):
        account.state()


def test_only_what_never_started_and_nobody_holds_is_given_back(account: BudgetLedger) -> None:
    begun, waiting, held = (account.reserve(name, gaussian(0.01), name=name) for name in ("begun", "waiting", "held"))
    account.start(begun)
    account.start(begun)  # as a resumed run does
    with ReservationLock(held):
        assert is_reservation_held(held) and not is_reservation_held(waiting)
        with pytest.raises(InputError, match="reservation held is being worked under by another process"):
            account.give_back(held)
    account.give_back(waiting)
    with pytest.raises(InputError, match=r"reservation begun .* has started"):
        account.give_back(begun)
    for again in (
        account.give_back,
        account.start,
        account.check_open,
        lambda name: account.settle(name, gaussian(0.0)),
    ):
        with pytest.raises(InputError, match=r"reservation waiting .* already given back"):
            again(waiting)
    assert [study.state for study in account.state().studies] == ["started", "given back", "reserved"]
    assert account.state().used.gdp == pytest.approx(0.02)


def test_copies_on_one_machine_are_one_account(account: BudgetLedger, tmp_path: Path) -> None:
    """Both can be read; after one is written to, the other is an old copy. They share one lock."""
    copy = BudgetLedger.open(Path(shutil.copy(account.path, tmp_path / "copy.ledger")))
    account.reserve("one", gaussian(0.02))
    for use in (lambda: copy.reserve("two", gaussian(0.02)), lambda: BudgetLedger.open(copy.path), copy.state):
        with pytest.raises(LedgerTampered, match="an old copy"):
            use()
    copies = [BudgetLedger.open(Path(shutil.copy(account.path, tmp_path / f"{i}.ledger"))) for i in range(2)]
    with ThreadPoolExecutor(2) as pool, account._locked():
        made = [pool.submit(one.reserve, "at once", gaussian(0.001)) for one in copies]
        assert not wait(made, timeout=0.3).done
    assert sorted(one.exception() is None for one in made) == [False, True]


def test_an_adoption_that_cannot_be_recorded_does_not_happen(account: BudgetLedger) -> None:
    head = state_folder() / "ledgers" / f"{account.identity}.json"
    head.unlink()
    whole = account.path.read_bytes()
    account.path.unlink()
    account.path.mkdir()  # not even root can write to it
    with pytest.raises((OSError, TaciturnError)):
        BudgetLedger.adopt(account.path)
    assert not head.exists()
    account.path.rmdir()
    account.path.write_bytes(whole + b'{"line": 2, "torn')  # as a crash leaves it
    adopted = BudgetLedger.adopt(account.path, lost_machine=True).state()
    assert len(adopted.adopted) == 1 and adopted.lost_machines == adopted.adopted


HOSTILE = b'{"kind": "taciturn data ledger", "id": "../../evil"}\n'


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[1]\n", b"", b"radius,texture\n", b'{"kind": 3}\n', HOSTILE])
def test_files_that_are_something_else(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    for opening in (BudgetLedger.open, BudgetLedger.adopt):
        with pytest.raises(CorruptFile, match="is not a budget ledger"):
            opening(tmp_path / "f")


def test_an_adoption_that_was_cut_short_is_finished(account: BudgetLedger, tmp_path: Path) -> None:
    """A power cut leaves the line without its head."""
    head = state_folder() / "ledgers" / f"{account.identity}.json"
    head.unlink()
    BudgetLedger.adopt(account.path, lost_machine=True)
    head.unlink()
    for mark in (state_folder() / "ledgers").glob(f"{account.identity}.*.adopted"):
        mark.unlink()
    BudgetLedger.adopt(account.path)
    assert len(BudgetLedger.open(account.path).state().adopted) == 1


def test_a_state_folder_on_another_system_is_another_machine(
    account: BudgetLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copied home folder has the same path and files, but another machine-id."""
    other = tmp_path / "machine-id"
    other.write_text("9" * 32 + "\n")
    monkeypatch.setattr(moves, "MACHINE_ID_FILES", (tmp_path / "none", other))
    for use in (lambda: BudgetLedger.open(account.path), lambda: account.reserve("one", gaussian(0.01))):
        with pytest.raises(InputError, match=r"machine [0-9a-f]{32}, and this is machine"):
            use()
    monkeypatch.undo()
    BudgetLedger.open(account.path).reserve("one", gaussian(0.01))


@pytest.mark.parametrize("change", [{"machine": "0" * 32}, {"machine": "../x"}, {"key": "1" * 64}, {"kind": "other"}])
def test_a_request_that_was_changed_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    asked = tmp_path / "new.request"
    asked.write_text(moves.TransferRequest.own().text)
    assert moves.read_request(asked) == moves.TransferRequest.own()
    asked.write_text(json.dumps(json.loads(asked.read_text()) | change))
    with pytest.raises(InputError, match="is not a request"):
        moves.read_request(asked)
