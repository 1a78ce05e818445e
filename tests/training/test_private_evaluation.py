"""Private evaluations of a run: charged to held-out records, once, whatever interrupts the run."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taciturn
from taciturn import api
from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.errors import Interrupted, PrivacyViolation
from taciturn.objectives.losses import Softmax
from taciturn.objectives.private_measures import MeasureLayout
from taciturn.planning.evaluation_plan import evaluation_rounds
from taciturn.planning.plan import load_data, plan_study
from taciturn.privacy.accountants import tightest
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.events import NON_PRIVATE, BatchEvent
from taciturn.privacy.noise import SeededNoise
from taciturn.runs.folder import RunFolder
from taciturn.runs.private_quality import PrivateClassification
from taciturn.runs.records import EvaluationRow
from taciturn.settings import resolve
from taciturn.training.private_evaluation import EvaluationSchedule, check_measured, evaluation_plans, measure_held_out
from tests.cli.helpers import EXAMPLE
from tests.data.helpers import write
from tests.training.test_one_record import HEADER, ROWS, SCHEMA

loop: Any = importlib.import_module("taciturn.training.loop")
CLINICS: dict[str, Any] = {
    "data": str(EXAMPLE / "records.csv"), "schema": str(EXAMPLE / "schema.toml"), "total_records": 600, "agents": 3,
    "algorithm": "dpgd", "features": "none", "rounds": 9, "test_share": 0.4, "partition_key": 0, "evaluations": 3,
    "total_epsilon": 4.0, "noise": "seeded",
}  # fmt: skip
SUMMED = {"trust": "secure-sum", "noise": "hardened", "colluders": 1}
AGENTS = ["north", "south", "west"]


@pytest.fixture(autouse=True)
def no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "write_report", lambda folder: None)


def train(out: Path, **changes: Any) -> RunFolder:
    return taciturn.run(**(CLINICS | changes), out=str(out)).folder


def held_out_charges(folder: RunFolder) -> Counter[str]:
    return Counter({agent: events.total() for agent, events in folder.read_ledger().held_out_events[0].items()})


@pytest.mark.parametrize(
    "changes", [{}, {"noise": "hardened"}, SUMMED, {"trust": "server"}, {"algorithm": "additive", "features": "bins"}]
)
def test_a_run_is_evaluated_as_planned_and_costs_the_larger_of_the_two(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = train(tmp_path / "r", **changes)
    rows, ledger = folder.read_evaluations(), folder.read_ledger()
    assert [(row.round, row.agents) for row in rows] == [(3, 3), (6, 3), (9, 3)]
    last = folder.read_summary().runs[0].private_quality
    assert last == rows[-1].quality and isinstance(last, PrivateClassification)
    assert abs(last.records.value - 233) < 5.0 * last.records.noise  # that many of 569 records are held out
    assert held_out_charges(folder) == dict.fromkeys(AGENTS, 3)
    plan = ledger.plans[0]
    assert plan.held_out is not None and plan.evaluations == 3
    assert {one.event: one.count for one in plan.held_out} == ledger.held_out_events[0]["north"]
    sides = [tightest(events[0]["north"], ledger.study.delta) for events in (ledger.events, ledger.held_out_events)]
    assert ledger.totals.total_epsilon == max(side.epsilon for side in sides) <= 4.0
    assert ledger.totals.all_runs_epsilon == ledger.totals.total_epsilon


def test_with_replace_one_training_and_evaluations_are_composed(tmp_path: Path) -> None:
    ledger = train(tmp_path / "r", adjacency="replace-one").read_ledger()
    both = ledger.events[0]["north"] + ledger.held_out_events[0]["north"]
    assert ledger.totals.total_epsilon == tightest(both, ledger.study.delta).epsilon <= 4.0
    assert ledger.totals.all_runs_epsilon == ledger.totals.total_epsilon


def test_runs_of_a_batch_have_evaluations_of_their_own(tmp_path: Path) -> None:
    folder = train(tmp_path / "r", seeds=2, total_epsilon="4,inf", evaluations=1)
    rows = {row.run: row.quality for row in folder.read_evaluations()}
    assert len({quality.records.value for quality in rows.values() if quality}) == 3  # two with noise, two without
    noiseless = rows[3]
    assert isinstance(noiseless, PrivateClassification) and noiseless.error is not None
    own = folder.read_summary().runs[3].test_error
    assert noiseless.error.value == own and noiseless.records.value == 233 and noiseless.error.noise == 0.0


def test_evaluations_change_neither_the_model_nor_what_it_costs(tmp_path: Path) -> None:
    first, second = train(tmp_path / "a"), train(tmp_path / "b", evaluations=0)
    assert first.read_model()["w"].tobytes() == second.read_model()["w"].tobytes()
    assert first.read_ledger().events == second.read_ledger().events and not second.evaluations.exists()


def lines(folder: RunFolder) -> list[bytes]:
    return [folder.evaluations.read_bytes(), folder.metrics.read_bytes(), folder.ledger.read_bytes()]


def test_a_stopped_run_has_the_same_evaluations(tmp_path: Path) -> None:
    """Stopped after every round, and continued: the files are those of a run without a stop, but for the sessions."""
    whole = train(tmp_path / "a")
    with pytest.raises(Interrupted):
        taciturn.run(**CLINICS, out=str(tmp_path / "b"), stop=lambda: True)
    for _ in range(7):
        with pytest.raises(Interrupted):
            taciturn.resume(tmp_path / "b", stop=lambda: True)
    taciturn.resume(tmp_path / "b")
    assert RunFolder(tmp_path / "b").evaluations.read_bytes() == whole.evaluations.read_bytes()
    assert held_out_charges(RunFolder(tmp_path / "b")) == held_out_charges(whole)


class Killed(BaseException):
    """The process dies."""


@pytest.mark.parametrize("changes", [{"noise": "hardened"}, SUMMED])
@pytest.mark.parametrize("dies_in", ["add_evaluations", "_write_rows", "write_ledger", "checkpoint"])
def test_a_crash_shows_nothing_twice_and_charges_nothing_that_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str, changes: dict[str, Any]
) -> None:
    """Fresh noise: the process dies before or after a file is written, and the run is continued from what is there."""
    place: Any = {"add_evaluations": RunFolder, "_write_rows": loop}.get(dies_in, loop.Recorder)
    real, rows_of = getattr(place, dies_in), loop.evaluation_rows

    for after in (False, True):
        folder, evaluated = RunFolder(tmp_path / f"{after}"), [0]

        def evaluating(*given: Any, evaluated: list[int] = evaluated) -> Any:
            evaluated[0] += 1
            return rows_of(*given)

        def dying(*given: Any, after: bool = after, evaluated: list[int] = evaluated) -> None:
            if evaluated[0] == 2 and after:
                real(*given)
            if evaluated[0] == 2:
                raise Killed
            real(*given)

        with monkeypatch.context() as patch:
            patch.setattr(loop.Recorder, "schedule", lambda recorder, cost=0.0: None)  # every round is written
            patch.setattr(loop, "evaluation_rows", evaluating)
            patch.setattr(place, dies_in, dying)
            with pytest.raises(Killed):
                train(folder.path, **changes)
        taciturn.resume(folder.path)
        assert [row.round for row in folder.read_evaluations()] == [3, 6, 9]
        assert held_out_charges(folder) == dict.fromkeys(AGENTS, 3)


@given(st.integers(1, 30), st.data())
def test_no_more_is_spent_than_was_reserved_and_the_last_model_is_evaluated(rounds: int, data: st.DataObject) -> None:
    """Whatever a crash has spent: one evaluation is kept for the last round, even if it comes earlier than planned."""
    count, paid = data.draw(st.integers(1, rounds)), data.draw(st.integers(0, rounds))
    planned = evaluation_rounds(rounds, count)
    used, end = data.draw(st.integers(0, paid)), data.draw(st.integers(1, rounds))
    schedule = EvaluationSchedule(planned, paid, used)
    made = []
    for t in range(1, end + 1):
        if schedule.is_due(t, last=t == end):
            schedule.used += 1
            made.append(t)
    assert len(made) <= paid - used and (end in made) == (paid > used)
    assert set(made) <= {*planned, end}


def test_what_is_released_must_be_what_is_planned() -> None:
    study = load_data(plan_study(resolve(CLINICS)))
    part = study.parts[0]
    assert part.measure is not None
    shards = dict(enumerate(study.dataset.held_out_shards))
    found = measure_held_out(part.measure, np.zeros((11, 1, 2)), shards, lambda p: SeededNoise((1,), p, 1))
    plans = evaluation_plans(part)
    check_measured(plans, found.events)
    event = part.measure.event
    for events in (
        {(0, event): 2},
        {(0, event): 1, (0, BatchEvent(event.runs, held_out=True)): 1},
        {(0, BatchEvent(event.runs)): 1},  # charged to the wrong records
        {(0, BatchEvent((NON_PRIVATE,), held_out=True)): 1},
    ):
        with pytest.raises(PrivacyViolation):
            check_measured(plans, events)


def test_noise_of_evaluations_is_that_of_no_round_and_of_no_other_agent() -> None:
    """The same numbers twice would show the difference of two sums without noise."""
    layout = MeasureLayout(2, probabilities=True)
    event = plan_study(resolve(CLINICS)).parts[0].plans[0].evaluation
    assert event is not None
    release = MeasureRelease(layout, Softmax(), (event.event,), (20,), 1.0)
    empty = load_data(plan_study(resolve(CLINICS))).dataset.train[0].rows(slice(0))
    draws = [
        release(np.zeros((empty.x.shape[1], 1, 2)), empty, SeededNoise((1,), p, t)).integers.tobytes()
        for p in range(3)
        for t in range(1, 4)
    ]
    assert len(set(draws)) == 9
    gradients = SeededNoise((1,), 0, 1).integers(0, "discrete-gaussian", np.array([1e6]), np.zeros((layout.size, 1, 1)))
    measures = SeededNoise((1,), 0, 1).integers(
        1 << 32, "discrete-gaussian", np.array([1e6]), np.zeros((layout.size, 1, 1))
    )
    assert not (gradients == measures).any()


@pytest.mark.parametrize("rows", [[], ROWS[:1], ROWS, 3 * ROWS])
def test_no_number_of_records_stops_a_run(tmp_path: Path, rows: list[str]) -> None:
    schema = write(tmp_path / "schema.toml", SCHEMA)
    table = write(tmp_path / "t.csv", "\n".join([HEADER, *rows]) + "\n")
    given_ = {"data": str(table), "schema": str(schema), "records_max": 15, "rounds": 2, "evaluations": 2, "agents": 2}
    folder = train(tmp_path / "r", **given_, total_records=30, noise="hardened")
    assert [row.round for row in folder.read_evaluations()] == [1, 2]
    assert all(isinstance(row, EvaluationRow) and row.quality is not None for row in folder.read_evaluations())


def test_the_budget_ledger_charges_the_two_sides_of_one_split(tmp_path: Path) -> None:
    """Two runs with one key spend on both sides; the same with another key is refused, because it would not fit."""
    account = BudgetLedger.create(tmp_path / "l.ledger", "clinics", 4.0, 1e-6)
    given_ = {"noise": "hardened", "ledger": str(account.path), "evaluation_epsilon": 1.0, "total_epsilon": 2.0}
    for number in range(2):
        train(tmp_path / str(number), **given_)
    state = account.state()
    assert [study.apart for study in state.studies] == [True, True]
    assert state.used_held_out.gdp < state.used.gdp and state.studies[0].held_out.gdp > 0.0
    assert 2.0 < state.epsilon_used < 4.0
    train(tmp_path / "other", **given_ | {"partition_key": 1, "total_epsilon": 1.0})
    other = account.state().studies[-1]
    assert not other.apart and other.cost == other.held_out
