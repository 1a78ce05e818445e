"""The budget ledger's two sides: a record of one split either trains or is held out, and is charged for one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.errors import BudgetExhausted, PrivacyViolation
from taciturn.privacy.accountants.gdp import NO_SLACK, gdp_budget
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.budget_state import BudgetState
from taciturn.privacy.composition import ZERO_COST, StudyCost

DELTA = 1e-6
WHOLE = gdp_budget(2.0, NO_SLACK, DELTA)  # mu^2 of the whole budget


def gaussian(share: float) -> StudyCost:
    """Return the cost of continuous Gaussian releases that take a share of the budget."""
    return StudyCost(share * WHOLE, share * WHOLE / 2.0)


def ledger(folder: Path, adjacency: str = "add-remove") -> BudgetLedger:
    return BudgetLedger.create(folder / "patients.ledger", "patients", 2.0, DELTA, adjacency)


@pytest.fixture
def account(tmp_path: Path) -> BudgetLedger:
    return ledger(tmp_path)


def sides(state: BudgetState) -> tuple[float, float]:
    """What is used on both sides, as shares of the budget."""
    return round(state.used.gdp / WHOLE, 6), round(state.used_held_out.gdp / WHOLE, 6)


def test_studies_of_one_split_are_charged_apart(account: BudgetLedger) -> None:
    account.reserve("one", gaussian(0.5), held_out=gaussian(0.9), split="a")
    account.reserve("two", gaussian(0.4), held_out=gaussian(0.05), split="a")
    state = BudgetLedger.open(account.path).state()
    assert sides(state) == (0.9, 0.95) and state.split == "a"
    assert state.epsilon_used == pytest.approx(state.filter_for(ZERO_COST).epsilon(gaussian(0.95)), rel=1e-6)
    with pytest.raises(BudgetExhausted):
        account.reserve("held out", ZERO_COST, held_out=gaussian(0.06), split="a")
    account.reserve("training", gaussian(0.09), split="a")
    assert sides(account.state()) == (0.99, 0.95)


def test_a_record_that_trains_in_one_study_and_is_held_out_in_another_is_charged_in_full(account: BudgetLedger) -> None:
    """The counterexample to "the larger of the two": another key puts the same record on the other side."""
    account.reserve("one", gaussian(0.6), held_out=gaussian(0.2), split="a")
    with pytest.raises(BudgetExhausted):
        account.reserve("two", gaussian(0.2), held_out=gaussian(0.6), split="b")
    account.reserve("two", gaussian(0.1), held_out=gaussian(0.2), split="b")
    account.reserve("all of them train", gaussian(0.05))
    assert sides(account.state()) == (0.95, 0.55)
    assert [study.apart for study in account.state().studies] == [True, False, False]


def test_with_replace_one_nothing_is_charged_apart(tmp_path: Path) -> None:
    """A record that is replaced may have been a training record, and be held out afterwards."""
    account = ledger(tmp_path, "replace-one")
    account.reserve("one", gaussian(0.5), "replace-one", held_out=gaussian(0.2), split="a")
    assert sides(account.state()) == (0.7, 0.7) and account.state().split == ""
    with pytest.raises(BudgetExhausted):
        account.reserve("two", gaussian(0.2), "replace-one", held_out=gaussian(0.2), split="a")


def test_settling_gives_back_on_both_sides(account: BudgetLedger) -> None:
    apart = account.reserve("one", gaussian(0.5), held_out=gaussian(0.4), split="a")
    together = account.reserve("two", gaussian(0.1), held_out=gaussian(0.1), split="b")
    account.start(apart)
    account.settle(apart, gaussian(0.3), held_out=gaussian(0.1))
    account.settle(together, gaussian(0.05), held_out=gaussian(0.02))
    assert sides(account.state()) == (0.37, 0.17)


@pytest.mark.parametrize(("cost", "held_out"), [(0.51, 0.0), (0.0, 0.41)])
def test_more_than_was_reserved_on_either_side_is_a_violation(
    account: BudgetLedger, cost: float, held_out: float
) -> None:
    name = account.reserve("one", gaussian(0.5), held_out=gaussian(0.4), split="a")
    with pytest.raises(PrivacyViolation):
        account.settle(name, gaussian(cost), held_out=gaussian(held_out))
    assert sides(account.state()) == (max(0.5, cost), max(0.4, held_out))
    other = account.reserve("two", gaussian(0.1), held_out=gaussian(0.1), split="a")
    account.record_violation(other, gaussian(0.0), held_out=gaussian(0.2))
    assert sides(account.state()) == pytest.approx((max(0.5, cost) + 0.1, max(0.4, held_out) + 0.2))


def test_only_the_sum_of_both_sides_counts_where_they_are_not_apart(account: BudgetLedger) -> None:
    account.reserve("one", gaussian(0.1), split="a")
    name = account.reserve("two", gaussian(0.2), held_out=gaussian(0.2), split="b")
    account.settle(name, gaussian(0.3), held_out=gaussian(0.1))  # 0.4, as was reserved
    with pytest.raises(PrivacyViolation):
        third = account.reserve("three", gaussian(0.1), held_out=gaussian(0.1), split="b")
        account.settle(third, gaussian(0.15), held_out=gaussian(0.1))


def test_a_study_that_was_given_back_fixes_no_split(account: BudgetLedger) -> None:
    account.give_back(account.reserve("one", gaussian(0.5), held_out=gaussian(0.5), split="a"))
    account.reserve("two", gaussian(0.6), held_out=gaussian(0.6), split="b")
    assert sides(account.state()) == (0.6, 0.6) and account.state().split == "b"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "give back", "settle"]),
            st.sampled_from(["", "a", "b", "c"]),
            st.floats(0.0, 0.3),
            st.floats(0.0, 0.3),
        ),
        max_size=10,
    )
)
@settings(max_examples=30)
def test_no_record_is_charged_less_than_what_it_was_in(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, float, float]]
) -> None:
    """Whatever the splits: for every way in which a record may lie, its side has at least the sum of its studies."""
    account = ledger(tmp_path_factory.mktemp("ledger"))
    alive: dict[str, tuple[str, float, float]] = {}
    opened: list[str] = []
    for what, split, cost, held_out in steps:
        if what == "reserve":
            given_held_out = held_out if split else 0.0
            try:
                name = account.reserve("study", gaussian(cost), held_out=gaussian(given_held_out), split=split)
            except BudgetExhausted:
                continue
            alive[name] = (split, cost, given_held_out)
            opened.append(name)
        elif opened:
            name = opened.pop(0)
            if what == "give back":
                account.give_back(name)
                del alive[name]
            else:
                of_study, own, other = alive[name]
                alive[name] = (of_study, own / 2.0, other / 2.0)
                account.settle(name, gaussian(own / 2.0), held_out=gaussian(other / 2.0))
    state = account.state()
    for held_out_in in ((), ("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "b", "c")):
        spent = sum(other if split in held_out_in else own for split, own, other in alive.values())
        charged = state.used_held_out if state.split in held_out_in else state.used
        assert spent <= charged.gdp / WHOLE + 1e-9
    assert state.epsilon_used <= 2.0 + 1e-9
