"""The feature map `bins`: a record is a mixture of levels of every column, and of pairs of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import taciturn
from taciturn.data import encode, parse_schema
from taciturn.data.facts import schema_facts
from taciturn.data.feature_mapping import length_share, mapped_names, mapped_rows, schema_shape
from taciturn.data.feature_maps import build_map, width_of
from taciturn.data.feature_maps.bins import KNOTS, PAIR_KNOTS, hat_functions, mapped_blocks, pair_features
from taciturn.data.schema import Schema
from taciturn.data.table_cells import Column, Table, TablePart, factorize
from taciturn.errors import InputError
from taciturn.runs.folder import RunFolder
from taciturn.runs.model import evaluate, read_model
from taciturn.types import GRID, ColumnBlock

from .helpers import schema_text

COLUMNS = """
scale = "{scale}"
[label]
column = "y"
bounds = [0, 1]
[columns.age]
kind = "numeric"
bounds = [0, 100]
[columns.dose]
kind = "numeric"
bounds = [0.01, 100]
scale = "log"
missing = "indicator"
[columns.sex]
kind = "categorical"
categories = ["f", "m"]
[columns.grade]
kind = "categorical"
categories = ["1", "2", "3"]
ordered = true
missing = "indicator"
[columns.town]
kind = "categorical"
buckets = 5
unknown = "missing"
"""
PAIRS = """
[[interactions]]
columns = ["dose", "age"]
[[interactions]]
columns = ["age", "sex"]
[[interactions]]
columns = ["grade", "town"]
"""
NUMBERS = st.sampled_from(["", "x", "-1", "0", "100", "1e9", "0.01"]) | st.floats(0.0, 100.0).map(repr)
ROWS = st.tuples(
    NUMBERS,
    NUMBERS,
    st.sampled_from(["f", "m", "", "d"]),
    st.sampled_from(["1", "2.0", "3", "", "4"]),
    st.text(max_size=3),
)
UNIT = st.floats(0.0, 1.0)


def schema_of(scale: str = "unit", pairs: str = PAIRS) -> Schema:
    return parse_schema(COLUMNS.format(scale=scale) + pairs)


def features_of(rows: Sequence[tuple[str, ...]], schema: Schema, intercept: bool = False) -> NDArray[np.float64]:
    """Encode and map rows of cells."""
    names = [rule.name for rule in schema.columns]
    columns = {name: Column(factorize(row[i] for row in rows)) for i, name in enumerate(names)}
    table = Table(columns, (TablePart("t", "t", None, len(rows)),), folder=False)
    x, _ = encode(table, schema, intercept, "float64", with_label=False)
    return np.asarray(mapped_rows(x, "bins", schema_shape(schema), intercept))


@settings(max_examples=50)
@given(st.lists(UNIT | st.sampled_from(KNOTS.tolist()), min_size=1, max_size=20), st.sampled_from([KNOTS, PAIR_KNOTS]))
def test_hats_are_a_partition_of_unity(positions: list[float], knots: NDArray[np.float64]) -> None:
    u = np.array(positions)
    hats = hat_functions(u, knots)
    steps = GRID * hats
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-9)  # multiples of 1/GRID
    np.testing.assert_array_equal(np.rint(steps).sum(axis=1), GRID)
    assert (hats >= 0.0).all() and (np.count_nonzero(hats, axis=1) <= 2).all()
    for row in hats:  # the two are neighbours
        assert np.ptp(np.flatnonzero(row)) <= 1
    gaps = np.diff(knots).max()
    np.testing.assert_allclose(hats @ (3.0 * knots - 1.0), 3.0 * u - 1.0, atol=3.0 * gaps / GRID)  # linear functions
    np.testing.assert_array_equal(hat_functions(knots, knots), np.eye(len(knots)))


@settings(max_examples=50)
@given(UNIT, UNIT)
def test_the_features_of_a_pair_are_bilinear(u: float, v: float) -> None:
    left, right = hat_functions(np.array([u]), PAIR_KNOTS), hat_functions(np.array([v]), PAIR_KNOTS)
    found = pair_features(left, right)
    assert np.count_nonzero(found) <= 4 and (found >= 0.0).all()
    assert np.rint(GRID * found).sum() == GRID
    np.testing.assert_allclose(found, np.outer(left, right).reshape(1, -1), atol=1.01 / GRID)
    product = np.outer(PAIR_KNOTS, PAIR_KNOTS).ravel()
    assert float((found @ product)[0]) == pytest.approx(u * v, abs=4.0 / GRID)


@settings(max_examples=25, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12), st.sampled_from(["unit", "symmetric"]), st.data())
def test_a_record_is_mapped_the_same_whatever_the_other_records(
    rows: list[tuple[str, ...]], scale: str, data: st.DataObject
) -> None:
    schema = schema_of(scale)
    whole = features_of(rows, schema)
    some = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=15))
    np.testing.assert_array_equal(features_of([rows[i] for i in some], schema), whole[some])


@settings(max_examples=25, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12), st.booleans())
def test_no_column_and_no_record_is_longer_than_its_share(rows: list[tuple[str, ...]], intercept: bool) -> None:
    schema = schema_of()
    found = features_of(rows, schema, intercept)
    blocks, start = mapped_blocks(schema.blocks), 0
    share = math.sqrt(0.5) if intercept else 1.0
    for block in blocks:
        own = found[:, start : start + block.width]
        assert (np.abs(own).sum(axis=1) <= share / math.sqrt(len(blocks)) * (1.0 + 1e-12)).all()
        start += block.width
    assert start + intercept == found.shape[1]
    assert (np.linalg.norm(found, axis=1) <= 1.0 + 1e-12).all()
    if intercept:
        np.testing.assert_array_equal(found[:, -1], length_share(True))


def test_the_scale_of_a_schema_changes_no_level() -> None:
    rows = [("50", "1", "f", "1", "a"), ("99.9", "", "m", "3", "b"), ("0.013", "77", "", "", "")]
    np.testing.assert_allclose(
        features_of(rows, schema_of("unit")), features_of(rows, schema_of("symmetric")), atol=1.01 / GRID
    )


def levels_of(cells: tuple[str, ...], schema: Schema) -> list[dict[str, float]]:
    """Return the levels of each column or pair that a record is in, by the features' names."""
    names = mapped_names("bins", schema.features, schema_shape(schema), False)
    assert len(set(names)) == len(names) == width_of("bins", schema_shape(schema))
    values = (features_of([cells], schema)[0] * math.sqrt(len(schema.blocks))).tolist()
    found, start = [], 0
    for block in mapped_blocks(schema.blocks):
        own = slice(start, start + block.width)
        found.append({name: round(at, 6) for name, at in zip(names[own], values[own], strict=True) if at})
        start = own.stop
    return found


