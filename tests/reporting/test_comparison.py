"""Algorithms and runs next to each other, from summaries of known values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.algorithms import ALGORITHMS
from taciturn.core.storage import to_json
from taciturn.errors import InputError
from taciturn.reporting.figures.style import save
from taciturn.reporting.figures.summary_figures import MARKS, kind, ranking_figure
from taciturn.reporting.ranking import HEADINGS, Ranked, cells, promises, ranking, seeds_range
from taciturn.reporting.side_by_side import differences, errors_side_by_side, folder_names, other_test_records
from taciturn.reporting.tables import markdown_table
from taciturn.runs.folder import RunFolder
from taciturn.runs.ledger import RunLedger
from taciturn.runs.quality import RegressionQuality
from taciturn.runs.records import (
    AgentTotals,
    DataDescription,
    PrivacyTotals,
    RunResult,
    RunSummary,
    RunTotals,
    StartRecord,
    StudyHeader,
    TargetDescription,
)
from taciturn.training.setup import _method_facts, _source_facts

T_TWO = 4.302652729911275  # the 97.5 % quantile of Student's t with two degrees of freedom
Errors = Mapping[tuple[str, float], Sequence[float | None]]


def made(
    path: Path, errors: Errors, mode: str = "certified", own: bool = False, numbers: bool = False, **config: Any
) -> RunFolder:
    """A finished run whose seeds 1, 2, ... had these errors, and spent 0.5, 0.6, ... of their epsilon."""
    path.mkdir(parents=True)
    quality = RegressionQuality(records=1, rmse=0.0, r2=None) if numbers else None
    figures: dict[str, Any] = dict.fromkeys(("train_objective", "consensus_residual", "seconds"))
    figures |= dict.fromkeys(("noise", "rho", "eta"), 0.0) | {"bytes_up": 1500, "bytes_down": 0, "rounds": 7}
    runs = [
        RunResult(
            algorithm=name, epsilon=epsilon, seed=seed, test_error=error, private_test=own, quality=quality, **figures
        )
        for (name, epsilon), found in errors.items()
        for seed, error in enumerate(found, 1)
    ]
    target = TargetDescription(low=0.0, high=1.0) if numbers else TargetDescription(names=("a", "b"))
    data = DataDescription(name="t", agents={"a": 1}, records=1, test_records=1, features=1, target=target)
    summary = RunSummary(taciturn="0", mode=mode, privacy=_totals(runs, mode), data=data, runs=tuple(runs))
    known = [name for name, _ in errors if name in ALGORITHMS]
    header = StudyHeader(
        taciturn="0",
        mode=mode,
        noise="seeded",
        delta=1e-6,
        methods={name: _method_facts(ALGORITHMS[name]) for name in known},
        source=_source_facts(config.get("data", "t.csv"), ""),
    )
    folder = RunFolder(path)
    folder.summary.write_text(to_json(summary))
    folder.start.write_text(to_json(StartRecord(config="", data=data)))
    folder.ledger.write_text(to_json(header) + "\n")
    folder.config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
    return RunFolder.open(path)


def _totals(runs: Sequence[RunResult], mode: str) -> PrivacyTotals:
    totals = []
    for i, run in enumerate(runs):
        spent = math.inf if mode == "paper" else run.epsilon * (0.4 + 0.1 * (run.seed or 0))
        pure = spent if run.algorithm == "objp" else None
        agent = AgentTotals(agent="a", epsilon=spent, left=0.0, pure_epsilon=pure, by_delta={})
        totals.append(
            RunTotals(
                run=i,
                algorithm=run.algorithm,
                total_epsilon=run.epsilon,
                planned_epsilon=run.epsilon,
                spent_epsilon=spent,
                accountant="gdp",
                agents=(agent,),
            )
        )
    header = StudyHeader(taciturn="0", mode=mode, noise="seeded", delta=1e-6)
    return replace(RunLedger((header,)).totals, runs=tuple(totals))


def test_means_intervals_and_order_match_a_calculation_by_hand(tmp_path: Path) -> None:
    errors: Errors = {
        ("outp", 1.0): (0.10, 0.12, 0.14),
        ("objp", math.inf): (0.09, 0.09, 0.09),
        ("objpm", 1.0): (0.07,),
        ("dpsgd", math.inf): (0.10, 0.11, 0.12),
        ("iadmm", math.inf): (None,),
    }
    rows = ranking([made(tmp_path / "a", errors)])
    assert [row.algorithm for row in rows] == ["objpm", "objp", "dpsgd", "outp", "iadmm"]
    outp = rows[3].error
    assert outp is not None and outp.low is not None and outp.high is not None
    half = T_TWO * 0.02 / math.sqrt(3)
    assert (outp.mean, outp.low, outp.high, outp.n) == pytest.approx((0.12, 0.12 - half, 0.12 + half, 3))
    words = [cells(row, regression=False)[2] for row in rows]
    sampled = f"11.00 ± {100 * half / 2:.2f} %"  # what is sampled differs between seeds without noise, too
    assert words == ["7.00 %", "9.00 %", sampled, f"12.00 ± {100 * half:.2f} %", "no test set"]
    assert seeds_range(rows) == "3" and seeds_range(rows[:2]) == ""
    assert cells(rows[3], regression=True)[2] == f"0.12 ± {half:.3g} RMSE"


def test_the_privacy_columns_come_from_the_ledger(tmp_path: Path) -> None:
    errors: Errors = {
        ("objp", 2.0): (0.1, 0.1), ("outp", 2.0): (0.2, 0.2), ("erm-outp", 2.0): (0.3,), ("mine", 2.0): (0.4,),
        ("objp", math.inf): (0.5,), ("iadmm", math.inf): (0.6,),
    }  # fmt: skip
    rows = ranking([made(tmp_path / "a", errors)])
    table = [dict(zip(HEADINGS, cells(row, regression=False), strict=True)) for row in rows]
    assert [row["total ε"] for row in table] == ["1.2", "1.2", "1", "1", "infinite", "infinite"]  # of the costlier seed
    assert [row["δ"] for row in table] == ["0", "1e-06", "1e-06", "1e-06", "–", "–"]
    assert [row["method"] for row in table] == ["objp", "outp", "erm-outp (central)", "mine", "objp", "iadmm"]
    assert {row["sent up"] for row in table} == {"1.5 kB"} and {row["rounds"] for row in table} == {"7"}
    assert dict(promises(rows)) == {
        **{name: ALGORITHMS[name].promise for name in ("objp", "outp", "erm-outp", "iadmm")}, "mine": "not recorded",
    }  # fmt: skip
    assert [row.to_json()["central"] for row in rows] == [False, False, True, False, False, False]
    nominal = ranking([made(tmp_path / "p", {("objp", 2.0): (0.1,)}, mode="paper")])[0]
    assert nominal.promise.startswith("none in total")
    private, central, paper, silent = MARKS
    assert [kind(row) for row in (*rows, nominal)] == [private, private, central, private, silent, silent, paper]


def test_runs_are_told_apart_where_they_have_the_same(tmp_path: Path) -> None:
    a = made(tmp_path / "x" / "a", {("objp", 1.0): (0.3,), ("outp", 1.0): (0.2,)}, rounds=5, name="same")
    b = made(tmp_path / "b", {("objp", 1.0): (0.1,)}, rounds=5, name="same")
    c = made(
        tmp_path / "y" / "a", {("objp", 1.0): (0.4,), ("objpm", 1.0): (0.2, None)}, rounds=6, name="same", clip=0.5
    )
    assert [row.label for row in ranking([a, b])] == ["b: objp, ε = 1", "outp, ε = 1", "a: objp, ε = 1"]
    assert [row.method for row in ranking([b])] == ["objp"]
    assert folder_names([a, b]) == ["a", "b"]
    assert folder_names([a, c]) == [str(a.path), str(c.path)]
    assert differences([a, b]) == {}
    assert differences([a, c, b]) == {"rounds": [5, 6, 5], "clip": [None, 0.5, None]}
    assert errors_side_by_side([a, b, c]) == {
        "objp, ε = 1": [0.3, 0.1, 0.4], "outp, ε = 1": [0.2, None, None], "objpm, ε = 1": [None, None, None],
    }  # fmt: skip
    with pytest.raises(InputError, match="cannot be compared"):
        ranking([a, made(tmp_path / "n", {("objp", 1.0): (3.0,)}, numbers=True)])


TABLE: dict[str, Any] = {"data": "t.csv", "test_share": 0.2, "test": "", "partition_key": 3}


@pytest.mark.parametrize(
    ("one", "other", "reasons"),
    [
        (TABLE, TABLE | {"rounds": 7, "data": "./t.csv"}, []),
        (TABLE | {"partition_key": 0}, TABLE | {"partition_key": "auto"}, []),
        (TABLE, TABLE | {"partition_key": 4}, ["partition-key"]),
        (TABLE, TABLE | {"test_share": 0.3, "data": "u.csv"}, ["data", "test-share"]),
        (TABLE | {"test": "v.csv"}, TABLE | {"test": "v.csv", "data": "u.csv", "partition_key": 4}, []),
        (TABLE | {"test": "v.csv"}, TABLE | {"test": "w.csv"}, ["test"]),
        ({"data": "mnist14", "partition_key": 1}, {"data": "mnist14", "partition_key": 2}, []),
        ({"data": "mnist14"}, {"data": "mnist"}, ["data"]),
        ({"data": "femnist", "partition_key": 1}, {"data": "femnist", "partition_key": 2}, ["partition-key"]),
    ],
)
def test_what_decides_about_test_records(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], reasons: list[str]
) -> None:
    folders = [made(tmp_path / str(i), {("objp", 1.0): (0.3,)}, **config) for i, config in enumerate((one, other))]
    assert other_test_records(folders) == reasons
    assert ("partition_key" in differences(folders)) == (
        one.get("partition_key") not in {other.get("partition_key"), 0}
    )
    untested = made(tmp_path / "untested", {("objp", 1.0): (None,)}, **TABLE, rounds=2)
    assert other_test_records([folders[0], untested]) == []


def test_other_schemas_hold_out_other_records(tmp_path: Path) -> None:
    a, b, c = (made(tmp_path / name, {("objp", 1.0): (0.3,)}, **TABLE) for name in "abc")
    column = '[columns.age]\nkind = "numeric"\nbounds = [0, {}]\n'
    for folder, most in ((a, 100), (b, 100), (c, 120)):
        folder.schema.write_text(f"# of {folder.path.name}\n" + column.format(most))
    assert other_test_records([a, b]) == []
    assert other_test_records([a, b, c]) == ["schema"]


def test_the_picture_has_a_row_for_each_algorithm_and_budget(tmp_path: Path) -> None:
    names = [f"method-{i}" for i in range(12)]
    errors: Errors = {(name, 1.0): (0.1 + 0.01 * i, 0.13 + 0.01 * i) for i, name in enumerate(names)}
    more: Errors = {("erm-objp", 1.0): (0.05, 0.06), ("objp", math.inf): (0.04,), ("objp", 1.0): (None,)}
    rows = ranking([made(tmp_path / "a", {**errors, **more})])
    drawn = ranking_figure(rows, regression=False)
    (axes,) = drawn.axes
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert labels == ["objp, no noise", "erm-objp, ε = 1 (central)", *(f"{name}, ε = 1" for name in names)]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the best on top
    assert [text.get_text() for text in axes.texts] == [cells(row, regression=False)[2] for row in rows[:-1]]
    means = [line for line in axes.lines if str(line.get_label()) in MARKS]
    assert [float(np.asarray(line.get_xdata())[0]) for line in means] == pytest.approx(
        [100 * _mean(row) for row in rows[:-1]]
    )
    assert [means[i].get_markerfacecolor() == "white" for i in range(3)] == [True, True, False]
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [
        name for name in MARKS if not name.startswith("nominal")
    ]
    assert "owner" not in drawn.get_supxlabel()
    low, high = axes.get_xlim()
    assert 0.0 <= low < high <= 100.0
    save(drawn, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def _mean(row: Ranked) -> float:
    assert row.error is not None
    return row.error.mean


def test_private_errors_say_whose_they_are(tmp_path: Path) -> None:
    own, public = (made(tmp_path / f"{own}", {("objp", 1.0): (0.1, 0.2)}, own=own) for own in (True, False))
    assert [row.own for row in ranking([own, public])] == [True, False]
    words = ranking_figure(ranking([own, public]), regression=False).get_supxlabel()
    assert "for the owner of the records only" in words
    gone = ranking([made(tmp_path / "gone", {("objp", 1.0): (None, None)}, own=True)])
    assert not gone[0].own and cells(gone[0], regression=False)[2] == "not public"
    with pytest.raises(InputError, match="nothing to draw"):
        ranking_figure(gone, regression=False)


def test_a_markdown_table_keeps_its_columns() -> None:
    found = markdown_table(("a", "b"), [("x|y", "1")], left=("a",))
    assert found == "| a | b |\n| --- | ---: |\n| x\\|y | 1 |"
