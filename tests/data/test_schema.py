from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.data.schema import Categorical, ColumnRule, Numeric, Schema, Unit, dump_schema, parse_schema, read_schema
from taciturn.data.table_cells import is_missing
from taciturn.errors import InputError
from taciturn.types import Classes, Range

from .helpers import write

GOOD = """
scale = "symmetric"
[label]
column = "diagnosis"
classes = ["malignant", "benign"]
[agent]
column = "site"
[unit]
column = "patient"
max_records = 3
[columns.age]
kind = "numeric"
bounds = [0, 120.0]
missing = "middle"
[columns.sex]
kind = "categorical"
categories = ["m", "f"]
missing = "none"
"""

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).map(str.strip).filter(lambda n: not is_missing(n))
NUMBERS = st.floats(-1e150, 1e150)
BOUNDS = st.tuples(NUMBERS, NUMBERS).map(sorted).filter(lambda pair: pair[0] < pair[1])
NAME_LISTS = st.lists(NAMES, min_size=2, max_size=4, unique=True).map(tuple)


@st.composite
def rules(draw: st.DrawFn, name: str) -> ColumnRule:
    if draw(st.booleans()):
        low, high = draw(BOUNDS)
        missing = draw(st.sampled_from(["low", "middle", "high"]) | st.floats(low, high))
        return Numeric(name, low, high, missing)
    categories = draw(NAME_LISTS)
    return Categorical(name, categories, draw(st.sampled_from(["none", *categories])))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    label, agent, person, *columns = draw(st.lists(NAMES, min_size=4, max_size=7, unique=True))
    target = Classes(tuple(sorted(draw(NAME_LISTS)))) if draw(st.booleans()) else Range(*draw(BOUNDS))
    scale = draw(st.sampled_from(["unit", "symmetric"]))
    unit = draw(st.none() | st.builds(Unit, st.just(person), st.integers(1)))
    owner = draw(st.sampled_from([agent, None]))
    return Schema(label, target, tuple(draw(rules(c)) for c in columns), owner, scale, unit)


@given(schemas())
def test_what_is_dumped_parses_to_the_same(schema: Schema) -> None:
    assert parse_schema(dump_schema(schema)) == schema


@given(BOUNDS, st.lists(NUMBERS, min_size=1), st.sampled_from(["unit", "symmetric"]))
def test_scaling_maps_the_bounds_and_is_monotone(bounds: list[float], values: list[float], scale: str) -> None:
    low, high = bounds
    rule = Numeric("a", low, high)
    start = 0.0 if scale == "unit" else -1.0
    assert rule.scaled(np.array([low, high]), scale).tolist() == [start, 1.0]
    scaled = rule.scaled(np.sort(values), scale)
    assert (np.diff(scaled) >= 0).all()
    assert ((scaled >= start) & (scaled <= 1)).all()


def test_a_good_schema() -> None:
    schema = parse_schema(GOOD)
    assert schema == Schema(
        "diagnosis",
        Classes(("benign", "malignant")),
        (Numeric("age", 0.0, 120.0, "middle"), Categorical("sex", ("m", "f"), "none")),
        "site",
        "symmetric",
        Unit("patient", 3),
    )
    assert schema.features == ("age", "sex=m", "sex=f")


def test_what_is_left_out_has_a_default() -> None:
    schema = parse_schema('[label]\ncolumn="y"\nbounds=[0,300]\n[columns.a]\nkind="numeric"\nbounds=[0,1]\n')
    assert schema == Schema("y", Range(0.0, 300.0), (Numeric("a", 0.0, 1.0, "middle"),), None, "unit", None)


def test_whole_numbers_may_be_names() -> None:
    schema = parse_schema(GOOD.replace('["malignant", "benign"]', "[1, 0]"))
    assert schema.target == Classes(("0", "1"))


@pytest.mark.parametrize(("missing", "fill"), [("low", 10.0), ("middle", 20.0), ("high", 30.0), (12.5, 12.5)])
def test_the_rules_for_missing_numbers(missing: str | float, fill: float) -> None:
    assert Numeric("a", 10.0, 30.0, missing).fill == fill


