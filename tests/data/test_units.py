from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from taciturn.data import DataOptions, load, read_schema, record_split
from taciturn.data.frames import needed_columns, open_frames
from taciturn.data.memory_names import hold
from taciturn.data.partition import partition_records, split_digest
from taciturn.data.table_cells import unit_name
from taciturn.errors import InputError
from taciturn.types import Classes, Dataset, Shard

from .helpers import write

SCHEMA = """
[label]
column = "y"
classes = ["a", "b"]
[unit]
column = "patient"
max_records = {most}
[columns.row]
kind = "numeric"
bounds = [0, 1000]
"""
AGENT = '[agent]\ncolumn = "site"\n'

PEOPLE = st.lists(st.sampled_from("ABCDEFGH"), min_size=1, max_size=25)  # each row's unit
MOST = st.integers(1, 4)


def read(people: Iterable[tuple[int, str]], most: int, sites: str = "", **changes: Any) -> Dataset:
    """Write a table whose row i holds i; `sites` names the agent of row i."""
    lines = [f"{i},{who},{'ab'[i % 2]},{sites[i] if sites else '-'}" for i, who in people]
    with tempfile.TemporaryDirectory() as folder:
        table = write(Path(folder, "t.csv"), "\n".join(["row,patient,y,site", *lines]))
        schema = write(Path(folder, "s.toml"), SCHEMA.format(most=most) + (AGENT if sites else ""))
        return load(DataOptions(data=str(table), schema=str(schema), **changes))


def rows(shard: Shard | None) -> list[int]:
    """Return the row numbers of a shard's records, in order."""
    return [] if shard is None else [round(1000 * x) for x in shard.x[:, 0].tolist()]


@settings(deadline=None)
@given(PEOPLE, MOST, st.sampled_from("ABCDEFGH"))
def test_removing_a_unit_removes_its_rows_and_nothing_else(people: list[str], most: int, leaver: str) -> None:
    assume(set(people) > {leaver})
    table = list(enumerate(people))
    with_it = rows(read(table, most, agents=1).train[0])
    without = rows(read([row for row in table if row[1] != leaver], most, agents=1).train[0])
    assert [row for row in with_it if people[row] != leaver] == without
    assert len(with_it) - len(without) == min(most, people.count(leaver))


@settings(deadline=None)
@given(PEOPLE, MOST)
def test_the_first_rows_of_each_unit_are_kept_in_file_order(people: list[str], most: int) -> None:
    kept = rows(read(enumerate(people), most, agents=1).train[0])
    assert kept == [i for i, who in enumerate(people) if people[:i].count(who) < most]


@settings(deadline=None)
@given(
    PEOPLE, MOST, st.sampled_from(["in-order", "shuffled", "dirichlet"]), st.integers(1, 3), st.integers(0, 2**32 - 1)
)
def test_a_unit_is_never_at_two_agents_after_a_split(
    people: list[str], most: int, partition: str, agents: int, seed: int
) -> None:
    assume(agents <= len(set(people)))
    options: dict[str, Any] = {
        "agents": agents,
        "partition": partition,
        "partition_key": seed,
        "dirichlet_alpha": 100.0,
    }
    try:
        dataset = read(enumerate(people), most, **options)
    except InputError as error:  # a Dirichlet draw may leave an agent without a unit however often it is tried
        assert "draws of Dirichlet" in str(error)
        return
    homes = [{people[row] for row in rows(shard)} for shard in dataset.train]
    assert sum(map(len, homes)) == len(set(people)) == len(set.union(*homes))
    assert Counter(people[row] for shard in dataset.train for row in rows(shard)) == {
        who: min(most, count) for who, count in Counter(people).items()
    }


@settings(deadline=None)
@given(PEOPLE, MOST, st.floats(0.1, 0.9), st.integers(0, 9), st.sampled_from("ABCDEFGH"))
def test_whole_units_are_held_out_whatever_the_other_units(
    people: list[str], most: int, share: float, seed: int, leaver: str
) -> None:
    table = list(enumerate(people))
    options: dict[str, Any] = {"agents": 1, "test_share": share, "partition_key": seed}
    try:
        one = read(table, most, **options)
        other = read([row for row in table if row[1] != leaver], most, **options)
    except InputError:
        assume(False)
    train, test = rows(one.train[0]), rows(one.test)
    assert not {people[row] for row in train} & {people[row] for row in test}
    assert sorted(train + test) == rows(read(table, most, agents=1).train[0])
    assert [row for row in train if people[row] != leaver] == rows(other.train[0])
    assert [row for row in test if people[row] != leaver] == rows(other.test)


def test_a_unit_is_held_out_at_every_agent() -> None:
    people = [f"p{i % 40}" for i in range(80)]
    dataset = read(enumerate(people), 1, sites="n" * 40 + "s" * 40, test_share=0.3)
    test = {people[row] for row in rows(dataset.test)}
    assert 4 <= len(test) <= 20
    assert all(not test & {people[row] for row in rows(shard)} for shard in dataset.train)
    assert len(rows(dataset.test)) == 2 * len(test)
    other = read(enumerate(people), 1, sites="n" * 40 + "s" * 40, test_share=0.3, partition_key=1)
    assert {people[row] for row in rows(other.test)} != test


