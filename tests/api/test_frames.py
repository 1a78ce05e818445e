"""A data frame is the same table as its file: same records, same model, same budget, and no copy of it anywhere."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taciturn
from taciturn.data import DataOptions, fingerprint, load, parse_schema
from taciturn.data.encoding import Tally, scale_columns
from taciturn.data.frames import TRAINING, needed_columns, open_frames, read_frame
from taciturn.data.memory_names import hold
from taciturn.errors import InputError, Interrupted, LedgerWarning
from taciturn.privacy.budget import BudgetLedger
from taciturn.reporting.side_by_side import other_test_records
from taciturn.runs.folder import RunFolder
from taciturn.training.record_ties import table_digest
from tests.cli.helpers import taciturn as command
from tests.cli.helpers import taciturn_json

from .helpers import CERTIFIED, MARK, SCHEMA, folder_texts, patients, schema_file

KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow-backed": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "categorical": lambda frame: frame.astype({"sex": "category", "ill": "category"}),
    "objects": lambda frame: frame.astype(object),
}
TEXTS = st.one_of(
    st.none(),
    st.sampled_from(["f", "m", " f", "NA", "", "1.5", "true"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=4),
)
NUMBERS = st.one_of(st.floats(), st.sampled_from([0.1, 1e-300, 100.0, -0.0]))
ODD_SCHEMA = """
[label]
column = "y"
classes = ["no", "yes"]
[unit]
column = "who"
max_records = 2
[columns.age]
kind = "numeric"
bounds = [0, 100]
[columns.sex]
kind = "categorical"
categories = ["f", "m", "true", "ä"]
[columns.visits]
kind = "categorical"
categories = [0, 1, 2]
"""


@given(
    st.lists(
        st.tuples(NUMBERS, TEXTS, st.integers(-(2**53), 2**53) | st.integers(0, 2), st.sampled_from(["no", "yes", ""])),
        min_size=1,
        max_size=6,
    )
)
def test_a_frame_has_the_records_of_its_csv(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("law")
    frame = pd.DataFrame(rows, columns=["age", "sex", "visits", "y"]).assign(who=lambda f: f.index // 3)
    frame.to_csv(folder / "t.csv", index=False)
    (folder / "s.toml").write_text(ODD_SCHEMA)
    chosen: dict[str, Any] = {"schema": str(folder / "s.toml"), "agents": 2, "partition": "hashed", "private": True}
    of_file = load(DataOptions(data=str(folder / "t.csv"), test_share=0.3, **chosen))
    for kind in (frame, pl.from_pandas(frame)):
        held = open_frames("data", kind, needed_columns(parse_schema(ODD_SCHEMA), TRAINING))
        with hold({"memory:frame": held}, {}):
            of_frame = load(DataOptions(data="memory:frame", test_share=0.3, **chosen))
        assert fingerprint(of_frame) == fingerprint(of_file)


class Textless:
    """A cell that cannot become text."""

    def __str__(self) -> str:
        raise ValueError("no text")


ODD_CELLS = ("x", 1.5, 10**400, 10**5000, [1], b"x", 2j, Textless(), Decimal("sNaN"), None)


@pytest.mark.parametrize("odd", ODD_CELLS, ids=lambda odd: type(odd).__name__)
@pytest.mark.parametrize(
    ("cells", "declared", "expected"),
    [
        ([True, False, None], (0, 1), [1.0, 0.0, 0.5]),
        ([True, False, None], ["False", "True"], [[0, 1], [1, 0], [0, 0]]),
        ([3, 4.5, None], (0, 9), [3 / 9, 0.5, 0.5]),
        ([Decimal("1.50"), Decimal("2"), 3.0], ["1.5", "2", "3"], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        ([date(2020, 1, 2), None, date(2020, 1, 3)], ["2020-01-02", "2020-01-03"], [[1, 0], [0, 0], [0, 1]]),
    ],
)
def test_one_cell_neither_stops_a_run_nor_changes_what_others_are(
    cells: list[Any], declared: Any, expected: list[Any], odd: Any
) -> None:
    """Otherwise a table with one record more would differ in more than that record."""
    frame = pd.DataFrame({"b": pd.Series([*cells, odd], dtype=object), "ill": "no"})
    schema = taciturn.Schema.from_frame(frame).declare(b=declared, label="ill", ill=["no", "yes"]).build()
    for of in (frame, frame.iloc[:-1]):
        x = scale_columns(read_frame("data", of, needed_columns(schema, TRAINING)), schema, Tally())
        assert x[:3].tolist() == np.reshape(expected, (3, -1)).tolist()


@pytest.mark.parametrize("kind", [lambda frame: frame, pl.from_pandas])
def test_a_time_in_one_row_does_not_change_the_dates_of_others(kind: Callable[[pd.DataFrame], Any]) -> None:
    days = pd.to_datetime(["2020-01-01 00:00", "2020-01-02 00:00", "2020-01-02 10:00"])
    frame = pd.DataFrame({"day": days, "ill": "no"})
    declared = taciturn.Schema.from_frame(frame).declare(label="ill", ill=["no", "yes"])
    schema = declared.declare(day=["2020-01-01", "2020-01-02", "2020-01-02 10:00:00"]).build()
    for rows in (3, 2):
        table = read_frame("data", kind(frame.iloc[:rows]), needed_columns(schema, TRAINING))
        assert scale_columns(table, schema, Tally()).tolist() == np.eye(3)[:rows].tolist()


def test_the_column_of_weights_is_needed_and_holds_numbers() -> None:
    frame = patients().assign(counts=[True, False] * 60)
    schema = taciturn.Schema.from_frame(frame[["age", "ill", "counts"]]).declare(
        age=(0, 100), label="ill", ill=["no", "yes"], record_weight="counts", max_weight=2
    )
    needed = needed_columns(schema.build(), TRAINING)
    assert read_frame("data", frame, needed).numbers("counts")[:2].tolist() == [1.0, 0.0]
    with pytest.raises(InputError, match="the frame: no column 'counts'"):
        read_frame("data", frame.drop(columns="counts"), needed)
    with pytest.raises(InputError, match="'counts' has dates"):
        read_frame("data", frame.assign(counts=pd.Timestamp("2020-01-01")), needed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_on_a_frame_equals_the_run_on_its_csv(tmp_path: Path, kind: str) -> None:
    frame = patients()
    frame.to_csv(tmp_path / "t.csv", index=False)
    chosen = CERTIFIED | {"agents": 4, "test_share": 0.3}
    of_file = taciturn.run(data=tmp_path / "t.csv", schema=schema_file(tmp_path), out=tmp_path / "file", **chosen)
    of_frame = taciturn.run(data=KINDS[kind](frame), schema=SCHEMA, out=tmp_path / "frame", **chosen)
    assert of_frame.w.tobytes() == of_file.w.tobytes()
    assert of_frame.test_error == of_file.test_error


@pytest.mark.parametrize("several", [list, dict])
def test_a_frame_a_party_equals_a_folder_of_files(tmp_path: Path, several: type) -> None:
    names = ["agent-1", "agent-2", "agent-3"] if several is list else ["south", "st. mary", "north"]
    frames = {name: patients(40, seed) for seed, name in enumerate(names)}
    (tmp_path / "parties").mkdir()
    for name, frame in frames.items():
        frame.to_csv(tmp_path / "parties" / f"{name}.csv", index=False)
    chosen = CERTIFIED | {"records_max": 60, "test": patients(30, 9)}
    of_frames = taciturn.run(
        data=list(frames.values()) if several is list else frames, schema=SCHEMA, out=tmp_path / "frames", **chosen
    )
    patients(30, 9).to_csv(tmp_path / "test.csv", index=False)
    chosen["test"] = tmp_path / "test.csv"
    of_folder = taciturn.run(data=tmp_path / "parties", schema=schema_file(tmp_path), out=tmp_path / "folder", **chosen)
    assert of_frames.w.tobytes() == of_folder.w.tobytes()
    assert list(of_frames.summary.data.agents) == list(of_folder.summary.data.agents) == sorted(names)
    assert of_frames.test_error == of_folder.test_error


def test_plan_and_dry_run_need_the_schema_of_a_frame_alone(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"schema": SCHEMA, "total_records": 200, "agents": 4, "total_epsilon": 2.0}
    some, others = patients(), patients(10, 3)
    assert taciturn.plan(data=some, **chosen).proposal == taciturn.plan(data=others, **chosen).proposal
    runs = [taciturn.dry_run(data=frame, out=tmp_path / "r", **chosen)["runs"] for frame in (some, others)]
    assert runs[0] == runs[1]


def test_private_records_are_not_a_public_test_table(tmp_path: Path) -> None:
    frame = patients()
    with pytest.raises(InputError, match=r"^test is memory:frame, which is also the training table"):
        taciturn.run(data=frame, test=frame, schema=SCHEMA, agents=2, out=tmp_path / "run", **CERTIFIED)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_predictions_are_those_of_the_command_line(tmp_path: Path, kind: str) -> None:
    frame = patients()
    run = taciturn.run(data=frame, schema=SCHEMA, agents=2, out=tmp_path / "run", **CERTIFIED)
    frame.assign(smoker=frame.smoker.map({True: "true", False: "false"})).to_csv(tmp_path / "t.csv", index=False)
    command("predict", tmp_path / "run", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    printed = pd.read_csv(tmp_path / "p.csv")
    assert run.predict(KINDS[kind](frame.drop(columns="ill"))).tolist() == printed["prediction"].tolist()
    chances = run.predict_proba(KINDS[kind](frame))
    assert run.classes.tolist() == ["no", "yes"]
    assert chances == pytest.approx(printed[["probability_no", "probability_yes"]].to_numpy(), rel=1e-5)
    assert chances.sum(axis=1) == pytest.approx(1.0)
    assert run.evaluate(KINDS[kind](frame)).to_json() == taciturn_json("evaluate", tmp_path / "run", tmp_path / "t.csv")


@pytest.mark.parametrize(("classes", "kind"), [([0, 1], np.int64), ([False, True], np.bool_)])
def test_predictions_compare_with_the_frames_own_labels(tmp_path: Path, classes: list[Any], kind: type) -> None:
    frame = patients().assign(ill=lambda frame: (frame.ill == "yes").astype(kind))
    builder = taciturn.Schema.from_frame(frame).drop("name", "sex", "visits", "smoker")
    schema = builder.declare(age=(0, 100), label="ill", ill=classes)
    chosen = CERTIFIED | {"rounds": 50, "total_epsilon": 100}
    run = taciturn.run(data=frame, schema=schema, agents=1, out=tmp_path / "run", **chosen)
    assert (run.predict(frame) == frame.ill).mean() == pytest.approx(1 - run.evaluate(frame)["error"])


def test_a_number_is_predicted_in_its_unit(tmp_path: Path) -> None:
    frame = patients()
    schema = (
        taciturn.Schema.from_frame(frame)
        .drop("name", "sex", "ill", "smoker")
        .declare(age=(0, 100), visits=(0, 20), label="age")
    )
    run = taciturn.run(data=frame, schema=schema, agents=2, out=tmp_path / "run", **CERTIFIED)
    command("predict", tmp_path / "run", *_csv(tmp_path, frame), "--out", tmp_path / "p.csv")
    assert run.predict(frame) == pytest.approx(pd.read_csv(tmp_path / "p.csv")["prediction"].to_numpy(), rel=1e-5)
    with pytest.raises(InputError, match="no probabilities"):
        run.predict_proba(frame)


def _csv(folder: Path, frame: pd.DataFrame) -> list[Path]:
    frame.to_csv(folder / "t.csv", index=False)
    return [folder / "t.csv"]


def test_the_run_has_its_ledger_its_report_and_its_pictures(tmp_path: Path) -> None:
    run = taciturn.run(data=patients(), schema=SCHEMA, agents=2, test_share=0.2, out=tmp_path / "run", **CERTIFIED)
    assert run.ledger.study.mode == "certified"
    assert run.report().read_text().startswith("<!doctype html>")
    assert len(run.plot().axes) > 1
    again = taciturn.open_run(run.path)
    with pytest.raises(InputError, match=r"^memory:frame stands for a data frame"):
        again.plot("sent")
    assert "agent-1" in again.plot("sent", data=patients()).get_suptitle()
    assert "agent-1" in run.plot("sent").get_suptitle()
    assert "effect of each column on yes" in run.plot("effects").get_suptitle()
    with pytest.raises(InputError, match=r"^no picture 'curve' \(did you mean 'curves'\?\)"):
        run.plot("curve")


def test_a_run_on_a_frame_is_evaluated_on_the_rows_it_held_out(tmp_path: Path) -> None:
    """As a run on its file is; opened again it needs the frame, and accepts no other."""
    frame = patients().assign(clinic=["a", "b", "c"] * 40)
    builder = taciturn.Schema.from_frame(frame).drop("name").declare(age=(0, 100), sex=["f", "m"])
    builder = builder.declare(agent="clinic", clinic=["a", "b", "c"])
    schema = builder.declare(visits=(0, 20), smoker=[False, True], label="ill", ill=["no", "yes"])
    chosen = CERTIFIED | {"test_share": 0.25, "schema": schema}
    run = taciturn.run(data=frame, out=tmp_path / "run", **chosen)
    held = run.evaluate()
    _csv(tmp_path, frame.assign(smoker=frame.smoker.map({True: "true", False: "false"})))
    filed = taciturn.run(data=tmp_path / "t.csv", out=tmp_path / "file", **chosen)
    assert held == filed.evaluate() and 10 < held.records < 60
    again = taciturn.open_run(tmp_path / "run")
    assert again.evaluate(frame, held_out=True) == held
    with pytest.raises(InputError, match=r"in no file: evaluate\(frame, held_out=True\) takes the same frame again"):
        again.evaluate()
    with pytest.raises(InputError, match="are not those the run began with"):
        again.evaluate(frame.head(60), held_out=True)
    whole = again.evaluate(frame)
    assert set(whole.parties or ()) == {"a", "b", "c"} and whole == filed.evaluate(tmp_path / "t.csv")
    assert again.evaluate(frame.drop(columns="clinic")).parties is None
    assert MARK.encode() not in b"".join(folder_texts(tmp_path / "run").values())


def test_a_run_whose_equal_rows_are_all_trained_on_held_out_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = patients().assign(age=50.0, sex="f", visits=3, smoker=False, ill="no")
    run = taciturn.run(data=frame, schema=SCHEMA, test_share=0.3, out=tmp_path / "run", **CERTIFIED)
    assert [said for said in caplog.messages if said.startswith("equal rows are held out together: 0 of 120 ")]
    with pytest.raises(InputError, match=r"held out no record: give a labelled table$"):
        run.evaluate()


@pytest.mark.parametrize("own", [True, False])
def test_the_owner_reads_how_many_rows_are_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """From Python too, where logging is not configured."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()] if own else [])
    taciturn.run(data=patients().assign(ill="maybe"), schema=SCHEMA, out=tmp_path / "run", **CERTIFIED)
    said = "note: 0 of 120 rows are used; ill: 120 records without a label that the schema allows were left out"
    assert (said in capfd.readouterr().err.splitlines()) == (not own)


