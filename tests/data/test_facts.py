from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.data import DataOptions, check_facts, declared_facts, load, published_facts
from taciturn.data.facts import Facts, Sizes
from taciturn.errors import InputError

from .helpers import AGENT, COLUMNS, write

GARBAGE = b"\x00\xff\xfe not a table \x9d"
SCHEMA = '[label]\ncolumn = "y"\nclasses = ["yes", "no", "perhaps"]\n' + COLUMNS
UNIT = '[unit]\ncolumn = "patient"\nmax_records = 3\n'
ROWS = "age,sex,site,y\n0,f,b,yes\n50,m,a,no\n100,f,b,no\n25,m,a,yes\n7,m,b,yes\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "s.toml", SCHEMA)
    (tmp_path / "t.csv").write_bytes(GARBAGE)
    return tmp_path


def options(folder: Path, data: str = "t.csv", **changes: Any) -> DataOptions:
    return DataOptions(data=str(folder / data), schema=str(folder / "s.toml"), **changes)


def test_a_table_is_declared_without_being_opened(folder: Path) -> None:
    assert declared_facts(options(folder, agents=4, intercept=True), 1000, 400) == Facts(
        name="t",
        features=4,
        outputs=3,
        classes=True,
        agents=4,
        total_records=1000,
        records_max=400,
        unit="record",
        max_records=1,
        published=False,
        test="none",
    )


def test_what_the_schema_and_the_options_add(folder: Path) -> None:
    write(folder / "s.toml", SCHEMA.replace('classes = ["yes", "no", "perhaps"]', "bounds = [0, 9]") + UNIT)
    (folder / "test.csv").write_bytes(GARBAGE)
    facts = declared_facts(options(folder, test=str(folder / "test.csv")), 1000, None)
    assert (facts.features, facts.outputs, facts.classes) == (3, 1, False)
    assert (facts.unit, facts.max_records, facts.test) == ("patient", 3, "public")
    assert (facts.agents, facts.records_max, facts.largest) == (10, 1000, 1000)
    assert declared_facts(options(folder, test_share=0.5), 1000, None).test == "held-out"


def test_a_folder_has_an_agent_for_each_file(folder: Path) -> None:
    for name in ("west.csv", "east.parquet", "notes.txt", ".hidden.csv"):
        write(folder / "sites" / name, "").write_bytes(GARBAGE)
    facts = declared_facts(options(folder, "sites"), 100, {"west": 70, "east": 40})
    assert (facts.name, facts.agents, facts.largest) == ("sites", 2, 70)
    assert facts.records_of("east") == 40
    assert declared_facts(options(folder, "sites", agents=2), 100, 60).agents == 2
    with pytest.raises(InputError, match=r"^agents is 3, but 2 agents are named: east, west$"):
        declared_facts(options(folder, "sites", agents=3), 100, 60)
    with pytest.raises(
        InputError, match=r"^records-max: no agent 'wast' \(did you mean 'west'\?\): there are east, we"
    ):
        declared_facts(options(folder, "sites"), 100, {"wast": 70, "east": 40})
    with pytest.raises(InputError, match=r"^records-max leaves out agent 'west': give every agent a number, or one"):
        declared_facts(options(folder, "sites"), 100, {"east": 40})


def test_an_agent_column_has_the_agents_that_are_declared(folder: Path) -> None:
    write(folder / "s.toml", SCHEMA + AGENT)
    assert declared_facts(options(folder), 100, {"north": 30, "south": 40, "west": 50}).agents == 3
    with pytest.raises(InputError, match=r"^agents is 7, but 2 agents are named: north, south$"):
        declared_facts(options(folder, agents=7), 100, {"north": 30, "south": 40})
    write(folder / "s.toml", SCHEMA + AGENT + 'names = ["north", "south"]\n')
    assert declared_facts(options(folder), 100, 50).agents == declared_facts(options(folder, agents=2), 100, 50).agents
    with pytest.raises(InputError, match=r"^records-max leaves out agent 'south'"):
        declared_facts(options(folder), 100, {"north": 30})


def test_agents_that_only_the_records_could_name_are_refused(folder: Path) -> None:
    """The file is not a table: the error is raised before it is read."""
    write(folder / "s.toml", SCHEMA + AGENT)
    for agents in (DataOptions.agents, 2):
        with pytest.raises(
            InputError,
            match=r'^.*s\.toml: \[agent\] has no names, and .* add a line names = \["\.\.\.", "\.\.\."\] below '
            r'column = "site", or name every agent in --records-max NAME=NUMBER,NAME=NUMBER$',
        ):
            declared_facts(options(folder, agents=agents), 100, 50)


def test_agents_of_a_partition_have_names_too(folder: Path) -> None:
    assert declared_facts(options(folder, agents=2), 100, {"agent-1": 60, "agent-2": 50}).largest == 60
    with pytest.raises(InputError, match=r"^records-max: no agent 'north': there are agent-1, agent-2$"):
        declared_facts(options(folder, agents=2), 100, {"north": 60})


