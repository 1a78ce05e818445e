"""In a private table, each record alone determines its agent: removing one record moves no other."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from taciturn.algorithms import Agent
from taciturn.algorithms.additive import Additive
from taciturn.algorithms.noisy_gradient import HardenedGradient, ReleasedGradient
from taciturn.data import DataOptions, load, read_schema, record_split
from taciturn.data.allocation import allocator_for
from taciturn.data.datasets.table import EncodedTable
from taciturn.data.partition import (
    ASSIGNMENT,
    HOLD_OUT,
    Units,
    hashed,
    hashed_dirichlet,
    record_draws,
    split_digest,
    unit_draws,
)
from taciturn.data.schema import dump_schema
from taciturn.data.table_io import open_table, table_schema
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.planning.plan import load_data, plan_study
from taciturn.privacy.noise import SeededNoise
from taciturn.settings import resolve
from taciturn.types import GRID, Dataset, Shard

from .helpers import AGENT, write

SCHEMA = '[label]\ncolumn = "y"\nclasses = ["a", "b", "c"]\n[columns.v]\nkind = "numeric"\nbounds = [0, 1000]\n'
UNIT = '[unit]\ncolumn = "who"\nmax_records = 3\n'
ROWS = 1000
AGENTS = 10
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "dirichlet": {"partition": "dirichlet"},
    "very skewed": {"partition": "dirichlet", "dirichlet_alpha": 0.01},
}
HELD: dict[str, dict[str, Any]] = {"all": {}, "held out": {"test_share": 0.3}}
LARGER: dict[str, dict[str, Any]] = {"in memory": {}, "in files": {"memory": "0.001kB"}}


def rows_of(n: int = ROWS, persons: int = 400) -> list[str]:
    rng = np.random.default_rng(7)
    return [f"{i},p{rng.integers(persons)},{'aab'[rng.integers(3)]}" for i in range(n)]


def table(folder: Path, rows: list[str], more: str = "") -> dict[str, Any]:
    """Write a table of these rows and return the settings of a certified run on it."""
    write(folder / "t.csv", "\n".join(["v,who,y", *rows]) + "\n")
    return {
        "data": str(folder / "t.csv"),
        "schema": str(write(folder / "s.toml", SCHEMA + more)),
        "agents": AGENTS,
        "total_records": ROWS,
        "noise": "hardened",
    }


def values(shard: Shard | None) -> Counter[int]:
    return Counter() if shard is None else Counter(round(1000 * v) for v in shard.x[:, 0].tolist())


def read(asked: dict[str, Any], key: int = 5) -> Dataset:
    return load(resolve(asked | {"features": "none"}).data_options(key))


@pytest.mark.parametrize("lying", LARGER)
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("unit", ["", UNIT])
@pytest.mark.parametrize("way", WAYS)
def test_removing_a_unit_changes_one_agent_by_exactly_its_records(
    tmp_path: Path, way: str, unit: str, held: str, lying: str
) -> None:
    rows = rows_of()
    whole = read(table(tmp_path, rows, unit) | WAYS[way] | HELD[held] | LARGER[lying])
    assert len(whole.train) == AGENTS
    for at in (0, 499, 999):
        person = rows[at].split(",")[1]
        gone = {i for i, row in enumerate(rows) if (row.split(",")[1] == person if unit else i == at)}
        left = [row for i, row in enumerate(rows) if i not in gone]
        other = read(table(tmp_path, left, unit) | WAYS[way] | HELD[held] | LARGER[lying])
        pairs = [*zip(whole.train, other.train, strict=True), (whole.test, other.test)]
        moved = [values(one) - values(two) for one, two in pairs]
        assert not any(values(two) - values(one) for one, two in pairs)
        assert sum(bool(one) for one in moved) == 1
        found = next(one for one in moved if one)
        assert set(found) <= gone and found.total() == (min(3, len(gone)) if unit else 1)


@pytest.mark.parametrize("unit", ["", UNIT])
@pytest.mark.parametrize("way", WAYS)
def test_all_uploads_together_move_by_one_clip_at_most(tmp_path: Path, way: str, unit: str) -> None:
    """The sums of hardened runs are exact, so the bound holds without an allowance for rounding."""
    rows = rows_of()
    plan = plan_study(resolve(table(tmp_path, rows, unit) | WAYS[way] | {"features": "none", "algorithm": "dpgd"}))
    release, z = plan.parts[0].algorithm.release, np.random.default_rng(1).normal(size=(2, 1, 3))  # type: ignore[attr-defined]
    bits = release.bits

    def sums() -> list[Any]:
        dataset = load_data(plan, key=11).dataset
        return [release.sum(plan.problem, z, shard) for shard in dataset.train]

    before, at = sums(), 321
    person = rows[at].split(",")[1]
    table(tmp_path, [row for i, row in enumerate(rows) if (row.split(",")[1] != person if unit else i != at)], unit)
    moved = np.sqrt(sum(float(((one - two) ** 2).sum()) for one, two in zip(before, sums(), strict=True)))
    clip = float(plan.settings.clip) * GRID * 2.0**bits
    assert 0.0 < moved <= (3 if unit else 1) * clip


MANY_KEYS = """
[label]
column = "y"
classes = ["a", "b", "c"]
weights = { a = 3, b = 1 }
[weight]
column = "counts"
max = 2
[columns.v]
kind = "numeric"
bounds = [1, 1000]
scale = "log"
missing = "indicator"
[columns.u]
kind = "numeric"
bounds = [-1e6, 1e6]
scale = "asinh"
[columns.who]
kind = "categorical"
buckets = 16
missing = "indicator"
[columns.grade]
kind = "categorical"
categories = ["low", "mid", "high"]
ordered = true
missing = "indicator"
[columns.town]
kind = "categorical"
categories = [1, 2]
unknown = "other"
[[interactions]]
columns = ["v", "u"]
[[interactions]]
columns = ["who", "grade"]
"""
CELLS = {
    "v": ["", "0", "1", "30.5", "1e9", "x", "inf"],
    "u": ["", "-1e12", "0", "0.5", "1000"],
    "who": ["", "p1", "p2", "p3", "1.0", "1"],
    "grade": ["low", "mid", "high", "", "none"],
    "town": ["1", "1.0", "2", "7", ""],
    "counts": ["0", "1", "2", "1e300", "-1", "", "x"],
    "y": ["a", "b", "c", "", "d"],
}


@pytest.mark.parametrize("statistics", ["drawn", "hostile"])
def test_sums_of_an_additive_model_move_by_one_clip_at_most(tmp_path: Path, statistics: str) -> None:
    """Counts, and gradients in whatever coordinates the server sends, with every key of a schema and any cells."""
    draw = np.random.default_rng(3)
    rows = [",".join(draw.choice(cells) for cells in CELLS.values()) for _ in range(120)]
    settings = {"schema": str(write(tmp_path / "s.toml", MANY_KEYS)), "agents": 2, "total_records": 100}
    settings |= {"data": str(tmp_path / "t.csv"), "noise": "hardened", "rounds": 20}
    write(tmp_path / "t.csv", ",".join(CELLS))
    plan = plan_study(resolve(settings))
    algorithm = plan.parts[0].algorithm
    assert isinstance(algorithm, Additive) and isinstance(algorithm.release, HardenedGradient)
    exact = Exact(algorithm.release)
    sums_of = replace(algorithm, release=exact)
    width = plan.facts.features
    w = draw.normal(size=(width, 1, 3)) * draw.choice([0.0, 1.0, 1e6], (width, 1, 1))
    sent = draw.random((width, 1, 3)) * 0.01
    if statistics == "hostile":
        sent[::3], sent[1::7], sent[2::11] = -1e9, np.inf, np.nan

    def sums(kept: list[str]) -> dict[int, list[Any]]:
        write(tmp_path / "t.csv", "\n".join([",".join(CELLS), *kept]) + "\n")
        train, found = load_data(plan, key=11).dataset.train, {}
        for t, at, agent in ((1, w, Agent(w, w)), (2, sent, Agent(w, w)), (3, w, Agent(w, sent))):
            found[t] = [
                sums_of.local_gradient(t, at, agent, shard, SeededNoise((1,), 0, t)).gradient for shard in train
            ]
        return found

    before = sums(rows)
    clip = float(algorithm.release.clipping.l2[0]) * GRID * 2.0**algorithm.release.bits
    moved = {t: np.zeros(0) for t in before}
    for at in range(0, 120, 6):
        after = sums(rows[:at] + rows[at + 1 :])
        for t, parts in before.items():
            moves = [float(np.sqrt(((a - b).astype(float) ** 2).sum())) for a, b in zip(parts, after[t], strict=True)]
            assert sum(move > 0 for move in moves) <= 1
            moved[t] = np.append(moved[t], sum(moves))
    for t, all_moves in moved.items():
        assert 0.9 * clip < all_moves.max() <= clip, t


@dataclass(frozen=True)
class Exact:
    """What a hardened release adds its noise to."""

    release: HardenedGradient

    def __call__(self, update: int, problem: Problem, z: Any, shard: Shard, noise: Any) -> ReleasedGradient:
        total: Any = self.release.sum(problem, z, shard)
        return ReleasedGradient(total, self.release.mechanism.event, self.release.mechanism.magnitude)


def test_certified_mode_refuses_to_partition_a_table_by_row_numbers(tmp_path: Path) -> None:
    asked = table(tmp_path, rows_of(20))
    assert resolve(asked).partition == "hashed"
    assert resolve({**asked, "mode": "paper", "total_records": "auto", "noise": "seeded"}).partition == "in-order"
    assert resolve({}).partition == "in-order"  # the partition of a published data set is public
    for way in ("in-order", "shuffled"):
        sentence = (
            rf"^partition {way} assigns records by their positions .*: certified mode supports hashed and dirichlet$"
        )
        with pytest.raises(InputError, match=sentence):
            plan_study(resolve({**asked, "partition": way}))
        with pytest.raises(InputError, match=sentence):
            read({**asked, "partition": way})
    write(tmp_path / "s.toml", SCHEMA + AGENT.replace("site", "who"))
    assert len(read({**asked, "partition": "in-order"}).train) > 1  # it names its agents: nothing is dealt out


def test_a_bound_that_a_random_partition_can_exceed_is_refused(tmp_path: Path) -> None:
    asked = table(tmp_path, rows_of(20))
    assert plan_study(resolve(asked)).facts.records_max == ROWS
    assert load_data(plan_study(resolve({**asked, "records_max": 2000})), key=1).dataset.records == 20
    for most in (100, {f"agent-{p + 1}": 999 for p in range(AGENTS)}):
        plan = plan_study(resolve({**asked, "records_max": most}))  # a plan may be of sites with tables of their own
        with pytest.raises(InputError, match=r"^records-max is \d+, but this table is partitioned at random"):
            load_data(plan, key=1)
    write(tmp_path / "s.toml", SCHEMA + AGENT.replace("site", "who"))
    names = {f"p{i}": 5 for i in range(3)}
    named = load_data(plan_study(resolve({**asked, "agents": 3, "records_max": names})), key=1)
    assert named.dataset.agents == tuple(names)  # which are not dealt out


def test_holding_out_is_independent_of_the_agent() -> None:
    x, labels = np.random.default_rng(2).random((4000, 3)), np.zeros(4000, np.intp)
    units = Units(None, tuple(f"u{i}" for i in range(4000)), np.arange(4000, dtype=np.int32))  # type: ignore[arg-type]
    for dealt, held in (
        [record_draws(x, labels, 3, purpose) for purpose in (ASSIGNMENT, HOLD_OUT)],
        [unit_draws(units, 3, purpose) for purpose in (ASSIGNMENT, HOLD_OUT)],
    ):
        assert abs(np.corrcoef(dealt, held)[0, 1]) < 0.07  # four standard deviations
        shares = [np.mean(held[own] < 0.3) for own in hashed(dealt, 4)]
        assert all(abs(share - 0.3) < 0.06 for share in shares)


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(1, 9), st.integers(0, 2**128 - 1), st.floats(1e-6, 1e6))
def test_every_record_has_one_agent_whatever_the_others(
    draws: list[float], agents: int, key: int, alpha: float
) -> None:
    at, labels = np.array(draws), np.arange(len(draws)) % 3

    def dealt(rows: slice) -> list[list[Any]]:
        return [hashed(at[rows], agents), hashed_dirichlet(at[rows], labels[rows], 3, agents, alpha, key)]

    together = dealt(slice(None))
    for way in together:
        assert len(way) == agents and sorted(np.concatenate(way).tolist()) == list(range(len(draws)))
    for i in range(len(draws)):
        for way, alone in zip(together, dealt(slice(i, i + 1)), strict=True):
            assert [i in own for own in way] == [len(own) == 1 for own in alone]


def test_shares_are_uneven_and_those_of_the_key() -> None:
    draws, labels = np.random.default_rng(0).random(30_000), np.repeat(np.arange(3), 10_000)
    sizes = [[len(own) for own in hashed_dirichlet(draws, labels, 3, 10, 0.5, key)] for key in (1, 1, 2)]
    assert sizes[0] == sizes[1] != sizes[2]
    assert max(sizes[0]) > 3 * min(sizes[0])
    assert max(map(len, hashed(draws, 10))) < 3300


def test_a_record_s_hash_is_the_same_in_every_row_format_and_precision(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [row.split(",") for row in rows_of(60)]
    asked = table(tmp_path, [",".join(row) for row in rows])
    columns = {"v": [int(row[0]) for row in rows], "who": [row[1] for row in rows], "y": [row[2] for row in rows]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    one = read(asked)
    for other in (
        read({**asked, "data": str(tmp_path / "t.parquet")}),
        read({**asked, "precision": "float32", "intercept": False}),
    ):
        assert [values(shard) for shard in one.train] == [values(shard) for shard in other.train]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 20), st.integers(0, 2**128 - 1))
def test_equal_rows_go_to_one_agent_and_some_agents_have_none(found: list[int], agents: int, key: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asked = table(Path(folder), [f"{v},p,a" for v in found]) | {"agents": agents}
        dataset = read(asked, key)
    assert sum((values(shard) for shard in dataset.train), Counter()) == Counter(found)
    assert all(sum(v in values(shard) for shard in dataset.train) == 1 for v in set(found))


def test_mode_paper_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    table(tmp_path, rows_of(20))
    given: dict[str, Any] = {
        "data": str(tmp_path / "t.csv"),
        "schema": str(tmp_path / "s.toml"),
        "agents": 3,
        "mode": "paper",
    }
    dataset = load(resolve(given | {"features": "none"}).data_options())
    assert [round(1000 * v) for shard in dataset.train for v in shard.x[:, 0]] == list(range(20))
    assert [len(shard.x) for shard in dataset.train] == [7, 7, 6]
    options = DataOptions(data=given["data"], schema=given["schema"], agents=1, test_share=0.25)
    test = load(options).test
    assert sorted(values(test)) == [3, 9, 12, 15]  # as it has always been drawn with key 0


@pytest.mark.parametrize(("different", "rows", "said"), [(4, 1000, True), (4, 6, False), (400, 1000, False)])
def test_the_owner_is_told_where_equal_rows_spoil_the_hold_out(
    tmp_path: Path, different: int, rows: int, said: bool
) -> None:
    of = [f"{i % different},p{i},a" for i in range(rows)]
    remarks = read(table(tmp_path, of) | HELD["held out"]).remarks
    assert bool(remarks) == said
    assert all(remark.startswith("equal rows are held out together: ") for remark in remarks)
    assert not read(table(tmp_path, of, UNIT) | HELD["held out"]).remarks
    assert not read(table(tmp_path, of)).remarks


STRETCHED = """
[columns.dose]
kind = "numeric"
bounds = [0.01, 1000]
missing = "{missing}"
scale = "log"
[columns.balance]
kind = "numeric"
bounds = [-1000, 1000]
scale = "asinh"
step = 3
"""


def draws_of(folder: Path, missing: str) -> list[NDArray[np.float64]]:
    """Return the draws of records with logarithms, by which they are held out and by which they have their agents."""
    schema = write(folder / "s.toml", SCHEMA + STRETCHED.format(missing=missing))
    options = DataOptions(
        str(folder / "t.csv"), schema=str(schema), test_share=0.2, agents=5, partition="hashed", private=True
    )
    opened, schema_read = open_table(options.data), table_schema(options)
    rows = EncodedTable(opened, schema_read, options, allocator_for(options, opened.most, 8))
    return [rows.records.x, *(rows.draws(purpose) for purpose in (HOLD_OUT, ASSIGNMENT))]


@pytest.mark.parametrize("missing", ["low", "middle", "indicator"])
def test_draws_do_not_depend_on_the_last_bit_of_a_logarithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """It depends on the processor and on numpy: a record held out here would train on another machine."""
    rng = np.random.default_rng(3)
    lines = [f"{i},{v:.4g},{w:.4g},{'abc'[i % 3]}" for i, (v, w) in enumerate(rng.lognormal(2, 2, (200, 2)))]
    write(tmp_path / "t.csv", "\n".join(["v,dose,balance,y", *lines, "7,,NA,a", "7,2000,-5000,a", "7,0,1,a"]) + "\n")
    plain = draws_of(tmp_path, missing)
    for name in ("log", "exp", "arcsinh", "sinh"):
        real = getattr(np, name)
        monkeypatch.setattr(np, name, lambda x, real=real: np.nextafter(real(x), np.inf))
    moved = draws_of(tmp_path, missing)
    assert (plain[0] != moved[0]).any()
    assert [found.tolist() for found in plain[1:]] == [found.tolist() for found in moved[1:]]
    assert len(np.unique(plain[1])) == 203


def test_a_split_by_logarithms_is_another_one_than_before_and_other_splits_are_not(tmp_path: Path) -> None:
    """Records were drawn by their logarithms before, so a ledger must not take the two for one split."""
    options = DataOptions("t.csv", test_share=0.2, partition_key=3)
    for more, kind in (("", "record"), (STRETCHED.format(missing="low"), "linear record")):
        schema = write(tmp_path / "s.toml", SCHEMA + more)
        content = dump_schema(read_schema(schema))
        assert record_split(replace(options, schema=str(schema))) == split_digest(3, 0.2, f"{kind} {content}")
