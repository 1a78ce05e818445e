"""The budget meter agrees with the accountants in every round."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from taciturn.dashboard.privacy_view import privacy_reply, read_meter
from taciturn.privacy.accountants import tightest
from taciturn.privacy.events import Event, Hidden, Noise
from taciturn.runs.folder import RunFolder
from taciturn.runs.ledger import RunLedger
from taciturn.runs.records import EventCount, PlanEntry

DELTA = 1e-6
NOISE = Noise("gaussian", 10.0, math.inf, 1.0)
HIDDEN = [Hidden(10.0, 1.0, 5, contraction) for contraction in (0.5, 0.7, 0.9)]


def plan(events: dict[Event, int], rounds: int) -> PlanEntry:
    counts = tuple(EventCount(event=event, count=count) for event, count in events.items())
    bound = tightest(events, DELTA)
    return PlanEntry(
        run=0,
        algorithm="dpgd",
        epsilon=1.0,
        total_epsilon=1.0,
        delta=DELTA,
        planned_epsilon=bound.epsilon,
        accountant=bound.accountant,
        rounds=rounds,
        events=counts,
    )


@pytest.mark.parametrize("t", [0, 1, 19, 20])
def test_the_meter_shows_the_cost_of_finished_rounds_and_of_the_next_one(t: int) -> None:
    """Three updates per round make three events per round."""
    planned = plan({NOISE: 60}, 20)
    reading = read_meter(planned, Counter({NOISE: 3 * t} if t else {}), 0, DELTA)
    now, then = (tightest({NOISE: 3 * n}, DELTA).epsilon for n in (t, t + 1))
    assert float(reading.spent) == pytest.approx(now, abs=2e-4)
    assert float(reading.left) == pytest.approx(planned.planned_epsilon - now, abs=2e-4)
    if t < 20:
        assert float(reading.next) == pytest.approx(then - now, rel=1e-3)
    else:
        assert (reading.next, reading.left, reading.share) == ("", "0", 1.0)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_rounds_that_wait_to_be_charged_count_as_if_they_were(rounds: int) -> None:
    """Also if the event differs from round to round."""
    for planned, event in (
        (plan({NOISE: 3}, 3), lambda i: NOISE),
        (plan(dict.fromkeys(HIDDEN, 1), 3), lambda i: HIDDEN[i]),
    ):
        charged: Counter[Event] = Counter(event(i) for i in range(rounds))
        assert read_meter(planned, Counter(), rounds, DELTA) == read_meter(planned, charged, 0, DELTA)
        assert read_meter(planned, charged, 5, DELTA).share == 1.0, "never more than the plan"


def test_the_meter_of_a_finished_run_equals_its_ledger(made: Path) -> None:
    for name, labels in (("budgets", ["additive, ε = 1", "additive, ε = 3"]), ("sweep/hardened", ["additive, ε = 2"])):
        ledger = RunFolder.open(made / name).read_ledger()
        found = privacy_reply(ledger, {})
        totals = ledger.totals
        assert [run.label for run in found.runs] == labels
        for run in found.runs:
            (everyone,) = run.agents
            assert everyone.names == ("north", "south", "west")
            spent = {r["spent_epsilon"] for r in totals["runs"] if f"{r['total_epsilon']:g}" == run.label[-1]}
            assert float(everyone.spent) == pytest.approx(spent.pop(), abs=2e-4)
            assert everyone.next == ""
        assert found.good == (name == "sweep/hardened")
    assert found.headline == "Every record is protected with total epsilon 2 at delta 1e-06."


def test_parties_that_released_more_have_a_bar_of_their_own(made: Path) -> None:
    ledger = RunFolder.open(made / "sweep" / "hardened").read_ledger()
    late = [e for e in ledger if not (e["kind"] == "release" and e["agent"] == "west" and e["first"] > 5)]
    (run,) = privacy_reply(RunLedger(tuple(late)), {0: 8}).runs
    assert [agent.names for agent in run.agents] == [("north", "south"), ("west",)]
    both, west = run.agents
    assert float(west.spent) < float(both.spent)
    assert west.next and not both.next


def test_the_paper_mode_has_no_meter_and_says_why(made: Path) -> None:
    found = privacy_reply(RunFolder.open(made / "paper").read_ledger(), {})
    assert found.headline.startswith("No end-to-end guarantee")
    assert found.reasons
    assert found.runs == []
