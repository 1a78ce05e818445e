from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.data import encode
from taciturn.data.feature_maps.bins import PAIR_KNOTS
from taciturn.data.schema import Categorical, ColumnRule, Numeric, Schema, Unit, dump_schema
from taciturn.data.schema_parser import parse_schema, read_schema
from taciturn.data.table_cells import Column, Table, TablePart, factorize, is_missing, whole_number
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

UNIT = st.floats(0.0, 1.0)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).map(str.strip).filter(lambda n: not is_missing(n))
NUMBERS = st.floats(-1e150, 1e150)
BOUNDS = st.tuples(NUMBERS, NUMBERS).map(sorted).filter(lambda pair: pair[0] < pair[1])
SCALED_BOUNDS = {
    "log": st.tuples(st.floats(1e-9, 1e9), st.floats(1.01, 1e9)).map(lambda pair: (pair[0], pair[0] * pair[1])),
    "asinh": st.tuples(st.floats(-1e9, 1e9), st.floats(1.0, 1e9)).map(lambda pair: (pair[0], pair[0] + pair[1])),
}


def value_of(name: str) -> int | str:
    """Return what a name means in a table: 1 and 1.0 are one number."""
    number = whole_number(name)
    return name if number is None else number


NAME_LISTS = (
    st.lists(NAMES, min_size=2, max_size=4, unique_by=value_of)
    .filter(lambda names: not {"missing", "other"} & set(names))
    .map(tuple)
)


@st.composite
def rules(draw: st.DrawFn, name: str) -> ColumnRule:
    if draw(st.booleans()):
        scale = draw(st.sampled_from(["linear", "log", "asinh"]))
        low, high = draw(BOUNDS if scale == "linear" else SCALED_BOUNDS[scale])
        missing = draw(st.sampled_from(["low", "middle", "high", "indicator"]) | st.floats(low, high))
        return Numeric(name, low, high, missing, scale, draw(st.floats(1e-3, 1e3)) if scale == "asinh" else 1.0)
    if draw(st.booleans()):
        missing = draw(st.sampled_from(["none", "indicator"]))
        return Categorical(name, (), missing, buckets=draw(st.integers(1, 4096)))
    categories, unknown = draw(NAME_LISTS), draw(st.sampled_from(["missing", "other"]))
    missing = draw(st.sampled_from(["none", "indicator", *categories]))
    return Categorical(name, categories, missing, unknown, unknown == "missing" and draw(st.booleans()))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    label, agent, person, *columns = draw(st.lists(NAMES, min_size=4, max_size=7, unique=True))
    target = Classes(tuple(sorted(draw(NAME_LISTS)))) if draw(st.booleans()) else Range(*draw(BOUNDS))
    scale = draw(st.sampled_from(["unit", "symmetric"]))
    unit = draw(st.none() | st.builds(Unit, st.just(person), st.integers(1)))
    owner = draw(st.sampled_from([agent, None]))
    own = tuple(draw(rules(c)) for c in columns)
    small = [rule.name for rule in own if len(rule.features) <= 32]
    pairs = (tuple(small[:2]),) if len(small) >= 2 and draw(st.booleans()) else ()
    return Schema(label, target, own, owner, scale, unit, interactions=pairs)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
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


@settings(max_examples=60)
@given(st.data(), st.sampled_from(["linear", "log", "asinh"]), st.lists(UNIT, min_size=1, max_size=20))
def test_a_scale_inverts_and_clips(data: st.DataObject, scale: str, shares: list[float]) -> None:
    low, high = data.draw(st.just((-7.0, 1e4)) if scale == "linear" else SCALED_BOUNDS[scale])
    rule = Numeric("a", low, high, scale=scale, step=0.5 if scale == "asinh" else 1.0)
    values = low + np.sort(shares) * (high - low)
    u = rule.scaled(values, "unit")
    assert (np.diff(u) >= 0.0).all() and ((u >= 0.0) & (u <= 1.0)).all()
    lost = 1e-6 * max(abs(low), abs(high))  # to the arithmetic of a scale
    np.testing.assert_allclose(rule.unstretched(u), values, rtol=1e-6, atol=lost)
    np.testing.assert_allclose(rule.scaled(values, "symmetric"), 2.0 * u - 1.0, atol=1e-15)
    outside = np.array([-1e300, low, high, 1e300])
    np.testing.assert_array_equal(rule.scaled(outside, "unit"), [0.0, 0.0, 1.0, 1.0])
    assert low <= rule.fill <= high and (
        high - low < lost or rule.scaled(np.array([rule.fill]), "unit")[0] == pytest.approx(0.5, abs=1e-6)
    )


