"""Plans of private evaluations: what they may spend, what that means for a count, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.errors import InputError
from taciturn.planning.evaluation_plan import EvaluationPlan, evaluation_rounds
from taciturn.planning.noise_plan import RunPlan
from taciturn.planning.plan import StudyPlan, plan_study, study_split
from taciturn.privacy.accountants import tightest
from taciturn.privacy.calibration import calibrate
from taciturn.privacy.events import Discrete
from taciturn.secure_sum.parameters import WIDTHS
from taciturn.settings import resolve

RESERVES = {1: 1, 4: 1, 5: 1, 6: 2}  # evaluations -> how many more a secure sum pays for

TABLE: dict[str, Any] = {
    "data": "tests/data/clinics/records.csv", "schema": "tests/data/clinics/schema.toml", "total_records": 50_000,
    "agents": 3, "noise": "seeded", "features": "none", "algorithm": "dpgd", "rounds": 6, "test_share": 0.2,
    "partition_key": 0, "evaluations": 1,
}  # fmt: skip


def study(**changes: Any) -> StudyPlan:
    return plan_study(resolve(TABLE | changes))


def plans(**changes: Any) -> tuple[RunPlan, EvaluationPlan]:
    run = study(**changes).parts[0].plans[0]
    assert run.evaluation is not None
    return run, run.evaluation


@given(st.integers(1, 500), st.data())
def test_evaluations_are_spread_evenly_and_the_last_is_at_the_end(rounds: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, rounds))
    found = evaluation_rounds(rounds, count)
    gaps = {after - before for before, after in zip((0, *found), found, strict=False)}
    assert len(found) == count and found[-1] == rounds and max(gaps) - min(gaps) <= 1 and min(gaps) >= 1


def test_the_noise_of_one_count_and_what_the_other_measures_cost() -> None:
    """At epsilon 1 and delta 1e-6 a plain count has noise of 4.2 records: 0.042 points of 10,000."""
    count = calibrate(lambda scale: {Discrete(scale, 1.0, 2**20 * scale, 1): 1}, 1.0, 1e-6)
    assert 100.0 * count / 10_000 == pytest.approx(0.042, abs=0.0005)
    part = study().parts[0]
    assert part.measure is not None and part.plans[0].evaluation is not None
    assert part.plans[0].evaluation.event.scale == pytest.approx(math.sqrt(3.0) * count, rel=1e-4)  # type: ignore[union-attr]
    assert part.measure.deviation(0, 3) == pytest.approx(3.0 * count, rel=1e-4)  # three agents' own noise, each sqrt(3)
    summed = study(trust="secure-sum", noise="hardened", colluders=1).parts[0].measure
    assert summed is not None and summed.deviation(0, 3) == pytest.approx(math.sqrt(3 * 1.5) * count, rel=1e-4)


@pytest.mark.parametrize("evaluations", [1, 4, 5, 6])
@pytest.mark.parametrize("changes", [{}, {"trust": "secure-sum", "noise": "hardened", "reserve": 3}])
def test_all_that_is_paid_keeps_the_budget(changes: dict[str, Any], evaluations: int) -> None:
    run, plan = plans(evaluations=evaluations, evaluation_epsilon=0.5, **changes)
    assert plan.bound.epsilon <= 0.5 and plan.bound.epsilon > 0.49
    assert plan.charges == evaluations + (RESERVES[evaluations] if "reserve" in changes else 0)
    assert plan.events == {plan.event: plan.charges}
    assert run.bound == tightest(run.events, run.delta)  # the larger of the two
    assert (plan.width in WIDTHS) == ("trust" in changes)


def test_with_add_remove_the_cost_is_the_larger_and_training_is_as_without() -> None:
    run, plan = plans()
    alone = study(evaluations=0).parts[0].plans[0]
    assert (run.events, run.multiplier) == (alone.events, alone.multiplier)
    assert plan.epsilon == run.total_epsilon and max(run.bound, plan.bound) == run.bound
    assert run.bound.epsilon <= 1.0 < tightest(run.events + plan.events, run.delta).epsilon


def test_with_replace_one_both_together_keep_the_total() -> None:
    run, plan = plans(adjacency="replace-one")
    assert plan.epsilon == 0.25 and plan.bound.epsilon == pytest.approx(0.25, abs=1e-4)
    assert run.bound == tightest(run.events + plan.events, run.delta)
    assert 0.9999 < run.bound.epsilon <= 1.0
    alone = study(evaluations=0, adjacency="replace-one").parts[0].plans[0]
    assert 1.02 < run.multiplier / alone.multiplier < 1.06


def test_a_unit_of_several_records_is_charged_as_one(tmp_path: Path) -> None:
    text = Path(TABLE["schema"]).read_text()
    (tmp_path / "units.toml").write_text(text + '\n[unit]\ncolumn = "who"\nmax_records = 3\n')
    one, three = plans()[1].event, plans(schema=str(tmp_path / "units.toml"))[1].event
    assert isinstance(one, Discrete) and isinstance(three, Discrete)
    assert three.l2 == 3.0 * one.l2 and three.scale == pytest.approx(3.0 * one.scale, rel=1e-5)


@pytest.mark.parametrize("trust", [{}, {"trust": "secure-sum", "noise": "hardened"}])
def test_a_unit_that_is_replaced_is_charged_on_both_sides(tmp_path: Path, trust: dict[str, Any]) -> None:
    text = Path(TABLE["schema"]).read_text()
    (tmp_path / "units.toml").write_text(text + '\n[unit]\ncolumn = "who"\nmax_records = 3\n')
    for most, schema in ((1, TABLE["schema"]), (3, str(tmp_path / "units.toml"))):
        for adjacency, sides in (("add-remove", 1), ("replace-one", 2)):
            event = plans(adjacency=adjacency, schema=schema, **trust)[1].event
            assert isinstance(event, Discrete)
            assert event.l2 == pytest.approx(math.sqrt(sides) * most * math.sqrt(3.0), rel=1e-12)


def test_a_run_whose_training_is_cheap_costs_what_its_evaluations_do() -> None:
    """A record that is held out never trains, so what training costs says nothing about it."""
    run, plan = plans(noise_multiplier=500.0)
    trained = tightest(run.events, run.delta)
    assert trained.epsilon < 0.1 and 0.99 < plan.bound.epsilon <= 1.0
    assert run.bound == plan.bound


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test_share": 0.0}, "no records are held out: give --test-share"),
        ({"test_share": 0.0, "test": "public.csv"}, "test is public.csv, so no records are held out"),
        ({"evaluations": 0, "evaluation_epsilon": 1.0}, "evaluations is 0"),
        ({"evaluations": 7}, "dpgd has 6 rounds"),
        ({"evaluation_epsilon": 1.5}, "must be at most total-epsilon, 1"),
        ({"evaluation_epsilon": 1.0, "adjacency": "replace-one"}, "must be below total-epsilon, 1"),
        ({"evaluation_epsilon": "inf"}, "must be at most total-epsilon, 1"),
        ({"algorithm": "erm-outp"}, "erm-outp gives all records to one curator"),
        ({"mode": "paper", "algorithm": "objp", "total_records": "auto"}, "--evaluations has no effect in --mode"),
        ({"evaluation_epsilon": 1e-9, "delta": 1e-9}, "bits for fractions"),
        ({"total_epsilon": 1e13, "trust": "secure-sum", "noise": "hardened"}, "of an evaluation is .* it needs 4"),
        (
            {"total_epsilon": 1e17, "evaluation_epsilon": 1.0, "trust": "secure-sum", "noise": "hardened"},
            "share of the noise has a standard deviation of .* a secure sum needs 4",
        ),
        (
            {"total_epsilon": 1e-5, "evaluations": 0, "trust": "secure-sum", "noise": "hardened"},
            "leave 13 bits for a residual's fraction in a secure sum of 48 bits, and it needs 14",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        study(**changes)


def test_a_split_is_the_same_only_if_every_record_is_on_the_same_side(tmp_path: Path) -> None:
    """Everything that the draw of a record depends on is in the name of the split, and nothing else."""

    def split(key: int | None = None, **changes: Any) -> str:
        return study_split(resolve(TABLE | changes), key)

    text = Path(TABLE["schema"]).read_text()
    (tmp_path / "wider.toml").write_text(text.replace("[0.0, 30.0]", "[0.0, 31.0]"))
    (tmp_path / "units.toml").write_text(text + '\n[unit]\ncolumn = "who"\nmax_records = 3\n')
    (tmp_path / "rows.toml").write_text(text + '\n[unit]\ncolumn = "who"\nmax_records = 2\n')
    same = [split(), split(rounds=9, total_epsilon=2.0, evaluations=0), split(loss="hinge"), split(agents=3)]
    assert len(set(same)) == 1 and same[0]
    units, rows = split(schema=str(tmp_path / "units.toml")), split(schema=str(tmp_path / "rows.toml"))
    assert units == rows  # the draw depends on the unit's name alone
    others = [split(partition_key=1), split(test_share=0.3), units, split(7, partition_key="auto")]
    others.append(split(schema=str(tmp_path / "wider.toml")))
    assert len({same[0], *others}) == 1 + len(others)
    assert split(test_share=0.0, evaluations=0) == ""