def test_no_rows_have_no_predictions_and_no_quality(tmp_path: Path) -> None:
    run = taciturn.run(data=patients(), schema=SCHEMA, agents=2, out=tmp_path / "run", **CERTIFIED)
    none = patients().head(0)
    assert run.predict(none).shape == (0,) and run.predict_proba(none).shape == (0, 2)
    with pytest.raises(InputError, match="there are no records to evaluate the model on"):
        run.evaluate(none)


def test_an_interrupted_run_continues_with_its_frame_only(tmp_path: Path) -> None:
    frame, chosen = patients(), CERTIFIED | {"rounds": 30, "agents": 2, "schema": SCHEMA}
    whole = taciturn.run(data=frame, out=tmp_path / "whole", **chosen)
    rounds = iter(range(100))
    with pytest.raises(Interrupted):
        taciturn.run(data=frame, out=tmp_path / "part", stop=lambda: next(rounds) > 5, **chosen)
    with pytest.raises(InputError, match=r"give the same frame again from Python"):
        taciturn.resume(tmp_path / "part")
    with pytest.raises(InputError, match=r"are not those the run began with"):
        taciturn.resume(tmp_path / "part", data=patients(seed=1))
    assert command("resume", tmp_path / "part", code=2).stderr.count("taciturn.resume(run, data=frame)") == 1
    assert taciturn.resume(tmp_path / "part", data=frame).w.tobytes() == whole.w.tobytes()


