"""Runs on a partitioned table: agents without records take part, and the key stays with the owner."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.algorithms import ALGORITHMS
from taciturn.data import load
from taciturn.errors import CorruptFile, InputError, Interrupted
from taciturn.objectives import LOSSES
from taciturn.objectives.clipping import NO_CLIPPING
from taciturn.objectives.passes import COMPILED, PLAIN
from taciturn.runs.folder import RunFolder
from taciturn.settings import resolve
from taciturn.types import Shard
from tests.data.helpers import schema_text

SCHEMA = schema_text("y", ["a", "b"], v=[0, 10], c=["1", "2", "3", "4", "5", "6"])
METHODS = sorted(name for name in ALGORITHMS if ALGORITHMS[name].noisy and "certified" in ALGORITHMS[name].modes)


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, Any]:
    """Six records for twelve agents: at least six of them have none."""
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "t.csv").write_text("v,c,y\n" + "".join(f"{i},{i + 1},{'ab'[i % 2]}\n" for i in range(6)))
    where = {"data": str(tmp_path / "t.csv"), "schema": str(tmp_path / "s.toml")}
    return {**where, "agents": 12, "total_records": 10, "rounds": 3, "out": tmp_path / "run"}


def public_bytes(folder: Path) -> bytes:
    files = [path for path in folder.rglob("*") if path.is_file() and not {"local-only", "checkpoint"} & {*path.parts}]
    return b"".join(path.read_bytes() for path in files)


@pytest.mark.parametrize(("backend", "methods"), [("numpy", METHODS), ("auto", ["dpgd", "objpm", "outp"])])
def test_agents_without_a_record_take_part(asked: dict[str, Any], backend: str, methods: list[str]) -> None:
    run = taciturn.run(**{**asked, "rounds": 2}, algorithm=methods, backend=backend, total_epsilon=3.0, noise="seeded")
    held = run.folder.read_start()["data"]["agents"]
    assert sum(held.values()) == 6 and 0 in held.values()
    assert len(run.w) == len(methods) and np.isfinite(run.w).all()
    assert {len(entry["agents"]) for entry in run.summary["privacy"]["runs"]} == {12}


@pytest.mark.parametrize("share", [1e-9, 1.0 - 1e-9])
@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_none_or_all_may_be_held_out(asked: dict[str, Any], backend: str, share: float) -> None:
    run = taciturn.run(**asked, noise="hardened", backend=backend, test_share=share, features="unit")
    begun = run.folder.read_start()
    assert begun["data"]["test_records"] == (0 if share < 0.5 else 6)
    assert run.folder.read_start(local=False)["data"]["test_records"] is None
    assert (run.test_error is None) == (share < 0.5)
    assert run.folder.report.is_file()


@pytest.mark.parametrize("lying", ["auto", "0.001kB"])
def test_a_table_without_a_single_record_is_trained_on(asked: dict[str, Any], lying: str) -> None:
    Path(asked["data"]).write_text("v,c,y\n1,1,unknown\n")
    run = taciturn.run(**asked, noise="hardened", memory=lying)
    assert np.isfinite(run.w).all() and run.folder.read_start()["data"]["records"] == 0


@pytest.mark.parametrize("passes", [PLAIN, COMPILED])
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_no_records_add_nothing(passes: Any, loss: str, precision: Any) -> None:
    outputs = 1 if loss == "squared" else 2
    z = np.random.default_rng(1).normal(size=(3, 4, outputs)).astype(precision)
    empty = Shard(np.empty((0, 3), precision), np.empty((0, outputs), precision))
    found = passes.sums(LOSSES[loss](), z, empty, NO_CLIPPING)
    assert found.total.shape == z.shape and not found.total.any() and not found.longest.any()
    assert passes.losses(LOSSES[loss](), z, empty).tolist() == [0.0] * 4


@pytest.mark.parametrize("given", [{}, {"partition_key": 271828182845904523}])
def test_the_key_is_in_no_public_file(asked: dict[str, Any], given: dict[str, Any]) -> None:
    run = taciturn.run(**asked, **given, noise="hardened", test_share=0.5)
    key = run.folder.read_key()
    assert key is not None and run.folder.read_config()["partition_key"] == "auto"
    assert key == given["partition_key"] if given else key > 2**64
    assert str(key).encode() not in public_bytes(run.path) and hex(key)[2:].encode() not in public_bytes(run.path)
    held = [len(shard.x) for shard in load(resolve(run.folder.read_config()).data_options(key)).train]
    assert held == list(run.folder.read_start()["data"]["agents"].values())


def test_two_runs_have_two_keys(asked: dict[str, Any], tmp_path: Path) -> None:
    keys = {taciturn.run(**{**asked, "out": tmp_path / name}).folder.read_key() for name in ("one", "two")}
    assert len(keys) == 2 and None not in keys
    given: dict[str, Any] = {"data": "mnist14", "rounds": 1, "algorithm": "dpgd", "features": "pixels"}
    assert (
        taciturn.run(**given, out=tmp_path / "digits").folder.read_key() is None
    )  # who holds a public record is public


def test_a_resumed_run_keeps_its_partition_key(asked: dict[str, Any]) -> None:
    calls: list[int] = []

    def stop() -> bool:
        calls.append(1)
        return len(calls) == 1

    with pytest.raises(Interrupted):
        taciturn.run(**asked, noise="hardened", stop=stop)
    folder = RunFolder.open(Path(asked["out"]))
    before = folder.read_key()
    run = taciturn.resume(folder.path)
    assert run.folder.finished and run.folder.read_key() == before
    key = folder.local / "partition.key"
    key.write_text("a key\n")
    with pytest.raises(CorruptFile, match=r"partition\.key is damaged: it must hold one whole number$"):
        folder.read_key()


def test_the_plan_does_not_depend_on_the_records(asked: dict[str, Any]) -> None:
    """Two tables of other sizes, classes and values: the same plan, and the same public description."""
    first = taciturn.dry_run(**asked)
    Path(asked["data"]).write_text("v,c,y\n" + "9,x,b\n" * 9)
    assert taciturn.dry_run(**asked) == first
    run = taciturn.run(**asked, noise="hardened")
    begun = run.folder.read_start(local=False)["data"]
    assert begun["records"] == 10 and begun["declared"]["records_max"] == 10
    assert set(begun["agents"].values()) == {None} and not begun["notes"]


def test_all_points_of_a_sweep_share_one_partition(asked: dict[str, Any], tmp_path: Path) -> None:
    given = {name: value for name, value in asked.items() if name != "out"} | {"test_share": 0.5, "rounds": 2}
    given |= {"agents": 2, "noise": "seeded", "total_records": 50}
    rows = "".join(f"{i % 10},{i // 10},{'ab'[i % 2]}\n" for i in range(50))  # so many that some are held out
    Path(given["data"]).write_text(f"v,c,y\n{rows}")
    place = tmp_path / "sweep"
    done = taciturn.sweep(over={"clip": [0.5, 1.0]}, out=place, **given)
    keys = {RunFolder.open(path).read_key() for path in (place / "runs").iterdir()}
    assert len(keys) == 1 and (place / "local-only" / "partition.key").read_text().strip() == str(*keys)
    assert str(*keys).encode() not in public_bytes(place)
    assert len({run.folder.read_start()["records"] for run in map(taciturn.open_run, (place / "runs").iterdir())}) == 1
    assert all(math.isfinite(row.error) for row in done.rows)
    again = taciturn.sweep(over={"clip": [0.5, 1.0]}, out=place, **given)
    assert again.rows == done.rows
    with pytest.raises(InputError, match=r"local-only/partition\.key"):
        taciturn.sweep(over={"clip": [0.5, 1.0]}, out=place, partition_key=1, **given)


def test_a_sweep_over_keys_repeats_the_partition(asked: dict[str, Any], tmp_path: Path) -> None:
    given = {name: value for name, value in asked.items() if name != "out"} | {
        "test_share": 0.5,
        "rounds": 2,
        "noise": "seeded",
    }
    done = taciturn.sweep(over={"partition_key": [1, 2]}, out=tmp_path / "s", **{**given, "agents": 2})
    assert done.unit == "partition_key"
    keys = [RunFolder.open(path).read_key() for path in sorted((tmp_path / "s" / "runs").iterdir())]
    assert keys == [1, 2] and not (tmp_path / "s" / "local-only" / "partition.key").exists()
