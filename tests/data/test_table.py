from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.data import DataOptions, encode, load, parse_schema, read_table, refuse_unseen_classes
from taciturn.errors import InputError
from taciturn.types import Dataset, Range

from .helpers import AGENT, COLUMNS, stack_x, write

SCHEMA = '[label]\ncolumn = "y"\nclasses = ["yes", "no"]\n' + COLUMNS
ROWS = "age,sex,site,y\n0,f,b,yes\n50,m,a,no\n100,f,b,no\n25,m,a,yes\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "s.toml", SCHEMA)
    write(tmp_path / "t.csv", ROWS)
    return tmp_path


def read(folder: Path, data: str = "t.csv", schema: str = "s.toml", **changes: Any) -> Dataset:
    options = ({} if "[agent]" in (folder / "s.toml").read_text() else {"agents": 2}) | changes
    return load(DataOptions(data=str(folder / data), schema=str(folder / schema), **options))


def test_a_table_by_its_schema(folder: Path) -> None:
    dataset = read(folder)
    assert dataset.name == "t"
    assert dataset.agents == ("agent-1", "agent-2")
    assert dataset.features == ("age", "sex=f", "sex=m")
    assert stack_x(dataset.train).tolist() == [[0, 1, 0], [0.5, 0, 1], [1, 1, 0], [0.25, 0, 1]]
    assert np.concatenate([s.y for s in dataset.train]).tolist() == [[0, 1], [1, 0], [1, 0], [0, 1]]  # no, yes
    assert dataset.test is None
    assert dataset.notes == ("columns not in the schema were ignored: site",)


def test_the_symmetric_scale_leaves_categories_alone(folder: Path) -> None:
    write(folder / "s.toml", 'scale = "symmetric"\n' + SCHEMA)
    assert stack_x(read(folder, intercept=True).train)[0].tolist() == [-1, 1, 0, 1]


@pytest.mark.parametrize("partition", ["in-order", "column"])
def test_agents_by_column(folder: Path, partition: str) -> None:
    write(folder / "s.toml", SCHEMA + AGENT)
    dataset = read(folder, partition=partition)
    assert dataset.agents == ("a", "b")
    assert [s.x[:, 0].tolist() for s in dataset.train] == [[0.5, 0.25], [0, 1]]
    assert dataset.notes == ()


def test_a_table_that_names_its_agents_is_not_partitioned(folder: Path) -> None:
    write(folder / "s.toml", SCHEMA + AGENT)
    with pytest.raises(InputError, match=r"^partition is shuffled, but the table names its agents"):
        read(folder, partition="shuffled")
    with pytest.raises(InputError, match=r"^agents is 4, but the table names 2 agents$"):
        read(folder, agents=4)
    assert read(folder, agents=2).agents == ("a", "b")


@pytest.mark.parametrize("partition", ["in-order", "column"])
def test_agents_by_file(folder: Path, partition: str) -> None:
    write(folder / "sites" / "west.csv", ROWS)
    write(folder / "sites" / "east.csv", "y,sex,age,site\nno,f,10,c\n")
    dataset = read(folder, "sites", partition=partition)
    assert dataset.name == "sites"
    assert dataset.agents == ("east", "west")
    assert [len(s.x) for s in dataset.train] == [1, 4]


def test_column_needs_a_column(folder: Path) -> None:
    with pytest.raises(InputError, match=r"^partition 'column' needs a column that names each record's agent"):
        read(folder, partition="column")


def test_a_table_whose_agents_have_no_names(folder: Path) -> None:
    write(folder / "s.toml", SCHEMA + AGENT)
    write(folder / "t.csv", "age,sex,site,y\n1,f,,no\n2,f,NA,yes\n")
    with pytest.raises(InputError, match=r"^no row of t is a record: site: 2 records without an agent"):
        read(folder)
    with pytest.raises(InputError, match=r"^column 'site' is empty: every record needs an agent$"):
        read(folder, private=True)


def test_values_outside_the_bounds_are_clipped_and_counted(folder: Path) -> None:
    write(folder / "t.csv", ROWS + "-1,f,a,no\n101,f,a,no\n1e6,f,a,no\n")
    dataset = read(folder)
    assert stack_x(dataset.train)[-3:, 0].tolist() == [0, 1, 1]
    places = "lines 6, 7, 8 of t.csv"
    assert dataset.notes[0] == f"age: 3 values outside [0, 100] were clipped ({places})"


