"""Every cell gets a value by a public rule, or its record is left out: no single record stops a run."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import taciturn
from taciturn.data import DataOptions, describe, load, read_schema
from taciturn.data import table_io as read_csv
from taciturn.data.schema import dump_schema
from taciturn.errors import InputError
from taciturn.settings import resolve
from taciturn.types import Dataset, Range

from .helpers import AGENT, stack_x, write

LABELS = {"classes": 'classes = ["no", "yes"]', "bounds": "bounds = [-1, 1]"}
SCHEMA = """
[label]
column = "y"
{label}
[unit]
column = "who"
max_records = 2
[columns.age]
kind = "numeric"
bounds = [0, 100]
{age}
[columns.sex]
kind = "categorical"
categories = ["f", "m", "other"]
{sex}
"""
HEADER = "age,sex,who,site,y"
ROWS = [f"{10 * i},{'fm'[i % 2]},p{i},{'ab'[i % 2]},{'no' if i % 3 else 'yes'}" for i in range(8)]


def read(folder: Path, lines: list[str], schema: str = "", **changes: Any) -> Dataset:
    """Load a table of these lines as a certified run does; a column names its two agents."""
    (folder / "t.csv").write_bytes("\n".join([HEADER, *lines, ""]).encode(errors="surrogateescape"))
    write(folder / "s.toml", schema or SCHEMA.format(label=LABELS["classes"], age="", sex="") + AGENT)
    asked = {"data": str(folder / "t.csv"), "schema": str(folder / "s.toml"), "intercept": False} | changes
    return load(resolve(asked | {"features": "none"}).data_options(3))


def every_bit(dataset: Dataset) -> list[bytes]:
    return [array.tobytes() for shard in dataset.train for array in (shard.x, shard.y)]


KEPT: dict[str, tuple[list[float], str]] = {  # line -> its features, and what its owner is told
    "1e6,f,p,a,no": ([1, 1, 0, 0], "age: 1 value outside [0, 100] was clipped"),
    "-7,f,p,a,no": ([0, 1, 0, 0], "age: 1 value outside [0, 100] was clipped"),
    ",f,p,a,no": ([0.5, 1, 0, 0], "age: 1 missing value became 50"),
    "old,f,p,a,no": ([0.5, 1, 0, 0], "age: 1 value that is not a finite number became 50"),
    "inf,f,p,a,no": ([0.5, 1, 0, 0], "age: 1 value that is not a finite number became 50"),
    "1e999,f,p,a,no": ([0.5, 1, 0, 0], "age: 1 value that is not a finite number became 50"),
    "\udcff,f,p,a,no": ([0.5, 1, 0, 0], "age: 1 value that is not a finite number became 50"),  # not UTF-8
    "5,d,p,a,no": ([0.05, 0, 0, 0], "sex: 1 unknown category became no category"),
    "5,F,p,a,no": ([0.05, 0, 0, 0], "sex: 1 unknown category became no category"),
    "5,NA,p,a,no": ([0.05, 0, 0, 0], "sex: 1 missing value became no category"),
    f"5,{'f' * 200_000},p,a,no": ([0.05, 0, 0, 0], "sex: 1 unknown category became no category"),
}
LEFT_OUT = {
    "5,f,p,a,perhaps": "y: 1 record without a label that the schema allows was left out",
    "5,f,p,a,": "y: 1 record without a label that the schema allows was left out",
    "5,f,,a,no": "who: 1 record without a unit was left out",
    "5,f,p,,no": "site: 1 record without an agent was left out",
    "5,f,p": "1 line that is not a row of the table was left out",
    "5,f,p,a,no,,": "1 line that is not a row of the table was left out",
    '5,"f"x,p,a,no': "1 line that is not a row of the table was left out",
}


@pytest.mark.parametrize("line", KEPT)
def test_a_bad_cell_has_the_value_of_a_public_rule(tmp_path: Path, line: str) -> None:
    without = read(tmp_path, ROWS)
    found = read(tmp_path, [*ROWS[:3], line, *ROWS[3:]])
    features, note = KEPT[line]
    assert found.notes[0] == f"{note} (line 5 of t.csv)" and not without.notes
    own = found.train[0].x.tolist()
    assert own.pop(2) == features  # behind rows 0 and 2, its agent's
    assert own == without.train[0].x.tolist()
    assert every_bit(found)[2:] == every_bit(without)[2:]


def test_a_note_names_the_lines_of_a_file_together_and_what_is_marked(tmp_path: Path) -> None:
    marked = SCHEMA.format(label=LABELS["classes"], age="missing = 'indicator'", sex="missing = 'indicator'") + AGENT
    found = read(tmp_path, [*ROWS, ",NA,p,a,no", "NA,d,p,a,no", "x,f,q,a,no"], marked)
    assert found.notes == (
        "age: 2 missing values were marked as missing (lines 10, 11 of t.csv)",
        "age: 1 value that is not a finite number was marked as missing (line 12 of t.csv)",
        "sex: 1 missing value was marked as missing (line 10 of t.csv)",
        "sex: 1 unknown category was marked as missing (line 11 of t.csv)",
    )
    many = read(tmp_path, [*ROWS, *(f",f,q{i},a,no" for i in range(7))])
    assert many.notes == ("age: 7 missing values became 50 (lines 10, 11, 12, 13, 14, … of t.csv)",)


def test_the_owner_is_warned_of_a_table_that_is_hardly_read(tmp_path: Path) -> None:
    assert read(tmp_path, [*ROWS, ",NA,p,a,no"]).warnings == ()
    names = SCHEMA.format(label=LABELS["classes"].replace("no", "No"), age="", sex="")
    names += AGENT + 'names = ["a", "b"]\n'
    (warning,) = read(tmp_path, ROWS, names).warnings
    assert "no row has the class 'No' and 5 of 8 rows were left out" in warning
    assert read(tmp_path, [], names).warnings == ("the model has learned nothing: the table has no rows",)
    lost = read(tmp_path, ["5,f,p,a,perhaps"] * 3, names)
    assert lost.warnings == ("the model has learned nothing: none of the 3 rows is a record",)
    assert describe(lost)["warnings"] == list(lost.warnings)


COMMAS = [line.replace("0,", '0,5",', 1) if i else line for i, line in enumerate(ROWS)]
COMMAS = [f'"{line}' if ',5"' in line else line for line in COMMAS]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (COMMAS, ["'age' do not fit its declaration: 7 of 8 are texts where a number belongs; decimals have a point"]),
        (COMMAS[:4] + ROWS[4:], []),  # three of eight
        (
            [",f,p,a,no"] * 5 + COMMAS[1:3],
            ["'age' do not fit its declaration: 2 of 2 are texts"],
        ),  # empty cells are well
        ([line.upper() for line in ROWS], ["'sex' do not fit its declaration: 8 of 8 are none of its categories"]),
    ],
)
def test_the_owner_is_told_of_a_column_that_cannot_be_read(tmp_path: Path, lines: list[str], said: list[str]) -> None:
    found = read(tmp_path, lines)
    notes = [note for note in found.remarks if "most values" in note]
    assert len(notes) == len(said)
    for note, words in zip(notes, said, strict=True):
        assert note.startswith(f"most values of column {words}") and note in found.notes
        assert "0,5" not in note  # of the cells


@pytest.mark.parametrize("line", LEFT_OUT)
def test_a_line_that_is_no_record_is_left_out(tmp_path: Path, line: str) -> None:
    without = read(tmp_path, ROWS)
    found = read(tmp_path, [*ROWS[:3], line, *ROWS[3:]])
    assert found.notes[0].startswith(f"{LEFT_OUT[line]} (") and "line 5 of t.csv" in found.notes[0]
    assert every_bit(found) == every_bit(without)
    assert describe(found)["notes"] == list(found.notes)  # what `taciturn data info` shows


@pytest.mark.parametrize(
    ("age", "sex", "features"),
    [
        ("missing = 'low'", "missing = 'other'", [0, 0, 0, 1]),
        ("missing = 'high'", "missing = 'f'", [1, 1, 0, 0]),
        ("missing = 25", "missing = 'none'", [0.25, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("line", ["x,d,p,a,no", ",,p,a,no"])
def test_the_schema_says_what_is_no_value(tmp_path: Path, age: str, sex: str, features: list[float], line: str) -> None:
    schema = SCHEMA.format(label=LABELS["classes"], age=age, sex=sex) + AGENT
    assert read(tmp_path, [line, *ROWS], schema).train[0].x[0].tolist() == features


@pytest.mark.parametrize(
    ("label", "values"), [("5", [1.0]), ("-5", [0.0]), ("0", [0.5]), ("x", []), ("", []), ("inf", []), ("1e999", [])]
)
def test_a_number_to_predict_is_clipped_or_its_record_left_out(tmp_path: Path, label: str, values: list[float]) -> None:
    schema = SCHEMA.format(label=LABELS["bounds"], age="", sex="")
    found = read(tmp_path, [f"5,f,p,a,{label}", "6,m,q,a,1"], schema, agents=1)
    assert found.train[0].y[:, 0].tolist() == [*values, 1.0]


def test_schemas_have_no_rule_that_raises_an_error(tmp_path: Path) -> None:
    for age, sex in (("missing = 'error'", ""), ("", "missing = 'error'")):
        with pytest.raises(InputError, match=r"no missing rule 'error' in \[columns\.(age|sex)\]"):
            read(tmp_path, ROWS, SCHEMA.format(label=LABELS["classes"], age=age, sex=sex))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty: it must begin with a header line"),
        (b"age;sex;who;site;y\n1;f;p;a;no\n", "columns are separated by commas"),
        (b"age,sex,who,site\n1,f,p,a\n", "no column 'y'"),
        (b"\xff\xfea\x00g\x00e\x00,\x00", "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    read(tmp_path, ROWS)
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        load(DataOptions(data=str(tmp_path / "t.csv"), schema=str(tmp_path / "s.toml"), private=True))


CELLS = (
    st.sampled_from(
        ["0", "50", "1e3", "-1", "nan", "NA", "", "inf", "1e999", "f", "m", "other", "no", "yes", "1_0", "٣"]
    )
    | st.text(st.characters(codec="utf-8"), max_size=4)
    | st.floats().map(str)
)
LINES = st.lists(st.lists(CELLS, min_size=5, max_size=5) | st.lists(CELLS, max_size=7), max_size=6)
AGE = st.sampled_from(["", "missing = 'low'", "missing = 'high'", "missing = 33.0"])
SEX = st.sampled_from(["", "missing = 'none'", "missing = 'other'"])


@settings(deadline=None, max_examples=60)
@given(LINES, st.sampled_from(sorted(LABELS)), AGE, SEX, st.booleans(), st.integers(0, 5))
@example([["\x00", "\r", "\n", '"', "\ufeff"]], "classes", "", "", True, 0)
def test_the_encoder_is_total_and_a_record_changes_no_other(
    lines: list[list[str]], label: str, age: str, sex: str, agent: bool, at: int
) -> None:
    """Every table loads, features are in [0, 1], and removing a line removes at most its own record."""
    schema = SCHEMA.format(label=LABELS[label], age=age, sex=sex) + (AGENT if agent else "")
    # one line that is right for every label and agent, so that there is a file and a party
    whole = [["5", "f", "someone", "a", "0" if label == "bounds" else "no"], *lines]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "s.toml"), schema)
        for rows in (whole, whole[:1] + [row for i, row in enumerate(lines) if i != at]):
            with Path(folder, "t.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([HEADER.split(","), *rows])
            options = {"schema": str(Path(folder, "s.toml")), "partition": "hashed", "private": True}
            found.append(load(DataOptions(data=str(Path(folder, "t.csv")), agents=10, **options)))  # type: ignore[arg-type]
    for dataset in found:
        x = stack_x(dataset.train)
        assert np.isfinite(x).all() and x.min() >= 0 and x.max() <= 1 and 1 <= len(x) <= len(whole)
        y = np.concatenate([shard.y for shard in dataset.train])
        assert ((y >= 0) & (y <= 1)).all() and (isinstance(dataset.target, Range) or (y.sum(axis=1) == 1).all())
    one, other = found
    assert len(stack_x(one.train)) - len(stack_x(other.train)) in (0, 1) or at >= len(lines) or _of_a_unit(lines, at)


def _of_a_unit(lines: list[list[str]], at: int) -> bool:
    """Return whether the line's person has more rows: only the first two count, so a third one may take its place."""
    return len(lines[at]) == 5 and sum(len(row) == 5 and row[2].strip() == lines[at][2].strip() for row in lines) > 2


