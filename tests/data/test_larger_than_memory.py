from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from taciturn.core import arrays as mapped
from taciturn.core.arrays import backing_file
from taciturn.data import DataOptions, describe, fingerprint, load
from taciturn.data.allocation import ArrayAllocator, allocator_for
from taciturn.data.dataset_source import CONTAINER, machine_memory, memory_limit
from taciturn.errors import InputError
from taciturn.settings import resolve
from taciturn.types import Dataset, Shard

from .helpers import write
from .test_mnist import put_mnist

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

TINY = "0.001kB"  # nothing fits
SCHEMA = """
[label]
column = "y"
classes = ["p", "q"]
[columns.age]
kind = "numeric"
bounds = [0, 50]
missing = "middle"
[columns.code]
kind = "categorical"
categories = ["1", "2", "3"]
missing = "none"
"""
AGENT = '[agent]\ncolumn = "site"\n'
UNIT = '[unit]\ncolumn = "who"\nmax_records = 2\n'
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "in order": ("", {"agents": 3}),
    "shuffled": ("", {"agents": 4, "partition": "shuffled", "precision": "float32", "intercept": True}),
    "skewed": ("", {"agents": 2, "partition": "dirichlet", "dirichlet_alpha": 5.0, "intercept": True}),
    "hashed": ("", {"agents": 3, "partition": "hashed", "private": True, "partition_key": 2**100}),
    "hashed, skewed": ("", {"agents": 5, "partition": "dirichlet", "private": True, "test_share": 0.2}),
    "hashed units": (UNIT, {"agents": 5, "partition": "hashed", "private": True, "test_share": 0.2}),
    "by column, held out": (AGENT, {"test_share": 0.3, "precision": "float32"}),
    "units": (UNIT, {"agents": 2, "partition": "shuffled", "test_share": 0.2}),
    "units by column": (UNIT + AGENT, {"intercept": True}),
}
WAYS_OF_FOLDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "files": ("", {"test_share": 0.3}),
    "units by column": WAYS["units by column"],
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a table of 40 rows as a Parquet file, as a CSV file, and as a folder of both."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(3)
    columns = {
        "age": [None if v < 0 else v for v in rng.integers(-3, 60, 40).tolist()],
        "code": [None if v == 0 else v for v in rng.integers(0, 4, 40).tolist()],
        "y": rng.choice(["p", "q"], 40).tolist(),
        "who": rng.integers(0, 12, 40).tolist(),
        "site": rng.choice(["s", "r", "t"], 40).tolist(),
        "more": [0.5] * 40,
    }
    (folder / "both").mkdir()
    for name, rows in (("t", slice(0, 40)), ("both/east", slice(0, 15)), ("both/west", slice(15, 40))):
        part = {key: values[rows] for key, values in columns.items()}
        if name != "both/west":
            pq.write_table(pa.table(part), folder / f"{name}.parquet", row_group_size=7)
        if name != "both/east":
            cells = [["" if v is None else str(v) for v in row] for row in zip(*part.values(), strict=True)]
            write(folder / f"{name}.csv", "\n".join(",".join(row) for row in [list(part), *cells]))
    return folder


def read(folder: Path, data: str, way: str = "in order", **changes: Any) -> Dataset:
    more, options = (WAYS | WAYS_OF_FOLDERS)[way]
    schema = write(folder / "s.toml", SCHEMA + more)
    return load(DataOptions(**{"data": str(folder / data), "schema": str(schema), **options, **changes}))


def facts(dataset: Dataset) -> tuple[str, list[str]]:
    """Return a digest of every bit of the records, and all notes except the one on where they are stored."""
    return fingerprint(dataset), [note for note in dataset.notes if "memory-mapped" not in note]


def in_files(dataset: Dataset) -> set[bool]:
    shards = [*dataset.train, *([dataset.test] if dataset.test else [])]
    return {backing_file(array) is not None for shard in shards for array in (shard.x, shard.y)}


