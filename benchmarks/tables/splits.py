"""The tables as files and frames that every method gets alike: cleaned, split, and dealt to the parties."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.program import ROOT, RUNS
from numpy.typing import NDArray

from taciturn.data import data_folder
from taciturn.data.schema import Categorical, Schema
from taciturn.data.schema_parser import read_schema
from taciturn.types import Classes

SCHEMAS = ROOT / "benchmarks" / "table_schemas"
WORK = RUNS / "tables"
TEST_SHARE = 0.2
MISSING = "missing"  # the category of a missing value, for libraries that refuse one
ZERO_IS_MISSING = ("trestbps", "chol")  # in heart: no living patient has 0

Row = dict[str, str]


@dataclass(frozen=True)
class TableSource:
    """A table of the benchmark: its file in the folder `tables` of the data folder, and its parties."""

    name: str
    file: str
    parties: int = 10
    party: str = ""  # the column that names a record's party; empty: records are dealt at random

    @cached_property
    def schema(self) -> Schema:
        """The public schema, as committed."""
        return read_schema(self.schema_file)

    @property
    def schema_file(self) -> Path:
        """The file of the schema."""
        return SCHEMAS / f"{self.name}.toml"

    @property
    def classes(self) -> bool:
        """Whether it is a classification."""
        return isinstance(self.schema.target, Classes)

    @cached_property
    def rows(self) -> list[Row]:
        """The records with the columns that are used, as text; empty is missing."""
        with (data_folder() / "tables" / self.file).open(encoding="utf-8", newline="") as file:
            rows = [_clean(row) for row in csv.DictReader(file)]
        used = [*(column.name for column in self.schema.columns), self.schema.label]
        used += [self.party] if self.party else []
        return [{name: row[name] for name in used} for row in rows]

    def write_whole(self) -> Path:
        """Write all records to one file, and return its path."""
        WORK.mkdir(parents=True, exist_ok=True)
        path = WORK / f"{self.name}.csv"
        _write(path, self.rows)
        return path


TABLES = {
    source.name: source
    for source in (
        TableSource("adult", "adult.csv"),
        TableSource("telco", "telco.csv"),
        TableSource("heart", "heart.csv", 4, "hospital"),
        TableSource("housing", "cal_housing.csv"),
    )
}


def _clean(row: Row) -> Row:
    """Return a record with missing values empty and, in heart, the diagnosis as healthy or ill."""
    clean = {name: "" if text.strip() == "?" else text.strip() for name, text in row.items()}
    if "num" in clean:
        clean["disease"] = "no" if clean["num"] == "0" else "yes"
        clean |= {name: "" for name in ZERO_IS_MISSING if clean[name] and float(clean[name]) == 0.0}
    return clean


class Frame(NamedTuple):
    """Records for a library: a column a column, and the label as 0 or 1, or as a number."""

    x: Any  # pandas.DataFrame; numbers with NaN, categories as text with MISSING
    y: NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """A table, split at random as scikit-learn's `train_test_split` does, with the number as its random state."""

    source: TableSource
    number: int

    @property
    def train(self) -> list[Row]:
        """The records to train on."""
        return self._parts[0]

    @property
    def test(self) -> list[Row]:
        """The records to test on."""
        return self._parts[1]

    @cached_property
    def _parts(self) -> tuple[list[Row], list[Row]]:
        from sklearn.model_selection import train_test_split  # tables are read on machines without it, too

        train, test = train_test_split(self.source.rows, test_size=TEST_SHARE, random_state=self.number)
        return train, test

    @cached_property
    def labels(self) -> NDArray[np.float64]:
        """The labels of the test records: 0 or 1, or numbers."""
        return _labels(self.test, self.source.schema)

    def frames(self) -> tuple[Frame, Frame]:
        """Return training and test records for a library."""
        return _frame(self.train, self.source.schema), _frame(self.test, self.source.schema)

    def write_files(self) -> Files:
        """Write the files that Taciturn reads; what an earlier call wrote is replaced."""
        folder = WORK / self.source.name / f"split-{self.number}"
        shutil.rmtree(folder, ignore_errors=True)
        parties, dealt = folder / "parties", dict[str, list[Row]]()
        parties.mkdir(parents=True)
        train, column, count = self.train, self.source.party, self.source.parties
        _write(folder / "train.csv", train)
        _write(folder / "test.csv", self.test)
        for i, row in enumerate(train):
            dealt.setdefault(row[column] if column else f"party-{i % count + 1:02}", []).append(row)
        for name, own in dealt.items():
            _write(parties / f"{name}.csv", own)
        return Files(folder / "train.csv", folder / "test.csv", parties, len(train))


class Files(NamedTuple):
    """Where a split lies on disk."""

    train: Path
    test: Path
    parties: Path  # a folder with a file for each party
    records: int  # for training


def _write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _frame(rows: Sequence[Row], schema: Schema) -> Frame:
    import pandas  # tables are read on machines without it, too

    columns: dict[str, list[Any]] = {}
    for column in schema.columns:
        cells = [row[column.name] for row in rows]
        if isinstance(column, Categorical):
            columns[column.name] = [cell if cell in column.categories else MISSING for cell in cells]
        else:
            columns[column.name] = [float(cell) if cell else float("nan") for cell in cells]
    return Frame(pandas.DataFrame(columns), _labels(rows, schema))


def _labels(rows: Sequence[Row], schema: Schema) -> NDArray[np.float64]:
    labels = [row[schema.label] for row in rows]
    if isinstance(schema.target, Classes):
        return np.array([schema.target.names.index(label) for label in labels], float)
    return np.array(labels, float)