@pytest.mark.parametrize(
    ("changes", "total", "most", "sentence"),
    [
        ({"schema": ""}, 9, 9, r"^the table .*t\.csv needs a schema: "),
        ({"data": "none.csv"}, 9, 9, r"^there is no file none\.csv$"),
        ({"test": "none.csv"}, 9, 9, r"^there is no file none\.csv$"),
        ({"test": "a.csv", "test_share": 0.1}, 9, 9, r"^test and test-share are both given"),
        ({}, None, 9, r"^a private table needs total_records \(--total-records\), .*, and agents \(--agents\), "),
        ({}, 0, 9, r"^total-records is 0: it must be a whole number of at least 1$"),
        ({}, True, 9, r"^total-records is True: it must be a whole number of at least 1$"),
        ({}, 9, -1, r"^records-max is -1: it must be a whole number of at least 1$"),
        ({}, 9, 2.5, r"^records-max is 2\.5: it must be a whole number of at least 1$"),
        ({}, 9, {"a": 0}, r"^records-max of agent 'a' is 0: it must be a whole number of at least 1$"),
        ({}, 9, {}, r"^records-max names no agent: give one number for all agents, or one for each by name$"),
        ({"agents": 0}, 9, 9, r"^agents is 0: it must be at least 1$"),
        ({"sample_fraction": 0.5}, 9, 9, r"^sample-fraction has no effect on "),
    ],
)
def test_wrong_declarations(folder: Path, changes: dict[str, Any], total: Any, most: Any, sentence: str) -> None:
    given = {"data": str(folder / "t.csv"), "schema": str(folder / "s.toml")} | changes
    with pytest.raises(InputError, match=sentence):
        declared_facts(DataOptions(**given), total, most)


def test_published_data_sets_need_no_declarations() -> None:
    chosen = DataOptions(data="mnist14", agents=7)
    facts = declared_facts(chosen, None, None)
    dataset = load(chosen)
    assert facts == published_facts(dataset, chosen)
    check_facts(facts, dataset)
    assert (facts.name, facts.features, facts.outputs, facts.agents) == ("mnist14", 196, 10, 7)
    assert (facts.total_records, facts.largest, facts.published, facts.test) == (60_000, 8572, True, "public")
    assert facts.bound == 14
    assert declared_facts(chosen, 50_000, 9_000)[5:7] == (50_000, 9_000)
    with pytest.raises(InputError, match=r"^agent 'agent-1' has more training records than records-max declares, 100:"):
        declared_facts(chosen, None, 100)


def test_the_sizes_of_a_table_are_not_read_off_it(folder: Path) -> None:
    write(folder / "t.csv", ROWS)
    chosen = options(folder, agents=2)
    with pytest.raises(InputError, match=r"are not public: declare them by total-records and records-max$"):
        published_facts(load(chosen), chosen)


@pytest.mark.parametrize(
    ("most", "sentence"),
    [
        ({"a": 2, "b": 3}, ""),
        ({"a": 3, "b": 9}, ""),
        ({"a": 1, "b": 1}, ""),  # how many records a private table has decides nothing
        ({"a": 2, "c": 3}, r"^records-max: no agent 'c': there are a, b$"),
        ({"a": 2}, r"^records-max leaves out agent 'b': "),
        ({"a": 2, "b": 3, "c": 4}, r"^records-max: no agent 'c': there are a, b$"),
    ],
)
def test_data_that_contradict_the_declaration(folder: Path, most: Sizes, sentence: str) -> None:
    write(folder / "s.toml", SCHEMA + AGENT)
    write(folder / "t.csv", ROWS)
    facts = declared_facts(options(folder), 5, most)
    if not sentence:
        check_facts(facts, load(options(folder)))
        return
    with pytest.raises(InputError, match=sentence):
        check_facts(facts, load(options(folder)))


def test_features_and_outputs_must_be_those_declared(folder: Path) -> None:
    write(folder / "t.csv", ROWS)
    chosen = options(folder, agents=2)
    facts, dataset = declared_facts(chosen, 5, None), load(chosen)
    check_facts(facts, dataset)
    with pytest.raises(InputError, match=r"^features is 9, but the data has 3: load it with the schema"):
        check_facts(facts._replace(features=9), dataset)
    with pytest.raises(InputError, match=r"^outputs is 9, but the data has 3: load it with the schema"):
        check_facts(facts._replace(outputs=9), dataset)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.sampled_from(["f", "m", ""])), min_size=1, max_size=8),
    st.sampled_from(["unit", "symmetric"]),
    st.booleans(),
)
def test_no_record_is_longer_than_the_bound(
    tmp_path_factory: pytest.TempPathFactory, people: list[tuple[float, str]], scale: str, intercept: bool
) -> None:
    folder = tmp_path_factory.mktemp("bound")
    write(folder / "s.toml", f'scale = "{scale}"\n{SCHEMA}missing = "none"\n')
    write(folder / "t.csv", "age,sex,y\n" + "\n".join(f"{age!r},{sex},no" for age, sex in people))
    chosen = options(folder, agents=1, intercept=intercept)
    bound = declared_facts(chosen, 8, None).bound
    (shard,) = load(chosen).train
    assert bound == math.sqrt(3 + intercept)
    assert float(np.max(shard.norm2)) <= bound
