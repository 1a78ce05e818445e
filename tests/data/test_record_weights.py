"""Weights that a schema declares: of classes, and in a column; and how a table's records get them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taciturn
from taciturn.data import DataOptions, fingerprint, limit_records, load, parse_schema, schema_facts
from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.partition import Partition
from taciturn.data.schema_parser import class_weights
from taciturn.errors import InputError
from taciturn.federation.terms import schema_hash
from taciturn.types import Array, Classes, Dataset

from .helpers import write

BASE = """
[label]
column = "ill"
classes = ["no", "yes"]
{label}
[columns.age]
kind = "numeric"
bounds = [0, 100]
[agent]
column = "site"
names = ["a", "b"]
{more}
"""
CLASSES, COLUMN = "weights = { no = 1, yes = 4 }", '[weight]\ncolumn = "sw"\nmax = 10\n'


def schema(label: str = "", more: str = "") -> str:
    return BASE.format(label=label, more=more)


def read(folder: Path, rows: list[str], text: str, **changes: Any) -> Dataset:
    write(folder / "t.csv", "\n".join(["age,ill,site,sw", *rows, ""]))
    write(folder / "s.toml", text)
    asked: dict[str, Any] = {"intercept": False, "private": True} | changes
    return load(DataOptions(str(folder / "t.csv"), schema=str(folder / "s.toml"), **asked))


def weights(dataset: Dataset) -> list[list[float]]:
    return [np.asarray(shard.weights).tolist() for shard in dataset.train]


ROWS = ["10,no,a,5", "20,yes,b,10", "30,yes,a,2.5", "40,no,b,0"]


@pytest.mark.parametrize(
    ("label", "more", "expected"),
    [
        (CLASSES, "", [[0.25, 1.0], [1.0, 0.25]]),
        ("weights = { yes = 4 }", "", [[0.25, 1.0], [1.0, 0.25]]),
        ("", COLUMN, [[0.5, 0.25], [1.0, 0.0]]),
        (CLASSES, COLUMN, [[0.125, 0.25], [1.0, 0.0]]),
    ],
)
@pytest.mark.parametrize("memory", ["auto", "0.001kB"])
def test_records_have_the_declared_weights(
    tmp_path: Path, label: str, more: str, expected: list[list[float]], memory: str
) -> None:
    for features in ("none", "bins"):
        found = read(tmp_path, ROWS, schema(label, more), features=features, memory=memory)
        assert weights(found) == expected
        assert not any("sw" in name for name in found.features)


def test_without_a_declaration_there_are_none(tmp_path: Path) -> None:
    found = read(tmp_path, ROWS, schema())
    assert all(shard.weights is None for shard in found.train)


CELLS = {
    "": (0.0, "sw: 1 missing weight became 0"),
    "NaN": (0.0, "sw: 1 missing weight became 0"),
    "many": (0.0, "sw: 1 value that is not a finite number became 0"),
    "inf": (0.0, "sw: 1 value that is not a finite number became 0"),
    "-3": (0.0, "sw: 1 value outside [0, 10] was clipped"),
    "1e6": (1.0, "sw: 1 value outside [0, 10] was clipped"),
}


@pytest.mark.parametrize("cell", CELLS)
def test_no_cell_stops_a_run_or_changes_another_record(tmp_path: Path, cell: str) -> None:
    found = read(tmp_path, [*ROWS, f"50,yes,a,{cell}"], schema("", COLUMN))
    expected, note = CELLS[cell]
    assert weights(found) == [[0.5, 0.25, expected], [1.0, 0.0]]
    assert any(text.startswith(note) for text in found.notes)


@given(st.lists(st.text("0123456789.-einfa ", max_size=8), min_size=1, max_size=6))
def test_weights_are_within_0_and_1_for_any_cells(tmp_path_factory: pytest.TempPathFactory, cells: list[str]) -> None:
    rows = [f"{i},{'no' if i % 2 else 'yes'},a,{cell}" for i, cell in enumerate(cells)]
    found = read(tmp_path_factory.mktemp("cells"), rows, schema(CLASSES, COLUMN)).train[0].weights
    assert found is not None and len(found) == len(cells)
    assert ((found >= 0.0) & (found <= 1.0)).all()


def test_test_records_need_no_weight_column_and_have_no_weights(tmp_path: Path) -> None:
    write(tmp_path / "test.csv", "age,ill\n10,no\n20,yes\n")
    found = read(tmp_path, ROWS, schema(CLASSES, COLUMN), test=str(tmp_path / "test.csv"))
    assert found.test is not None and found.test.weights is None
    held = read(tmp_path, ROWS * 20, schema(CLASSES, COLUMN), test_share=0.5, partition_key=1)
    assert held.test is not None and held.test.weights is None
    for shard in held.train:
        age = np.rint(100 * shard.x[:, 0]).astype(int)
        np.testing.assert_array_equal(shard.weights, [{10: 0.125, 20: 1, 30: 0.25, 40: 0}[a] for a in age])


def test_a_limit_on_records_keeps_the_weights_of_those_that_stay(tmp_path: Path) -> None:
    text = schema("", COLUMN)
    found, declared = read(tmp_path, ROWS, text), parse_schema(text)
    facts = schema_facts(
        "t", declared, intercept=False, agents=2, total_records=4, records_max=1, test="none", features="none"
    )
    assert weights(limit_records(facts, found, found.agents)) == [[0.5], [1.0]]


def test_weights_are_part_of_a_data_sets_fingerprint(tmp_path: Path) -> None:
    one, other, none = (read(tmp_path, ROWS, text) for text in (schema(CLASSES), schema("", COLUMN), schema()))
    assert len({fingerprint(one), fingerprint(other), fingerprint(none)}) == 3


def test_records_are_held_out_whatever_their_weights(tmp_path: Path) -> None:
    rows = [f"{i},{'no' if i % 2 else 'yes'},a,{i % 10}" for i in range(100)]
    asked: dict[str, Any] = {"test_share": 0.3, "partition_key": 5}
    tests = [read(tmp_path, rows, text, **asked).test for text in (schema(), schema(CLASSES, COLUMN))]
    one, other = (test.x for test in tests if test is not None)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("bad", [[1.5, 1.0], [-0.1, 1.0], [np.nan, 1.0], [1.0]])
def test_weights_beyond_their_range_do_not_become_records(bad: list[float]) -> None:
    raw = RawRecords(np.zeros((2, 1)), np.array([0, 1]), weights=np.array(bad))
    partition = Partition(("a",), [np.arange(2)])
    with pytest.raises(ValueError, match=r"within \[0, 1\]"):
        assemble("t", DataOptions(), raw, partition, features=["x"], target=Classes(("a", "b")))


REFUSED = {
    "weights = { maybe = 2 }": r"weights names the class 'maybe', which is not one of the classes 'no', 'yes'",
    "weights = { yes = 0 }": r"\[label\] weights of class 'yes' is 0: it must be a finite number above 0",
    "weights = { yes = -1 }": "it must be a finite number above 0",
    "weights = { yes = inf }": "it must be a finite number above 0",
    'weights = { yes = "3" }': "it must be a finite number above 0",
    "weights = { yes = true }": "it must be a finite number above 0",
    "weights = {}": "it must have a number for each class",
    "weights = [1, 3]": "it must have a number for each class",
    'weights = "balanced"': "it must have a number for each class",
}


@pytest.mark.parametrize("label", REFUSED)
def test_class_weights_that_break_a_rule_are_refused(label: str) -> None:
    with pytest.raises(InputError, match=REFUSED[label]):
        parse_schema(schema(label))


def test_only_classes_have_class_weights() -> None:
    text = schema("weights = { yes = 2 }").replace('classes = ["no", "yes"]', "bounds = [0, 1]")
    with pytest.raises(InputError, match="only classes have weights"):
        parse_schema(text)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[weight]\ncolumn = "sw"\n', r"\[weight\] needs the key max"),
        ('[weight]\ncolumn = "sw"\nmax = 0\n', r"\[weight\] max is 0: it must be a finite number above 0"),
        ('[weight]\ncolumn = "sw"\nmax = -1\n', "max is -1"),
        ('[weight]\ncolumn = "sw"\nmax = inf\n', "max is inf"),
        ('[weight]\ncolumn = "sw"\nmax = "ten"\n', "max is 'ten'"),
        ('[weight]\ncolumn = "age"\nmax = 1\n', r"'age' is also among \[columns\]"),
        ('[weight]\ncolumn = "ill"\nmax = 1\n', "'ill' is also the label column"),
        ('[weight]\ncolumn = "site"\nmax = 1\n', "'site' is also the agent column"),
        ('[unit]\ncolumn = "who"\nmax_records = 1\n[weight]\ncolumn = "who"\nmax = 1\n', "also the unit column"),
        ('[weight]\ncolumn = "sw"\nmax = 1\nlow = 0\n', "no key 'low' in"),
    ],
)
def test_weight_columns_that_break_a_rule_are_refused(more: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_schema(schema("", more))


def test_a_table_without_the_weight_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column 'survey'"):
        read(tmp_path, ROWS, schema("", COLUMN.replace("sw", "survey")))


names = st.lists(st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=5), min_size=2, unique=True)


@given(names, st.data())
def test_a_schema_with_weights_is_written_as_it_was_read(classes: list[str], data: st.DataObject) -> None:
    classes = sorted(name for name in classes if name == name.strip())
    numbers = st.floats(min_value=0.0, exclude_min=True, allow_infinity=False)
    given_weights = tuple(data.draw(numbers) for _ in classes)
    one = replace(parse_schema(schema(CLASSES, COLUMN)), target=Classes(tuple(classes)), class_weights=given_weights)
    try:
        again = parse_schema(one.to_toml())
    except InputError:  # names that are no valid classes
        return
    assert again == one


def test_federations_agree_on_weights() -> None:
    texts = [schema(), schema(CLASSES), schema("", COLUMN), schema("", COLUMN.replace("10", "20"))]
    assert len({schema_hash(parse_schema(text)) for text in texts}) == 4


FRAME = pd.DataFrame({"age": [63, 41], "ill": [1, 0], "sw": [2.0, 3.0]})


def builder() -> Any:
    return taciturn.Schema.from_frame(FRAME).declare(age=(0, 120), ill=[0, 1], label="ill")


def test_a_schema_in_python_declares_weights() -> None:
    built = builder().declare(class_weight={1: 3}, record_weight="sw", max_weight=10).build()
    assert built.class_weights == (1.0, 3.0)
    assert built.weight is not None and (built.weight.column, built.weight.largest) == ("sw", 10.0)
    assert built.features == ("age",)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"class_weight": {2: 1}}, "names the class '2'"),
        ({"class_weight": {1: 0}}, "class_weight of '1' is 0"),
        ({"class_weight": "balanced"}, "class_weight is a str: it must be a dict"),
        ({"record_weight": "sw"}, "record_weight and max_weight belong together"),
        ({"max_weight": 3}, "record_weight and max_weight belong together"),
        ({"record_weight": "sw", "max_weight": -3}, "max_weight is -3: it must be a finite number above 0"),
        ({"record_weight": "survey", "max_weight": 3}, "no column 'survey'"),
    ],
)
def test_declarations_in_python_that_break_a_rule_are_refused(declared: dict[str, Any], message: str) -> None:
    unused = [] if "record_weight" in declared else ["sw"]
    with pytest.raises(InputError, match=message):
        builder().drop(*unused).declare(**declared).build()


def test_class_weights_are_in_the_order_of_the_classes() -> None:
    found: Array = np.array(class_weights("weights", {"b": 2, "a": 5}, ["a", "b", "c"]))
    np.testing.assert_array_equal(found, [5.0, 2.0, 1.0])