def test_parquet_cells_follow_the_same_rules(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    schema = write(tmp_path / "s.toml", SCHEMA.format(label=LABELS["classes"], age="", sex=""))
    raw = pa.array([b"f", b"\xff\xfe", b"m", b"x", None], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 5, raw.buffers())  # texts that are no UTF-8
    columns = {
        "age": pa.array([1.0, float("inf"), float("-inf"), float("nan"), None]),
        "sex": broken,
        "who": pa.array(["p", "q", "r", "s", None]),
        "y": pa.array(["no", "yes", "no", "maybe", "no"]),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    options: dict[str, Any] = {"agents": 1, "partition": "hashed", "private": True}
    found = load(DataOptions(data=str(tmp_path / "t.parquet"), schema=str(schema), **options))
    assert found.train[0].x.tolist() == [[0.01, 1, 0, 0], [0.5, 0, 0, 0], [0.5, 0, 1, 0]]


def test_a_run_continues_and_reports_bad_cells_only_to_its_owner(tmp_path: Path) -> None:
    """No public output depends on the bad cells; the owner's notes name their places."""
    folder = tmp_path
    schema = SCHEMA.format(label=LABELS["classes"], age="", sex="") + AGENT + 'names = ["a", "b"]\n'
    read(folder, [*ROWS, "x,d,p9,a,no", "5,f,p", "5,f,p8,a,perhaps"], schema)
    asked: dict[str, Any] = {"agents": 2, "total_records": 20, "rounds": 2, "noise": "hardened"}
    where: dict[str, Any] = {"data": folder / "t.csv", "schema": folder / "s.toml"}
    run = taciturn.run(**where, **asked, out=folder / "run")
    told = run.folder.read_start()["data"]["notes"]
    assert len(told) == 4 and all("line" in note for note in told)
    for path in (folder / "run").rglob("*"):
        if path.is_file() and "local-only" not in path.parts:
            assert not any(note.encode() in path.read_bytes() for note in (*told, "left out", "no category"))


@pytest.mark.parametrize("later", ["", '70,"m",p7,b,no'])
def test_a_quote_that_is_not_closed_swallows_no_other_record(tmp_path: Path, later: str) -> None:
    """An unclosed quote affects neither the rows up to the next quote nor those up to the end of the file."""
    rows = [*ROWS, *([later] if later else [])]
    without = read(tmp_path, rows)
    found = read(tmp_path, [*rows[:2], '50,"f,p9,a,yes', *rows[2:]])
    assert every_bit(found) == every_bit(without)
    assert any("left out" in note for note in found.notes)


def test_parquet_values_that_python_cannot_hold_are_no_values(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    write(tmp_path / "s.toml", SCHEMA.format(label=LABELS["classes"], age="", sex=""))
    odd = {
        "date": pa.array([1, 2**30], pa.int32()).cast(pa.date32()),
        "time": pa.array([1, 2**62], pa.int64()).cast(pa.timestamp("us")),
        "list": pa.array([[b"a"], [b"\xff"]], pa.list_(pa.binary())).cast(pa.list_(pa.string()), safe=False),
    }
    for name, values in odd.items():
        columns = {
            "age": pa.array([1.0, 2.0]),
            "sex": values,
            "who": pa.array(["p", "q"]),
            "y": pa.array(["no", "yes"]),
        }
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        asked = {"data": str(tmp_path / "t.parquet"), "schema": str(tmp_path / "s.toml"), "agents": 1}
        assert load(resolve(asked).data_options(3)).records == 2, name


def test_the_training_table_is_refused_as_a_public_test_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"also the training table: .* use --test-share"):
        read(tmp_path, ROWS, test=str(tmp_path / "t.csv"))


def test_a_name_that_no_party_has_is_left_out_where_names_are_declared(tmp_path: Path) -> None:
    schema = (
        SCHEMA.format(label=LABELS["classes"], age="", sex="") + '[agent]\ncolumn = "site"\nnames = ["a", "b", "c"]\n'
    )
    without = read(tmp_path, ROWS, schema)
    found = read(tmp_path, [*ROWS[:3], "50,f,p9,A,yes", *ROWS[3:]], schema)
    assert every_bit(found) == every_bit(without)
    assert found.agents == ("a", "b", "c") and [len(shard.x) > 0 for shard in found.train] == [True, True, False]
    assert dump_schema(read_schema(tmp_path / "s.toml")).count("names = ") == 1


NAMED = SCHEMA.format(label=LABELS["classes"], age="", sex="") + AGENT


@pytest.mark.parametrize("declared", ["schema", "records-max"])
def test_one_misspelt_agent_adds_no_agent(tmp_path: Path, declared: str) -> None:
    """For every cell, the agents are the declared ones, and the other records are unchanged."""
    names = 'names = ["b", "a"]\n' if declared == "schema" else ""
    most = {"records_max": "a=50,b=50"} if declared == "records-max" else {}
    without = read(tmp_path, ROWS, NAMED + names, **most)
    for cell in ("A", "a1", "", "a b", "\x00", '"', "f" * 1000, "\ufeffa"):
        found = read(tmp_path, [*ROWS[:3], f"50,f,p9,{cell},yes", *ROWS[3:]], NAMED + names, **most)
        assert found.agents == without.agents == ("a", "b")
        assert every_bit(found) == every_bit(without)
        assert any("left out (" in note and "line 5 of t.csv" in note for note in found.notes)


def test_agents_that_nobody_declared_stop_a_run_before_its_records_are_read(tmp_path: Path) -> None:
    write(tmp_path / "s.toml", NAMED)
    (tmp_path / "t.csv").write_bytes(b"\xff\x00 no table")
    asked: dict[str, Any] = {"data": tmp_path / "t.csv", "schema": tmp_path / "s.toml", "total_records": 20}
    several: list[dict[str, Any]] = [{}, {"agents": 2}, {"records_max": 9}]
    for declared in several:
        with pytest.raises(
            InputError, match=r"s\.toml: \[agent\] has no names, .*: add a line names = .* --records-max"
        ):
            taciturn.run(**asked, **declared, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="is not UTF-8 text"):
        taciturn.run(**asked, records_max="a=9,b=9", out=tmp_path / "run")


def test_a_table_without_a_record_is_a_table(tmp_path: Path) -> None:
    """Whether there is a record at all may depend on one record."""
    names = NAMED + 'names = ["a", "b"]\n'
    assert [len(shard.x) for shard in read(tmp_path, [], names).train] == [0, 0]
    assert [len(shard.x) for shard in read(tmp_path, ["", '"'], names).train] == [0, 0]
    plain = SCHEMA.format(label=LABELS["classes"], age="", sex="")
    assert [len(shard.x) for shard in read(tmp_path, [], plain, agents=3).train] == [0, 0, 0]
    for name, rows in (("east", ROWS), ("west", [])):
        write(tmp_path / "sites" / f"{name}.csv", "\n".join([HEADER, *rows, ""]))
    found = read(tmp_path, [], plain, data=str(tmp_path / "sites"))
    assert found.agents == ("east", "west") and [len(shard.x) for shard in found.train] == [8, 0]
    with pytest.raises(InputError, match=r"^no row of t is a record: there is none below the header$"):
        read(tmp_path, [], plain, mode="paper")


def test_a_parquet_table_without_a_record_is_a_table(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kinds = {"age": pa.float64(), "sex": pa.string(), "who": pa.string(), "site": pa.string(), "y": pa.string()}
    pq.write_table(pa.schema(kinds).empty_table(), tmp_path / "t.parquet")
    found = read(tmp_path, [], NAMED + 'names = ["a", "b"]\n', data=str(tmp_path / "t.parquet"))
    assert [len(shard.x) for shard in found.train] == [0, 0]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_that_no_memory_could_hold_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(read_csv, "LONGEST", 40)
    write(tmp_path / "s.toml", NAMED)
    for length in range(30, 90):
        long = "5,f,p9,a,no"[:9] + "x" * (length - 9)
        lines = [HEADER, *ROWS[:2], long, *ROWS[2:], ""]
        (tmp_path / "t.csv").write_bytes(end.join(lines).encode())
        found = load(DataOptions(data=str(tmp_path / "t.csv"), schema=str(tmp_path / "s.toml"), private=True))
        assert found.records == len(ROWS), length