WRONG = [
    (
        'scale = "symmetric"',
        'scale = "unitt"',
        r"no scale 'unitt' \(did you mean 'unit'\?\): there are symmetric, unit$",
    ),
    ('scale = "symmetric"', 'scael = "unit"', r"no key in the schema 'scael' \(did you mean 'scale'\?\)"),
    (
        "[agent]\ncolumn",
        "[agent]\ncolum",
        r"no key in \[agent\] 'colum' \(did you mean 'column'\?\): there are column, names$",
    ),
    ("[agent]\ncolumn", "[agents]\ncolumn", r"no key in the schema 'agents' \(did you mean 'agent'\?\)"),
    ("classes =", "class =", r"no key in \[label\] 'class' \(did you mean 'classes'\?\)"),
    (
        'missing = "none"',
        "bounds = [0, 1]",
        r"no key in \[columns.sex\] 'bounds': there are categories, kind, missing$",
    ),
    ("bounds = [0, 120.0]", "categories = []", r"no key in \[columns.age\] 'categories'"),
    ('["malignant", "benign"]', "[]", r"\[label\] classes is \[\]: it must be a list of at least one name$"),
    ('["malignant", "benign"]', '"benign"', r"\[label\] classes is 'benign': it must be a list of at least one name$"),
    ('["malignant", "benign"]', '["benign"]', r"\[label\] has the one class 'benign': there must be at least two$"),
    ('["malignant", "benign"]', '["a", "a"]', r"\[label\] classes holds 'a' twice$"),
    (
        '["malignant", "benign"]',
        "[1, 1.5]",
        r"\[label\] classes holds 1\.5: a name must be a string in quotes or a whole",
    ),
    ('["malignant", "benign"]', "[true, false]", r"\[label\] classes holds True: a name must be"),
    ('["m", "f"]', "[]", r"\[columns.sex\] categories is \[\]: it must be a list of at least one name$"),
    ('["m", "f"]', '["m", "f", "m"]', r"\[columns.sex\] categories holds 'm' twice$"),
    ('["m", "f"]', '["m", "NA"]', r"\[columns.sex\] categories holds 'NA': in a table that is a missing value$"),
    ('["m", "f"]', '["m", " f"]', r"\[columns.sex\] categories holds ' f': a name cannot begin or end with a space$"),
    ('categories = ["m", "f"]', "", r"\[columns.sex\] needs the key categories$"),
    ("[0, 120.0]", "[120, 0]", r"\[columns.age\] bounds is \[120, 0\]: the first must be below the second$"),
    ("[0, 120.0]", "[1, 1]", r"\[columns.age\] bounds is \[1, 1\]: the first must be below the second$"),
    ("[0, 120.0]", "[0, inf]", r"\[columns.age\] bounds is \[0, inf\]: both must be finite$"),
    ("[0, 120.0]", "[nan, 1]", r"\[columns.age\] bounds is \[nan, 1\]: both must be finite$"),
    ("[0, 120.0]", "[0, 1" + "0" * 400 + "]", r"\[columns.age\] bounds is \[0, inf\]: both must be finite$"),
    ("[0, 120.0]", "[-1e308, 1e308]", r"\[columns.age\] bounds is .*: both must be finite$"),
    ("[0, 120.0]", "[0]", r"\[columns.age\] bounds is \[0\]: it must be two numbers, \[low, high\]$"),
    ("[0, 120.0]", "[0, true]", r"\[columns.age\] bounds is \[0, True\]: it must be two numbers"),
    ("[0, 120.0]", "7", r"\[columns.age\] bounds is 7: it must be two numbers"),
    ("bounds = [0, 120.0]", "", r"\[columns.age\] needs the key bounds$"),
    (
        '"middle"',
        '"midle"',
        r"no missing rule in \[columns.age\] 'midle' \(did you mean 'middle'\?\): there are a number",
    ),
    ('"middle"', "121", r"\[columns.age\] missing is 121: a number must be within the bounds 0\.\.120$"),
    ('"middle"', "nan", r"\[columns.age\] missing is nan: a number must be within"),
    ('"none"', '"x"', r"no missing rule in \[columns.sex\] 'x': there are f, m, none$"),
    ('"numeric"', '"numerical"', r"no kind in \[columns.age\] 'numerical' \(did you mean 'numeric'\?\)"),
    ('kind = "numeric"', "", r"\[columns.age\] needs the key kind$"),
    ('kind = "numeric"', "kind = 3", r"\[columns.age\] kind is 3: it must be a string in quotes$"),
    ('"diagnosis"', '"age"', r"the label column 'age' is also among \[columns\]: it cannot be a feature$"),
    ('"site"', '"diagnosis"', r"the agent column 'diagnosis' is also the label column$"),
    ("classes =", "bounds = [0, 1]\nclasses =", r"\[label\] needs either classes or bounds, and not both$"),
    ('classes = ["malignant", "benign"]', "", r"\[label\] needs either classes or bounds"),
    ('[label]\ncolumn = "diagnosis"', "[label]", r"\[label\] needs the key column$"),
    ("[label]", "[label", r"Expected"),
    (
        "max_records",
        "records_max",
        r"no key in \[unit\] 'records_max' \(did you mean 'max_records'\?\): there are column",
    ),
    ("max_records = 3", "", r"\[unit\] needs the key max_records$"),
    ('column = "patient"', "", r"\[unit\] needs the key column$"),
    ("max_records = 3", "max_records = 0", r"\[unit\] max_records is 0: it must be a whole number of at least 1$"),
    ("max_records = 3", "max_records = 1.5", r"\[unit\] max_records is 1\.5: it must be a whole number of at least 1$"),
    (
        "max_records = 3",
        "max_records = true",
        r"\[unit\] max_records is True: it must be a whole number of at least 1$",
    ),
    ('"patient"', '"diagnosis"', r"the unit column 'diagnosis' is also the label column: use a different"),
    ('"patient"', '"site"', r"the unit column 'site' is also the agent column: use a different column$"),
    ('"patient"', '"age"', r"the unit column 'age' is also among \[columns\]: an identifier cannot be a feature$"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), WRONG)
def test_a_wrong_schema(old: str, new: str, sentence: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(InputError, match=f"^s.toml: {sentence}"):
        parse_schema(GOOD.replace(old, new), "s.toml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"^schema: there is no section \[label\]$"),
        ("label = 3", r"^schema: label is 3: it must be a section \[label\]$"),
        ('[label]\ncolumn = "y"\nbounds = [0, 1]', r"^schema: there is no section \[columns\]$"),
        ('[label]\ncolumn = "y"\nbounds = [0, 1]\n[columns]', r"^schema: \[columns\] is empty: there must be at least"),
        ('[label]\ncolumn = "y"\nbounds = [0, 1]\n[columns]\na = 1', r"^schema: columns.a is 1: it must be a section"),
    ],
)
def test_missing_sections(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_schema(text)


def test_schema_files(tmp_path: Path) -> None:
    assert read_schema(write(tmp_path / "s.toml", GOOD)) == parse_schema(GOOD)
    with pytest.raises(InputError, match=r"^there is no schema .*none\.toml"):
        read_schema(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"bad\.toml is not UTF-8 text$"):
        read_schema(tmp_path / "bad.toml")