@pytest.mark.parametrize(
    ("data", "way"),
    [*((data, way) for data in ("t.parquet", "t.csv") for way in WAYS), *(("both", way) for way in WAYS_OF_FOLDERS)],
)
def test_neither_chunks_nor_files_change_a_bit(
    tables: Path, data: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = read(tables, data, way)
    assert in_files(plain) == {False}
    assert any("clipped" in note for note in plain.notes) and any("missing" in note for note in plain.notes)
    monkeypatch.setattr(mapped, "BLOCK", 100)
    for rows in (1, 3, 40):
        monkeypatch.setattr("taciturn.data.datasets.table.chunk_rows", lambda width, rows=rows: rows)
        monkeypatch.setattr("taciturn.data.table_io.TEXT", 1)
        assert facts(read(tables, data, way)) == facts(plain)
        lying = read(tables, data, way, memory=TINY)
        assert in_files(lying) == {True}
        assert facts(lying) == facts(plain)
        assert f"files in {tempfile.gettempdir()}" in lying.notes[-1]
        assert describe(lying) | {"notes": []} == describe(plain) | {"notes": []}


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_place_is_named_whatever_the_chunks(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taciturn.data.datasets.table.chunk_rows", lambda width: rows)
    monkeypatch.setattr("taciturn.data.table_io.TEXT", 1)
    columns = {"age": [1.0] * 9, "code": ["1"] * 8 + ["9"], "y": ["p"] * 9}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    found = read(tmp_path, "t.parquet", memory=TINY)
    assert found.notes[0] == "code: 1 unknown category became no category (row 9 of t.parquet)"
    write(tmp_path / "t.csv", "age,code,y\n" + "1,1,p\n\n" * 8 + "x,1,p\n")
    found = read(tmp_path, "t.csv", memory=TINY)
    assert found.notes[0] == "age: 1 value that is not a finite number became 25 (line 18 of t.csv)"
    write(tmp_path / "t.csv", "age,code,y\n" + "1,1,p\n" * 8 + "1,1\n")
    found = read(tmp_path, "t.csv", memory=TINY)
    assert found.notes[0] == "1 line that is not a row of the table was left out (line 10 of t.csv)"
    assert found.records == 8


def test_images_can_be_memory_mapped_too(tmp_path: Path) -> None:
    put_mnist(tmp_path)
    for options in ({"partition": "shuffled"}, {"intercept": True, "precision": "float32"}):
        made = [
            load(DataOptions(data="mnist", data_dir=str(tmp_path), agents=3, memory=memory, **options))
            for memory in ("auto", TINY)
        ]
        assert [in_files(dataset) for dataset in made] == [{False}, {True}]
        assert facts(made[0]) == facts(made[1])


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Shard, Shard]]:
    """Return the same records in memory and in memory-mapped files, in blocks of 7 rows."""
    monkeypatch.setattr(mapped, "BLOCK", 7 * (5 + 2) * 8)
    rng = np.random.default_rng(0)
    values: list[NDArray[Any]] = [rng.standard_normal((40, 5)), rng.random((40, 2))]
    room = ArrayAllocator(np.float64, tempfile.gettempdir())
    arrays = [room.empty(*value.shape) for value in values]
    for array, value in zip(arrays, values, strict=True):
        array[:] = value
    yield Shard(*values), Shard(*arrays)


def test_a_shard_by_its_blocks(pair: tuple[Shard, Shard]) -> None:
    plain, lying = pair
    assert [block is plain for block in plain.blocks()] == [True]
    for _ in range(2):
        blocks = list(lying.blocks())
        assert [len(block.x) for block in blocks] == [7] * 5 + [5]
        assert all(list(block.blocks()) == [block] for block in blocks)
        for name in ("x", "y", "norm1", "norm2"):
            joined = np.concatenate([getattr(block, name) for block in blocks])
            assert joined.tobytes() == getattr(plain, name).tobytes() == getattr(lying, name).tobytes()
    for block in lying.blocks():
        assert block.on_grid is block.on_grid
    assert not any("on_grid" in vars(block) for block in lying.blocks())