def encoded(rule: ColumnRule, cells: list[str]) -> list[dict[str, float]]:
    """Return the features of each cell that are not 0, by name."""
    table = Table({rule.name: Column(factorize(cells))}, (TablePart("t", "t", None, len(cells)),), folder=False)
    schema = Schema("y", Range(0.0, 1.0), (rule,))
    x, _ = encode(table, schema, False, "float64", with_label=False)
    return [{name: at for name, at in zip(schema.features, row, strict=True) if at} for row in x.tolist()]


def test_a_missing_number_with_an_indicator_is_the_middle_and_says_so() -> None:
    rule = Numeric("a", 1.0, 100.0, "indicator", "log")
    found = encoded(rule, ["", "text", "inf", "100", "1000"])
    assert found == [{"a": 0.5, "a=missing": 1.0}] * 3 + [{"a": 1.0}] * 2


def test_values_that_are_not_declared_are_other_or_missing() -> None:
    cells = ["f", "d", "NA", ""]
    for missing, unknown, wanted in (
        ("none", "missing", ["a=f", None, None, None]),
        ("none", "other", ["a=f", "a=other", None, None]),
        ("indicator", "missing", ["a=f", "a=missing", "a=missing", "a=missing"]),
        ("indicator", "other", ["a=f", "a=other", "a=missing", "a=missing"]),
        ("m", "missing", ["a=f", "a=m", "a=m", "a=m"]),
        ("m", "other", ["a=f", "a=other", "a=m", "a=m"]),
    ):
        found = encoded(Categorical("a", ("f", "m"), missing, unknown), cells)
        assert found == [{} if name is None else {name: 1.0} for name in wanted]


def test_a_whole_number_is_one_category_however_it_is_written() -> None:
    found = encoded(Categorical("a", ("1", "2.0", "x")), ["1", "1.0", "01", "2", "2.0", "1.5", "x"])
    assert found == [{"a=1": 1.0}] * 3 + [{"a=2.0": 1.0}] * 2 + [{}, {"a=x": 1.0}]


def test_categories_in_order_keep_the_schemas_order() -> None:
    rule = Categorical("a", ("low", "middle", "high"), "indicator", ordered=True)
    assert rule.values == ("low", "middle", "high", "missing")
    assert (rule.block.kind, rule.block.width, rule.block.missing) == ("ordered", 4, True)
    assert Categorical("a", ("b", "a")).block.kind == "categories"


@settings(max_examples=60)
@given(st.lists(st.text(max_size=5), min_size=1, max_size=10), st.integers(1, 50))
def test_every_value_of_a_hashed_column_has_one_feature(cells: list[str], buckets: int) -> None:
    rule = Categorical("a", (), "indicator", buckets=buckets)
    for cell, found in zip(cells, encoded(rule, cells), strict=True):
        (name,) = found
        assert name == ("a=missing" if is_missing(cell) else f"a=#{rule.bucket(cell.strip())}")
        assert [found] == encoded(rule, [cell])