def test_a_frame_belongs_to_its_budget_ledger(tmp_path: Path) -> None:
    frame = patients()
    chosen: dict[str, Any] = {"schema": SCHEMA, "total_records": 200, "agents": 2, "rounds": 2, "total_epsilon": 0.5}
    first, second = (BudgetLedger.create(tmp_path / name, name, 3.0, 1e-6) for name in ("first", "second"))
    taciturn.run(data=frame, ledger=first.path, out=tmp_path / "a", **chosen)
    taciturn.run(data=pl.from_pandas(frame), ledger=first.path, out=tmp_path / "b", **chosen)
    again = frame.sample(frac=1.0, random_state=0)
    with pytest.raises(InputError, match=r"already have a budget ledger, first"):
        taciturn.run(data=again, ledger=second.path, out=tmp_path / "c", **chosen)
    with pytest.warns(LedgerWarning, match="is not charged to the ledger"):
        taciturn.run(data=again, out=tmp_path / "d", **chosen)
    assert second.state().epsilon_used == 0.0


def test_a_frame_has_the_digest_of_its_parquet_file(tmp_path: Path) -> None:
    frame = patients()
    frame.to_parquet(tmp_path / "t.parquet")
    needed = needed_columns(SCHEMA, TRAINING)
    with hold({"memory:a": open_frames("data", frame, needed), "memory:b": open_frames("data", frame[1:], needed)}, {}):
        assert table_digest("memory:a") == table_digest(tmp_path / "t.parquet") != table_digest("memory:b")


