from __future__ import annotations

import csv
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.data import read_table
from taciturn.data.table_cells import is_missing
from taciturn.errors import InputError

from .helpers import write

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=5)
TABLES = st.integers(2, 4).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=6)
)


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@settings(deadline=None)
@given(TABLES, st.booleans())
def test_csv_cells_come_back_without_their_blanks(rows: list[list[str]], marked: bool) -> None:
    names = [f"c{i}" for i in range(len(rows[0]))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.csv")
        with path.open("w", encoding="utf-8-sig" if marked else "utf-8", newline="") as file:
            csv.writer(file).writerows([names, *rows])
        table = read_table(path)
    assert list(table.columns) == names
    for i, name in enumerate(names):
        assert table.texts(name) == [None if is_missing(row[i]) else row[i].strip() for row in rows]


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6))
def test_numbers_come_back_exactly(values: list[float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "t.csv"), "a\n" + "\n".join(map(repr, values)))
        assert read_table(path).numbers("a").tolist() == values
        path = write_parquet(Path(folder, "t.parquet"), {"a": values})
        assert read_table(path).numbers("a").tolist() == values


@pytest.mark.parametrize("mark", ["", "NA", "NaN", "nan", "null", "NULL", "na", "  "])
def test_missing_values(tmp_path: Path, mark: str) -> None:
    table = read_table(write(tmp_path / "t.csv", f"a,b\n1,x\n{mark},y\n"))
    assert table.texts("a") == ["1", None]
    assert math.isnan(table.numbers("a")[1])


@pytest.mark.parametrize("text", ["abc", "1_000", "inf", "-Infinity", "1e999", "١", "1,5", "0x10", "--1"])
def test_numbers_are_parsed_strictly(tmp_path: Path, text: str) -> None:
    table = read_table(write(tmp_path / "t.csv", f'a,b\n1,2\n\n"{text}",3\n'))
    with pytest.raises(InputError, match=r"^column 'a': the cell on line 4 of t\.csv is not a number$"):
        table.numbers("a")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", r"t\.csv is empty: it must begin with a header line$"),
        ("\n\n", r"t\.csv is empty"),
        ("a,b\n", r"t\.csv has a header but no records$"),
        ("a,b,a\n1,2,3\n", r"t\.csv: columns 1 and 3 have the same name$"),
        ("a,,b\n1,2,3\n", r"t\.csv: column 2 has no name in the header$"),
        ("a,b\n1,2\n3\n", r"t\.csv: line 3 has 1 cells but the header has 2$"),
        ("a,b\n1,2,3\n", r"t\.csv: line 2 has 3 cells but the header has 2$"),
        ('a,b\n1,"2\n', r"t\.csv: line \d is not CSV: "),
        ('a,b\n1,"2"3\n', r"t\.csv: line 2 is not CSV: "),
    ],
)
def test_a_wrong_csv_file(tmp_path: Path, content: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_table(write(tmp_path / "t.csv", content))


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff,1\n")
    with pytest.raises(
        InputError, match=r"t\.csv is not UTF-8 text \(invalid start byte at byte 4\): save it as UTF-8$"
    ):
        read_table(tmp_path / "t.csv")


def test_parquet_columns(tmp_path: Path) -> None:
    columns = {
        "whole": [1, None, 3],
        "half": [0.5, float("nan"), None],
        "large": [2**60 + 1, 2, None],
        "yes": [True, False, None],
        "text": ["x", "NA", None],
        "list": [[1], [2], None],
    }
    table = read_table(write_parquet(tmp_path / "t.parquet", columns))
    assert table.rows == 3
    assert table.texts("whole") == ["1", None, "3"]
    assert table.texts("half") == ["0.5", None, None]
    assert table.texts("large") == [str(2**60 + 1), "2", None]
    assert table.texts("yes") == ["true", "false", None]
    assert table.texts("text") == ["x", None, None]
    assert table.texts("list") == ["[1]", "[2]", None]
    assert table.column("whole").numeric and not table.column("large").numeric
    with pytest.raises(InputError, match=r"^column 'text': the cell in row 1 of t\.parquet is not a number$"):
        table.numbers("text")


def test_a_wrong_parquet_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"bad\.parquet cannot be read: "):
        read_table(tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=r"none\.parquet has columns but no records$"):
        read_table(write_parquet(tmp_path / "none.parquet", {"a": pa.array([], pa.float64())}))
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(InputError, match=r"twice\.parquet: columns 1 and 2 have the same name$"):
        read_table(tmp_path / "twice.parquet")
    inf = read_table(write_parquet(tmp_path / "inf.parquet", {"a": [1.0, float("inf")]}))
    with pytest.raises(InputError, match=r"^column 'a': the cell in row 2 of inf\.parquet is not a number$"):
        inf.numbers("a")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"twice\.parquet needs pyarrow: pip install 'taciturn\[parquet\]'$"):
        read_table(tmp_path / "twice.parquet")


def test_a_folder_has_one_file_for_each_agent(tmp_path: Path) -> None:
    write(tmp_path / "south.csv", "b,a\nx,1\n")
    write_parquet(tmp_path / "north.parquet", {"a": [2, 3], "b": ["y", "z"]})
    write(tmp_path / "notes.txt", "not a table")
    write(tmp_path / ".hidden.csv", "")
    table = read_table(tmp_path)
    assert table.folder and table.rows == 3
    assert [(part.agent, part.rows) for part in table.parts] == [("north", 2), ("south", 1)]
    assert table.texts("a") == ["2", "3", "1"]
    assert table.where(1) == "in row 2 of north.parquet"
    assert table.where(2) == "on line 2 of south.csv"
    np.testing.assert_array_equal(table.numbers("a"), [2, 3, 1])


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no \.csv or \.parquet file: put one there for each agent$"):
        read_table(tmp_path)
    write(tmp_path / "one.csv", "a,b\n1,2\n")
    write(tmp_path / "two.csv", "a\n1\n")
    with pytest.raises(InputError, match=r"^column 2 of one\.csv is not in two\.csv: the files in .* same columns"):
        read_table(tmp_path)
    write(tmp_path / "two.csv", "a,b,c\n1,2,3\n")
    with pytest.raises(InputError, match=r"^column 3 of two\.csv is not in one\.csv"):
        read_table(tmp_path)
    write(tmp_path / "two.csv", "a,b\n1,2\n")
    write_parquet(tmp_path / "one.parquet", {"a": [1], "b": [2]})
    with pytest.raises(InputError, match=r"^two files in .* are named 'one': an agent has one file$"):
        read_table(tmp_path)


def test_paths_that_are_not_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^there is no file .*none\.csv$"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(
        InputError, match=r"t\.xlsx is not a table: give a \.csv or \.parquet file, or a folder of such"
    ):
        read_table(tmp_path / "t.xlsx")
    with pytest.raises(InputError, match=r"^no column 'Age' among the 1 of the table: it has 'age'$"):
        read_table(write(tmp_path / "t.csv", "age\n1\n")).column("Age")


@pytest.mark.parametrize("sign", [";", "\t"])
def test_other_separators_are_named(tmp_path: Path, sign: str) -> None:
    write(tmp_path / "t.csv", sign.join("abc") + "\n" + sign.join("123") + "\n")
    with pytest.raises(InputError, match="columns are separated by commas"):
        read_table(tmp_path / "t.csv")