def test_hashes_are_the_same_everywhere() -> None:
    """Models depend on them, so they must never change."""
    rule = Categorical("a", (), buckets=1000)
    assert [rule.bucket(text) for text in ("Paris", "Roma", "1", "1.0", "\ud800")] == [798, 814, 913, 913, 372]


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
    ('scale = "symmetric"', 'scael = "unit"', r"no key 'scael' in the schema \(did you mean 'scale'\?\)"),
    (
        "[agent]\ncolumn",
        "[agent]\ncolum",
        r"no key 'colum' in \[agent\] \(did you mean 'column'\?\): there are column, names$",
    ),
    ("[agent]\ncolumn", "[agents]\ncolumn", r"no key 'agents' in the schema \(did you mean 'agent'\?\)"),
    ("classes =", "class =", r"no key 'class' in \[label\] \(did you mean 'classes'\?\)"),
    (
        'missing = "none"',
        "bounds = [0, 1]",
        r"no key 'bounds' in \[columns.sex\]: there are buckets, categories, kind, missing, ordered, unknown$",
    ),
    ("bounds = [0, 120.0]", "categories = []", r"no key 'categories' in \[columns.age\]"),
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
    ('categories = ["m", "f"]', "", r"\[columns.sex\] needs either categories or buckets, and not both$"),
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
        r"no missing rule 'midle' in \[columns.age\] \(did you mean 'middle'\?\): there are a number",
    ),
    ('"middle"', "121", r"\[columns.age\] missing is 121: a number must be within the bounds 0\.\.120$"),
    ('"middle"', "nan", r"\[columns.age\] missing is nan: a number must be within"),
    ('"none"', '"x"', r"no missing rule 'x' in \[columns.sex\]: there are f, indicator, m, none$"),
    ('"numeric"', '"numerical"', r"no kind 'numerical' in \[columns.age\] \(did you mean 'numeric'\?\)"),
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
        r"no key 'records_max' in \[unit\] \(did you mean 'max_records'\?\): there are column",
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
    *(
        ("bounds = [0, 120.0]", f"bounds = [{bounds}]\n{line}", rf"\[columns.age\] {sentence}")
        for bounds, line, sentence in (
            ("0, 1", 'scale = "log"', r'has scale "log" and the lower bound 0: it must be above 0, or use "asinh"$'),
            ("0, 1", 'scale = "asinh"\nstep = 0', r"step is 0: it must be a number above 0$"),
            ("0, 1", 'scale = "asinh"\nstep = "a"', r"step is 'a': it must be a number above 0$"),
            ("0, 1", "step = 2", r'has a step, which only scale = "asinh" uses$'),
            ("1e15, 1000000000000000.1", 'scale = "log"', r"has the bounds .* too close or too large for scale"),
            ("0, 1e300", 'scale = "asinh"\nstep = 1e-300', r"has the bounds .* too close or too large for scale"),
        )
    ),
    (
        "bounds = [0, 120.0]",
        'bounds = [1, 2]\nscale = "logg"',
        r"no scale 'logg' in \[columns.age\] \(did you mean 'log'\?\): there are asinh, linear, log$",
    ),
    *(
        ('categories = ["m", "f"]', lines, rf"\[columns.sex\] {sentence}")
        for lines, sentence in (
            ('categories = ["m"]\nbuckets = 3', r"needs either categories or buckets, and not both$"),
            ("buckets = 5000", r"buckets is 5000: it must be at most 4096$"),
            ("buckets = 0", r"buckets is 0: it must be a whole number of at least 1$"),
            ("buckets = 3\nordered = true", r"has buckets, whose values are neither ordered nor unknown"),
            ('categories = ["m"]\nordered = 1', r"ordered is 1: it must be true or false$"),
            ('categories = ["m"]\nordered = true\nunknown = "other"', r"is ordered, and an unknown value has no place"),
            ('categories = ["other"]\nunknown = "other"', r"has a category of the same name as the feature for"),
            ('categories = ["1", "x", "1.0"]', r"categories holds '1' and '1\.0': these are the same number$"),
        )
    ),
    (
        'categories = ["m", "f"]',
        'categories = ["m"]\nunknown = "others"',
        r"no unknown rule 'others' in \[columns.sex\] \(did you mean 'other'\?\): there are missing, other$",
    ),
    ('["malignant", "benign"]', '["0", "00"]', r"\[label\] classes holds '0' and '00': these are the same number$"),
    ('"patient"', '"age"', r"the unit column 'age' is also among \[columns\]: an identifier cannot be a feature$"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), WRONG)
def test_a_wrong_schema(old: str, new: str, sentence: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(InputError, match=f"^s.toml: {sentence}"):
        parse_schema(GOOD.replace(old, new), "s.toml")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("interactions = 3", r"interactions is 3: it must be sections \[\[interactions\]\]$"),
        ("[[interactions]]", r"\[\[interactions\]\] needs the key columns$"),
        ('[[interactions]]\npair = ["age", "sex"]', r"no key 'pair' in \[\[interactions\]\]: there is columns$"),
        ('[[interactions]]\ncolumns = ["age"]', r"columns is \['age'\]: it must be a list of two different names$"),
        ('[[interactions]]\ncolumns = ["age", "age"]', r"columns is .*: it must be a list of two different names$"),
        (
            '[[interactions]]\ncolumns = ["age", "sexx"]',
            r"no column 'sexx' in \[\[interactions\]\] \(did you mean 'sex'",
        ),
        (2 * '[[interactions]]\ncolumns = ["age", "sex"]\n', r"'age' and 'sex', a pair that is declared already$"),
    ],
)
def test_wrong_pairs(lines: str, sentence: str) -> None:
    text = lines + GOOD if lines.startswith("interactions") else GOOD + lines
    with pytest.raises(InputError, match=sentence):
        parse_schema(text)
    assert parse_schema(GOOD + '[[interactions]]\ncolumns = ["sex", "age"]').interactions == (("sex", "age"),)


def test_a_pair_has_at_most_1024_features() -> None:
    pair = '[[interactions]]\ncolumns = ["age", "sex"]'
    few = GOOD.replace('categories = ["m", "f"]', f"buckets = {1024 // len(PAIR_KNOTS)}") + pair
    assert len(parse_schema(few).interactions) == 1
    many = GOOD.replace('categories = ["m", "f"]', f"buckets = {1024 // len(PAIR_KNOTS) + 1}") + pair
    with pytest.raises(InputError, match=r"'sex' \d+, so the pair has \d+ features: it must have at most 1024$"):
        parse_schema(many)


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