def test_the_bound_on_rows_applies_at_each_agent() -> None:
    dataset = read(enumerate("AAAABBAA"), 2, sites="nnnsssss")
    assert dataset.agents == ("n", "s")
    assert [rows(shard) for shard in dataset.train] == [[0, 1], [3, 4, 5, 6]]
    assert dataset.notes == ("patient: 2 rows of 1 unit beyond the first 2 at an agent were left out",)


def test_notes_are_for_what_was_left_out() -> None:
    assert read(enumerate("AAABBB"), 3, agents=1).notes == ("columns not in the schema were ignored: site",)
    notes = read(enumerate("AABB"), 1, agents=1).notes
    assert notes[0] == "patient: 2 rows of 2 units beyond the first 1 at an agent were left out"
    assert read(enumerate("AAB"), 1, agents=1).notes[0].startswith("patient: 1 row of 1 unit beyond")


def test_the_partition_is_over_units_by_their_first_rows_labels() -> None:
    people = [f"p{i // 3}" for i in range(60)]
    options: dict[str, Any] = {"agents": 3, "partition": "dirichlet", "partition_key": 5}
    first_labels = np.arange(0, 60, 3) % 2
    units = partition_records(DataOptions(**options), first_labels, Classes(("a", "b"))).records
    dataset = read(enumerate(people), 3, **options)
    assert [rows(shard) for shard in dataset.train] == [
        [row for unit in block.tolist() for row in range(3 * unit, 3 * unit + 3)] for block in units
    ]


def test_the_test_table_needs_no_units_and_is_not_cut(tmp_path: Path) -> None:
    test = write(tmp_path / "test.csv", "row,y\n1,a\n1,a\n1,b\n")
    dataset = read(enumerate("AAB"), 1, agents=1, test=str(test))
    assert rows(dataset.train[0]) == [0, 2]
    assert rows(dataset.test) == [1, 1, 1]


def test_a_row_without_its_unit_is_left_out() -> None:
    dataset = read(enumerate(["A", "NA", "B"]), 1, agents=1)
    assert rows(dataset.train[0]) == [0, 2]
    assert dataset.notes[0] == "patient: 1 record without a unit was left out (line 3 of t.csv)"


def test_there_must_be_a_unit_for_each_agent() -> None:
    with pytest.raises(InputError, match=r"^agents is 3: it must be at least 1 and at most the number of units$"):
        read(enumerate("AAAB"), 1, agents=3)


def test_shares_that_hold_out_all_or_none() -> None:
    with pytest.raises(InputError, match=r"^test-share is 0\.99, which holds out every unit of agent 'agent-1'"):
        read(enumerate("AB"), 1, agents=1, test_share=0.99)
    with pytest.raises(InputError, match=r"^test-share is 0\.001, which holds out no unit at all"):
        read(enumerate("AB"), 1, agents=1, test_share=0.001)


WRITTEN = ("7", "7.0", "007", "7.", "+7", "7e0")


def test_a_number_is_one_unit_however_it_is_written() -> None:
    table = list(enumerate([*WRITTEN, "70", "7.5", "p7"]))
    assert rows(read(table, 1, agents=1).train[0]) == [0, 6, 7, 8]
    for key in range(20):
        split = read(
            list(enumerate([*WRITTEN, *map(str, range(20, 40))])), 9, agents=1, test_share=0.4, partition_key=key
        )
        held = set(rows(split.test))
        assert not held & set(range(6)) or held >= set(range(6))


@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
def test_numbers_that_differ_are_different_units(first: int, second: int) -> None:
    """Also those that are one floating-point number: two persons must not share the rows that are used."""
    assert unit_name(f"{first}.00") == unit_name(f"  {first}") == str(first)
    assert (unit_name(str(first)) == unit_name(str(second))) == (first == second)
    assert unit_name(str(2**60)) != unit_name(str(2**60 + 1))


@pytest.mark.parametrize("cells", [["7", "7.0", "p1"], [7, "7.0", "p1"]])
def test_a_column_of_a_frame_has_the_same_units(cells: list[object], tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"row": [0, 1, 2], "patient": pandas.Series(cells, dtype=object), "y": ["a", "b", "a"]})
    schema = write(tmp_path / "s.toml", SCHEMA.format(most=1))
    opened = open_frames("data", frame, needed_columns(read_schema(schema), "train"))
    with hold({"memory:frame": opened}, {}):
        assert rows(load(DataOptions(data="memory:frame", schema=str(schema), agents=1)).train[0]) == [0, 2]


def test_a_ledger_takes_a_split_by_texts_for_another_one(tmp_path: Path) -> None:
    """Before, 7.0 was drawn apart from 7: what was held out then may train now."""
    schema = write(tmp_path / "s.toml", SCHEMA.format(most=1))
    found = record_split(DataOptions("t.csv", schema=str(schema), test_share=0.2, partition_key=3))
    assert found == split_digest(3, 0.2, "named unit patient")