@pytest.mark.parametrize(
    ("rules", "row", "note"),
    [
        (("missing = 'middle'", ""), [0.5, 1, 0], "age: 1 missing value became 50"),
        (("missing = 12.5", ""), [0.125, 1, 0], "age: 1 missing value became 12.5"),
        (("missing = 'high'", "missing = 'm'"), [1, 1, 0], "age: 1 missing value became 100"),
    ],
)
def test_missing_numbers(folder: Path, rules: tuple[str, str], row: list[float], note: str) -> None:
    write(folder / "s.toml", SCHEMA.replace("[0, 100]", f"[0, 100]\n{rules[0]}") + rules[1])
    write(folder / "t.csv", ROWS + "NA,f,a,no\n")
    dataset = read(folder)
    assert stack_x(dataset.train)[-1].tolist() == row
    assert dataset.notes[0] == f"{note} (line 6 of t.csv)"


@pytest.mark.parametrize(
    ("rule", "row", "became"),
    [("none", [0.1, 0, 0], "no category"), ("m", [0.1, 0, 1], "'m'"), ("f", [0.1, 1, 0], "'f'")],
)
def test_missing_categories(folder: Path, rule: str, row: list[float], became: str) -> None:
    write(folder / "s.toml", SCHEMA + f"missing = '{rule}'")
    write(folder / "t.csv", ROWS + "10,,a,no\n10,null,a,no\n")
    dataset = read(folder)
    assert stack_x(dataset.train)[-2:].tolist() == [row, row]
    assert dataset.notes[0] == f"sex: 2 missing values became {became} (lines 6, 7 of t.csv)"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("1,f,a,maybe", r"^column 'y': the label on line 6 of t\.csv must be one of no, yes$"),
        ("1,f,a,", r"^column 'y': the label on line 6 of t\.csv must be one of no, yes$"),
    ],
)
def test_evaluation_needs_a_label_in_every_record(folder: Path, row: str, sentence: str) -> None:
    table = read_table(write(folder / "t.csv", ROWS + row + "\n"))
    with pytest.raises(InputError, match=sentence):
        encode(table, parse_schema(SCHEMA), False, "float64", with_label=True)
    assert len(encode(table, parse_schema(SCHEMA), False, "float64", with_label=False)[0]) == 5


def test_a_column_the_table_lacks(folder: Path) -> None:
    write(folder / "t.csv", ROWS.replace("age", "agee"))
    with pytest.raises(InputError, match=r"^no column 'age' among the 4 of the table: compare it"):
        read(folder)


def test_a_table_needs_a_schema(folder: Path) -> None:
    path = folder / "t.csv"
    with pytest.raises(InputError) as caught:
        load(DataOptions(data=str(path)))
    assert str(caught.value) == (
        f"the table {path} needs a schema: `taciturn data schema {path} --label COLUMN --out FILE` drafts one"
    )


def test_a_class_without_a_training_record(folder: Path) -> None:
    write(folder / "s.toml", SCHEMA.replace('["yes", "no"]', '["yes", "no", "perhaps"]'))
    dataset = read(folder)
    assert [shard.y.shape[1] for shard in dataset.train] == [3, 3]
    with pytest.raises(InputError, match=r"^class 'perhaps' has no training record: remove it from the schema, add"):
        refuse_unseen_classes(dataset)


def test_classes_that_are_all_there_are_not_refused(folder: Path) -> None:
    refuse_unseen_classes(read(folder))
    write(folder / "s.toml", SCHEMA.replace('classes = ["yes", "no"]', "bounds = [10, 20]"))
    write(folder / "t.csv", "age,sex,y\n1,f,10\n2,m,15\n")
    refuse_unseen_classes(read(folder))