def test_what_was_written_is_kept_when_memory_is_given_back(pair: tuple[Shard, Shard]) -> None:
    _, lying = pair
    for block in lying.blocks():
        block.x[:] = 3.0
    assert (lying.x == 3.0).all()
    mapped.release_memory(lying.x[3:3])
    mapped.release_memory(np.zeros(3))


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [memory_limit(text) for text in ("2GB", "1.5 mb", "500MB")] == [2 * 10**9, 15 * 10**5, 5 * 10**8]
    assert memory_limit("auto") == machine_memory() // 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")  # ranks on this machine
    assert memory_limit("auto") == machine_memory() // 8
    assert resolve({"memory": "2GB"}).data_options().memory == "2GB"
    for wrong in ("2", "2 gigs", "0MB", "-1GB", 2_000_000, "", "1e3MB"):
        sentence = rf"^memory is {wrong!r}: it must be auto, or a size above 0 in kB, MB, GB, TB, such as 500MB or 2GB$"
        with pytest.raises(InputError, match=sentence):
            resolve({"memory": wrong})
        with pytest.raises(InputError, match=sentence):
            load(DataOptions(memory=wrong))  # type: ignore[arg-type]


def test_a_container_has_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CONTAINER.name == "memory.max"
    monkeypatch.setattr("taciturn.data.dataset_source.CONTAINER", write(tmp_path / "memory.max", "1000000\n"))
    assert machine_memory() == 10**6
    monkeypatch.setattr("taciturn.data.dataset_source.CONTAINER", write(tmp_path / "memory.max", "max\n"))
    assert machine_memory() > 10**8


def test_a_disk_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(free=3_000_000))
    assert allocator_for(DataOptions(memory="8MB"), 1000, 1000).folder == ""
    with pytest.raises(
        InputError, match=r"^the records need 8 MB in .*, which has 3 MB left: set TMPDIR to a folder on"
    ):
        allocator_for(DataOptions(memory="7MB"), 1000, 1000)


CHILD = """
import os, sys
import pyarrow.parquet
from taciturn.data import DataOptions, describe, fingerprint, load

def peak():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0]) / 1000  # MB

pyarrow.array([0.5]).to_numpy()  # loads pandas where there is one
before = peak()
data, schema = sys.argv[1:]
dataset = load(DataOptions(data, schema=schema, agents=2, precision="float32", memory="50MB"))
describe(dataset)
fingerprint(dataset)
assert sum(len(shard.norm2) for shard in dataset.train) == dataset.records
print(sum(shard.x.nbytes for shard in dataset.train) / 1e6, peak() - before, os.listdir(os.environ["TMPDIR"]))
raise RuntimeError("the end")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how much memory a process had is read from /proc")
def test_memory_stays_bounded_and_nothing_is_left_behind(tmp_path: Path) -> None:
    columns, rows, batch = 30, 100_000, 25
    names, rng = [f"c{i}" for i in range(columns)], np.random.default_rng(0)
    table = pa.table({name: rng.random(rows, dtype=np.float32) for name in names} | {"y": rng.integers(0, 2, rows)})
    with pq.ParquetWriter(tmp_path / "t.parquet", table.schema, compression="none", use_dictionary=False) as file:
        for _ in range(batch):
            file.write_table(table)
    rules = [f'[columns.{name}]\nkind = "numeric"\nbounds = [0, 1]\n' for name in names]
    schema = write(tmp_path / "s.toml", '[label]\ncolumn = "y"\nclasses = ["0", "1"]\n' + "".join(rules))
    (tmp_path / "aside").mkdir()
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "t.parquet"), str(schema)],
        env=os.environ | {"TMPDIR": str(tmp_path / "aside")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "RuntimeError: the end" in child.stderr, child.stderr
    size, grown, files = child.stdout.split(maxsplit=2)
    assert float(size) == 4 * columns * rows * batch / 1e6 == 300
    assert float(grown) < 150
    assert files.strip() == "[]" and not list((tmp_path / "aside").iterdir())