def test_the_levels_of_a_record_have_names() -> None:
    age, dose, sex, grade, town, dose_age, age_sex, grade_town = levels_of(("0", "100", "m", "3", "a"), schema_of())
    last, end = len(KNOTS) - 1, len(PAIR_KNOTS) - 1
    assert (age, dose, sex, grade) == ({"age[0]": 1}, {f"dose[{last}]": 1}, {"sex=m": 1}, {"grade=3": 1})
    (bucket,) = town
    assert dose_age == {f"dose[{end}]*age[0]": 1} and age_sex == {"age[0]*sex=m": 1}
    assert grade_town == {f"grade=3*{bucket}": 1}


def test_a_missing_number_has_its_indicator_alone() -> None:
    age, dose, sex, grade, town, dose_age, age_sex, grade_town = levels_of(("", "", "", "", ""), schema_of())
    assert sum(age.values()) == 1 and "age=missing" not in age  # no indicator: the middle of the bounds
    assert (dose, grade) == ({"dose=missing": 1}, {"grade=missing": 1})
    assert set(dose_age) == {f"dose=missing*{name}" for name in ("age[11]", "age[12]")}
    assert (sex, town, age_sex, grade_town) == ({}, {}, {}, {})


def test_blocks_after_the_map() -> None:
    knots, few = len(KNOTS), len(PAIR_KNOTS)
    assert mapped_blocks(schema_of().blocks) == (
        ColumnBlock("ordered", knots, False),
        ColumnBlock("ordered", knots + 1, True),
        ColumnBlock("categories", 2, False),
        ColumnBlock("ordered", 4, True),
        ColumnBlock("categories", 5, False),
        ColumnBlock("categories", (few + 1) * few, False, (1, 0)),
        ColumnBlock("categories", few * 2, False, (0, 2)),
        ColumnBlock("categories", 20, False, (3, 4)),
    )


def test_other_maps_have_no_pairs() -> None:
    facts = {"intercept": True, "agents": 1, "total_records": 10, "records_max": 10, "test": "none"}
    with pytest.raises(InputError, match=r"\[\[interactions\]\], which features unit does not use: use features bins"):
        schema_facts("t", schema_of(), features="unit", **facts)  # type: ignore[arg-type]
    made = schema_facts("t", schema_of(), features="bins", **facts)  # type: ignore[arg-type]
    assert made.features == 1 + sum(block.width for block in made.blocks)
    assert build_map("bins", schema_shape(schema_of(pairs="")))(np.zeros((1, 13))).shape[1] < made.features


@pytest.mark.parametrize("pair", [False, True])
def test_a_declared_pair_learns_what_no_sum_of_curves_can(pair: bool, tmp_path: Path) -> None:
    """The label is whether a number is large, or whether it is small, depending on a category."""
    drawn = np.random.default_rng(4)
    numbers, sexes = drawn.random(1500), drawn.choice(["f", "m"], 1500)
    rows = [f"{at},{sex},{int((at > 0.5) == (sex == 'f'))}" for at, sex in zip(numbers, sexes, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["at,sex,y", *rows, ""]))
    schema = schema_text("y", ["0", "1"], at=[0, 1], sex=["f", "m"])
    (tmp_path / "s.toml").write_text(schema + pair * '[[interactions]]\ncolumns = ["at", "sex"]\n')
    facts = {"agents": 2, "total_records": 1500, "total_epsilon": 4.0, "rounds": 40}
    run = taciturn.run(data=tmp_path / "t.csv", schema=tmp_path / "s.toml", **facts, out=tmp_path / "run")  # type: ignore[arg-type]
    model = read_model(RunFolder.open(run.path))
    error = evaluate(model, str(tmp_path / "t.csv"))["error"]
    assert error < 0.15 if pair else error > 0.35
