from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.data import draft_schema, encode, parse_schema, read_table
from taciturn.data.schema import Categorical, Numeric
from taciturn.data.table_cells import Column, Table, TablePart, factorize
from taciturn.errors import InputError
from taciturn.types import Classes, Range

from .helpers import write

CELLS = st.text(st.characters(codec="utf-8"), max_size=4) | st.integers(-9, 9).map(str) | st.floats(-1e9, 1e9).map(repr)


def table_of(columns: dict[str, list[str]]) -> Table:
    made: dict[str, Column] = {name: Column(factorize(cells)) for name, cells in columns.items()}
    return Table(made, (TablePart("t", "t", None, len(next(iter(columns.values())))),), folder=False)


@settings(deadline=None)
@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=2, max_size=8),
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=4).map(str.strip), min_size=2, unique=True)
    .map(lambda names: [name for name in names if name])
    .filter(lambda names: len(names) >= 2),
)
def test_a_draft_parses_and_fits_its_table(rows: list[tuple[str, str]], names: list[str]) -> None:
    first, second = names[:2]
    cells = {first: [row[0] for row in rows], second: [row[1] for row in rows], "number": ["1"] * len(rows)}
    label = [str(i % 2) for i in range(len(rows))]
    table = table_of({**cells, "the label": label})
    schema = parse_schema(draft_schema(table, "the label"))
    x, y = encode(table, schema, False, "float64", with_label=True)
    assert x.shape == (len(rows), len(schema.features))
    assert ((x >= 0) & (x <= 1)).all()
    assert y is not None and y.argmax(axis=1).tolist() == [int(text) for text in label]


def test_what_a_draft_says(tmp_path: Path) -> None:
    ids = [f"id{i}" for i in range(60)]
    rows = [f"{i % 10},{'f' if i % 2 else 'm'},{ids[i]},,{'site' + str(i % 3)},{i % 4}" for i in range(60)]
    rows[5] = ",,id5,,site0,1"
    path = write(tmp_path / "t.csv", "\n".join(["age,sex,id,gap,site,y", *rows]))
    text = draft_schema(read_table(path), "y", "site")
    assert text == draft_schema(path, "y", "site")
    schema = parse_schema(text)
    assert (schema.agent, schema.agents) == ("site", ("site0", "site1", "site2"))
    assert 'names = ["site0", "site1", "site2"]  # read off the data' in text
    assert schema.target == Classes(("0", "1", "2", "3"))
    assert schema.columns == (Numeric("age", 0.0, 9.0, "indicator"), Categorical("sex", ("f", "m"), "indicator"))
    assert "READ OFF THE DATA AND ARE NOT PRIVATE" in text.splitlines()[0]
    assert "# column 'id' is left out: it has 60 different values, 60 of them not numbers" in text
    assert "# column 'gap' is left out: it has no values" in text
    assert "bounds = [0.0, 9.0]  # read off the data" in text


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([str(i) for i in range(20)], None),
        ([str(i) for i in range(21)], Range(0.0, 20.0)),
        (["1", "2.5"], Range(1.0, 2.5)),
    ],
)
def test_a_numeric_label_is_classes_or_a_number(values: list[str], bounds: Range | None) -> None:
    target = parse_schema(draft_schema(table_of({"a": values, "y": values}), "y")).target
    assert target == (bounds or Classes(tuple(sorted(values))))


def test_few_whole_numbers_are_categories() -> None:
    cells = {"flag": ["0", "1.0", "0.0", "1"], "code": ["1", "2", "9", ""], "half": ["0", "0.5", "1", "0"]}
    text = draft_schema(table_of({**cells, "y": ["n", "y", "n", "y"]}), "y")
    assert parse_schema(text).columns == (
        Categorical("flag", ("0", "1")),
        Categorical("code", ("1", "2", "9"), "indicator"),
        Numeric("half", 0.0, 1.0),
    )
    (line,) = [line for line in text.splitlines() if '"9"' in line]
    assert "# read off the data; ordered = true or kind =" in line and "bounds = [1, 9]" in line
    many = [str(i) for i in range(9)]
    assert parse_schema(draft_schema(table_of({"a": many, "y": many}), "y")).columns == (Numeric("a", 0.0, 8.0),)


def test_a_scale_is_suggested_for_skewed_columns() -> None:
    cells = {"even": [str(i / 2) for i in range(20)], "pay": [str(1.5**i) for i in range(20)]}
    cells["gain"] = ["0"] * 15 + [str(100.5 * i) for i in range(5)]
    cells["loss"] = [str(-(1.5**i)) for i in range(20)]
    lines = draft_schema(table_of({**cells, "y": ["n", "y"] * 10}), "y").splitlines()
    advice = [line.partition("consider ")[2] for line in lines if line.startswith("bounds")]
    assert advice == ["", 'scale = "log"', 'scale = "asinh"', ""]  # comments: the owner decides


def test_one_number_written_in_two_ways_is_one_value() -> None:
    cells = ["1", "1.0", "x", "2"]
    schema = parse_schema(draft_schema(table_of({"a": cells, "y": ["0", "0.0", "1", "1.0"]}), "y"))
    assert schema.columns == (Categorical("a", ("1", "2", "x")),) and schema.target == Classes(("0", "1"))


def test_a_constant_column_gets_room() -> None:
    text = draft_schema(table_of({"a": ["5", "5"], "y": ["n", "y"]}), "y")
    assert parse_schema(text).columns == (Numeric("a", 5.0, 6.0),)
    assert "# the data has the one value 5.0" in text


def test_what_cannot_be_drafted() -> None:
    table = table_of({"a": ["1", "2"], "y": ["n", "n"], "z": ["n", "m"]})
    with pytest.raises(InputError, match=r"^no column 'yy' among the 3 of the table: compare it"):
        draft_schema(table, "yy")
    with pytest.raises(InputError, match=r"^no column 'site' among the 3 of the table: compare it"):
        draft_schema(table, "z", "site")
    with pytest.raises(InputError, match=r"^column 'y' holds 1 different values: a label needs at least two$"):
        draft_schema(table, "y")
    with pytest.raises(InputError, match=r"^column 'z' cannot be both the label and the agent$"):
        draft_schema(table, "z", "z")
    with pytest.raises(InputError, match=r"^no column is left to learn from: a table needs one besides the label"):
        draft_schema(table_of({"y": ["n", "m"]}), "y")
    with pytest.raises(InputError, match=r"^column 'a': its values are too far apart to scale$"):
        draft_schema(table_of({"a": ["-1e308", "1e308"], "y": ["n", "m"]}), "y")


def test_a_number_that_no_two_records_share_is_left_out() -> None:
    rows = "\n".join(f"{1000 + i},{i % 7}.5,{'ab'[i % 2]}" for i in range(60))
    path = Path(tempfile.mkdtemp()) / "t.csv"
    path.write_text("id,x,y\n" + rows + "\n")
    text = draft_schema(path, "y")
    assert "# column 'id' is left out: it is a whole number that no two records share, so it looks like an ID" in text
    assert [column.name for column in parse_schema(text).columns] == ["x"]


def test_one_bad_cell_is_named() -> None:
    rows = "\n".join(f"{i}.5,{'ab'[i % 2]},u" for i in range(60))
    path = Path(tempfile.mkdtemp()) / "t.csv"
    path.write_text("x,y,z\nfifty,a,v\n" + rows + "\n")
    assert "# column 'x' is left out: it has 61 different values, 1 of them not numbers ('fifty')" in draft_schema(
        path, "y"
    )