def test_a_test_table(folder: Path) -> None:
    write(folder / "s.toml", SCHEMA + AGENT)
    write(folder / "test.csv", "y,sex,age\nno,m,200\n")
    dataset = read(folder, test=str(folder / "test.csv"))
    assert dataset.test is not None
    assert dataset.test.x.tolist() == [[1, 0, 1]]
    assert dataset.test.y.tolist() == [[1, 0]]
    assert dataset.notes == ("test table: age: 1 value outside [0, 100] was clipped (line 2 of test.csv)",)
    with pytest.raises(InputError, match=r"^test and test-share are both given: a test set comes from one of them$"):
        read(folder, test=str(folder / "test.csv"), test_share=0.5)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_about_a_share_of_the_records_is_held_out(folder: Path, share: float) -> None:
    ages = [i / 10 for i in range(1000)]
    rows = [f"{age},f,{'ab'[i % 2]},{'yes' if i % 3 else 'no'}" for i, age in enumerate(ages)]
    write(folder / "s.toml", SCHEMA + AGENT)
    write(folder / "t.csv", "\n".join(["age,sex,site,y", *rows]))
    dataset = read(folder, test_share=share, partition_key=1)
    assert dataset.test is not None
    assert abs(len(dataset.test.x) - 1000 * share) < 60  # four standard deviations
    found = [*stack_x(dataset.train)[:, 0], *dataset.test.x[:, 0]]
    assert sorted(round(1000 * age) for age in found) == list(range(1000))
    write(folder / "t.csv", "\n".join(["age,sex,site,y", *rows[:500], *rows[501:]]))
    without = read(folder, test_share=share, partition_key=1)
    assert without.test is not None
    gone = {round(1000 * age) for age in dataset.test.x[:, 0]} - {round(1000 * age) for age in without.test.x[:, 0]}
    assert gone <= {500}  # a record that leaves does not move the others
    other = read(folder, test_share=share, partition_key=2)
    assert other.test is not None and not np.array_equal(other.test.x, without.test.x)


def test_holding_out_leaves_every_agent_something(folder: Path) -> None:
    write(folder / "s.toml", SCHEMA + AGENT)
    write(folder / "t.csv", ROWS)
    with pytest.raises(InputError, match=r"^test-share is 0.999, which holds out every record of agent 'a'"):
        read(folder, test_share=0.999)
    with pytest.raises(InputError, match=r"^test-share is 1e-09, which holds out no record at all"):
        read(folder, test_share=1e-9)


def test_a_number_as_the_label(folder: Path) -> None:
    write(
        folder / "s.toml",
        SCHEMA.replace('column = "y"', 'column = "cost"').replace('classes = ["yes", "no"]', "bounds = [10, 20]"),
    )
    write(folder / "t.csv", "age,sex,cost\n1,f,10\n2,m,15\n3,f,25\n")
    dataset = read(folder)
    assert dataset.target == Range(10.0, 20.0)
    assert np.concatenate([s.y for s in dataset.train]).tolist() == [[0], [0.5], [1]]
    assert dataset.notes == ("cost: 1 value outside [10, 20] was clipped (line 4 of t.csv)",)
    write(folder / "t.csv", "age,sex,cost\n1,f,\n")
    with pytest.raises(
        InputError, match=r"^no row of t is a record: cost: 1 record without a label that the schema allows was"
    ):
        read(folder, agents=1)


def test_encoding_for_prediction_agrees_with_training(folder: Path) -> None:
    table, schema = read_table(folder / "t.csv"), parse_schema(SCHEMA)
    dataset = read(folder, intercept=True, precision="float32")
    x, y = encode(table, schema, True, "float32", with_label=True)
    assert x.dtype == np.float32
    assert np.array_equal(x, stack_x(dataset.train))
    assert y is not None and np.array_equal(y, np.concatenate([s.y for s in dataset.train]))
    unlabelled = read_table(write(folder / "new.csv", "age,sex\n50,f\n"))
    x, y = encode(unlabelled, schema, False, "float64", with_label=False)
    assert x.tolist() == [[0.5, 1, 0]] and y is None
    with pytest.raises(InputError, match=r"^no column 'y' among the 2 of the table: compare it"):
        encode(unlabelled, schema, False, "float64", with_label=True)
    with pytest.raises(InputError, match=r"^no precision 'float16' \(did you mean 'float64'\?\)"):
        encode(unlabelled, schema, False, "float16", with_label=False)


def test_two_features_of_one_name(folder: Path) -> None:
    write(folder / "s.toml", SCHEMA + '[columns."sex=f"]\nkind = "numeric"\nbounds = [0, 1]\n')
    write(folder / "t.csv", "age,sex,y,sex=f\n1,f,yes,0\n2,m,no,1\n")
    with pytest.raises(InputError, match=r"^two features are named 'sex=f'"):
        read(folder)