def test_a_frame_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    frame = patients().assign(sex=[f"{MARK}{i}" for i in range(120)])  # unknown categories, which notes count
    taciturn.run(data=frame, schema=SCHEMA, agents=2, test_share=0.2, out="run", **CERTIFIED)
    found = folder_texts(tmp_path)
    assert "run/local-only/start.json" in found
    assert [name for name, content in found.items() if MARK.encode() in content] == []
    assert {name.split("/")[0] for name in found} == {"run"}


def test_neither_library_is_imported_for_others(tmp_path: Path) -> None:
    code = (
        "import sys, taciturn; from taciturn.data import Schema; taciturn.plan(data='mnist14', features='none'); "
        "print([name for name in ('pandas', 'polars', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_progress_is_shown_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("taciturn.training_display.LINE_SECONDS", -1.0)
        for progress in (True, False):
            taciturn.run(
                data=patients(),
                schema=SCHEMA,
                agents=2,
                out=tmp_path / str(progress),
                progress=progress,
                watch=lambda progress: seen.append(progress.t),
                **CERTIFIED,
            )
            shown = capsys.readouterr().err
            assert ("round 3 of 3" in shown) is progress
    assert seen == 2 * [0, 1, 2, 3]


def test_what_a_run_folder_says_about_its_data_is_a_name(tmp_path: Path) -> None:
    run = taciturn.run(data=patients(), schema=SCHEMA, agents=2, out=tmp_path / "run", **CERTIFIED)
    assert run.folder.read_config()["data"] == "memory:frame" and run.summary.data.name == "frame"
    assert parse_schema(run.folder.schema.read_text()) == SCHEMA
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["data"]["name"] == "frame"


def test_runs_on_different_frames_are_not_compared_as_if_on_one(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"schema": SCHEMA, "agents": 2, "test_share": 0.3} | CERTIFIED
    for name, seed, budget in (("a", 0, 1.0), ("b", 0, 2.0), ("c", 1, 1.0)):
        taciturn.run(data=patients(seed=seed), total_epsilon=budget, out=tmp_path / name, **chosen)
    same, other = ([RunFolder.open(tmp_path / name) for name in names] for names in ("ab", "ac"))
    assert other_test_records(same) == [] and "data" in other_test_records(other)
