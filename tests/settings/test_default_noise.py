"""The default noise of a run: hardened for private records, and then no seed anywhere."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.algorithms import ALGORITHMS
from taciturn.data.datasets.femnist import PACKED
from taciturn.data.mnist_files import MD5
from taciturn.errors import InputError, Interrupted
from taciturn.experiments.grid import check_noise
from taciturn.export.target import TARGETS, ExportRequest
from taciturn.planning.tradeoffs import plan_facts
from taciturn.runs.folder import RunFolder
from taciturn.settings import resolve
from tests.data.helpers import write
from tests.data.test_femnist import shard, writer

TABLE: dict[str, Any] = {
    "data": "tests/data/clinics/records.csv", "schema": "tests/data/clinics/schema.toml",
    "total_records": 600, "agents": 3,
}  # fmt: skip
FEW: dict[str, Any] = {**TABLE, "rounds": 3, "test_share": 0.25}
INEXACT = [name for name in ALGORITHMS if ALGORITHMS[name].noisy and not ALGORITHMS[name].hardened]


@pytest.mark.parametrize(
    ("given", "noise", "seed"),
    [
        (TABLE, "hardened", "auto"),
        (TABLE | {"seeds": 1}, "hardened", "auto"),
        (TABLE | {"trust": "secure-sum", "algorithm": "dpgd", "features": "none"}, "hardened", "auto"),
        (TABLE | {"mechanism": "laplace"}, "hardened", "auto"),
        (TABLE | {"total_epsilon": "0.5,1"}, "hardened", "auto"),
        (TABLE | {"seed": 1}, "seeded", 1),
        (TABLE | {"seed": 0}, "seeded", 0),
        (TABLE | {"seed": 1, "seeds": 2}, "seeded", 1),
        (TABLE | {"noise": "seeded", "seeds": 2}, "seeded", 1),
        ({"seeds": 2}, "seeded", 1),
        (TABLE | {"noise": "seeded"}, "seeded", 1),
        (TABLE | {"total_epsilon": "inf"}, "seeded", 1),
        (TABLE | {"mode": "paper", "total_records": "auto"}, "seeded", 1),
        ({"data": "mnist14"}, "seeded", 1),
        ({"data": "mnist"}, "seeded", 1),
        ({"data": "femnist"}, "seeded", 1),
        ({"data": "mnist14", "noise": "hardened"}, "hardened", "auto"),
    ],
)
def test_private_records_get_noise_of_the_operating_system(given: dict[str, Any], noise: str, seed: int | str) -> None:
    settings = resolve(given)
    assert (settings.noise, settings.seed) == (noise, seed)
    assert resolve(settings.to_dict()) == settings


@pytest.mark.parametrize("name", INEXACT)
def test_methods_without_exact_noise_are_for_simulations(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} has no exact noise.* dpgd, .*--seed N makes .* without protection"):
        resolve(TABLE | {"algorithm": name})
    assert resolve(TABLE | {"algorithm": name, "seed": 3}).noise == "seeded"
    assert resolve({"data": "mnist14", "algorithm": name}).noise == "seeded"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"trust": "server"}, "trust is server, but noise is hardened"),
        ({"total_epsilon": "1,inf"}, "total-epsilon lists both inf and a finite budget"),
        ({"backend": "torch"}, "backend is torch, but hardened noise"),
        ({"noise": "hardened", "seed": 1}, "seed is 1, but noise is hardened"),
    ],
)
def test_what_only_a_simulation_can_do_asks_for_a_seed(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"{words}.*; --seed N makes the run a simulation without protection"):
        resolve(TABLE | given)


@pytest.mark.parametrize("start", [taciturn.sweep, taciturn.frontier])
def test_many_runs_on_private_records_need_an_explicit_choice_of_noise(tmp_path: Path, start: Any) -> None:
    asked = {**FEW, "total_epsilon": "1,2", "out": tmp_path / "s"} | (
        {"over": {"clip": [1, 2]}} if start is taciturn.sweep else {}
    )
    with pytest.raises(InputError, match=r"trains many models on the private records of records[.]csv"):
        start(**asked)
    assert not (tmp_path / "s").exists()


def contents(path: Path) -> list[bytes]:
    """Return a file's bytes; for an archive also the bytes and names of its members."""
    found = [path.name.encode(), path.read_bytes()]
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            found += [content for name in archive.namelist() for content in (name.encode(), archive.read(name))]
    return found


def with_a_seed(folder: Path) -> list[str]:
    """Return the files that contain the word in any spelling."""
    found = []
    for path in sorted(folder.rglob("*")):
        texts = contents(path) if path.is_file() else [path.name.encode()]
        if any(b"seed" in text.lower() for text in texts):
            found.append(str(path.relative_to(folder)))
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_hardened_run_has_no_seed_in_any_file(tmp_path: Path) -> None:
    run = taciturn.run(**FEW, algorithm="dpgd,objp", total_epsilon="1,2", out=tmp_path / "r")
    assert {path.name for path in run.path.iterdir()} >= {"model.npz", "report.html", "checkpoint"}
    for name in ("onnx", "csv", "tensorboard"):
        TARGETS[name].write(ExportRequest(run.folder))
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    TARGETS["mlflow"].write(ExportRequest(run.folder, tracking_uri=uri, experiment="clinics"))
    kept = tmp_path / "mlartifacts"
    assert with_a_seed(run.path) == [] and kept.is_dir() and with_a_seed(kept) == []
    assert all("seed" not in entry for entry in (*run.runs, *run.folder.read_metrics(), *run.folder.read_ledger()))
    assert set(run.folder.read_model()) == {"w", "algorithm", "epsilon", "feature_names", "classes"}
    assert not {"seed", "seeds"} & set(run.folder.read_config())
    other = taciturn.run(**FEW, seed=1, out=tmp_path / "s")
    assert {"config.toml", "model.npz", "report.html"} <= set(with_a_seed(other.path)), "the search finds what is there"


def test_a_hardened_run_is_resumed_without_a_seed(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        taciturn.run(**(FEW | {"rounds": 6}), out=tmp_path / "r", stop=lambda: True)
    assert not RunFolder.open(tmp_path / "r").finished
    run = taciturn.resume(tmp_path / "r")
    assert run.runs[0]["rounds"] == 6 and with_a_seed(run.path) == []
    with pytest.raises(InputError, match=r"hardened noise cannot be drawn again.*--seed N"):
        run.sent()


def test_two_hardened_runs_have_different_noise(tmp_path: Path) -> None:
    first, second = (taciturn.run(**FEW, out=tmp_path / name).w for name in "ab")
    assert not np.array_equal(first, second)


def test_the_plan_and_the_forecast_say_which_noise_it_is() -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({}, "hardened", "it protects"),
        ({"seed": 4}, "seeded", "from seed 4 (seeded): a simulation, which protects nobody"),
        ({"total_epsilon": "inf"}, "seeded", "no noise: it protects nobody"),
    ]
    for given, noise, words in cases:
        foreseen = taciturn.dry_run(**FEW, **given)["noise"]
        assert foreseen["source"] == noise and words in foreseen["meaning"]
        assert plan_facts(taciturn.plan(**FEW, **given))["noise"]["meaning"] == foreseen["meaning"]


def test_several_seeds_do_not_make_a_simulation_of_private_records() -> None:
    """Only a seed or --noise seeded gives up the guarantee, because a user has to type it."""
    for given in ({"seeds": 2}, {"seeds": 2, "total_epsilon": "0.5,1"}):
        with pytest.raises(
            InputError, match=r"^seeds is 2, but hardened noise has no seeds: .*; --seed N makes the run a"
        ):
            resolve(TABLE | given)
    with pytest.raises(InputError, match=r"^a sweep trains many models on the private records of records.csv"):
        check_noise(TABLE | {"seeds": 2}, "a sweep")


def own_files(folder: Path, data: str) -> None:
    """Put other files in the place of a published data set's."""
    if data == "femnist":
        for part in ("train", "test"):
            shard(folder / "femnist" / part / "a.json", {"ann": writer(3, 1), "bob": writer(3, 2)})
    if data == "packed":
        (folder / "femnist").mkdir(parents=True)
        (folder / "femnist" / PACKED).write_bytes(b"my own")
    if data == "mnist":
        for name in MD5:
            write(folder / "mnist" / name, "my own")


@pytest.mark.parametrize("data", ["femnist", "packed", "mnist"])
def test_files_that_are_not_the_published_ones_count_as_private(tmp_path: Path, data: str) -> None:
    name = "mnist" if data == "mnist" else "femnist"
    asked = {"data": name, "data_dir": str(tmp_path)}
    assert resolve(asked).noise == "seeded"  # there are none: loading says so
    own_files(tmp_path, data)
    promised: list[dict[str, Any]] = [{}, {"noise": "hardened"}, {"total_epsilon": "1,inf"}]
    for given in promised:
        with pytest.raises(
            InputError, match=rf"^the files of {name} in .* count as private: --seed N makes the run a sim"
        ):
            resolve(asked | given)
    simulated: list[dict[str, Any]] = [{"seed": 1}, {"noise": "seeded"}, {"total_epsilon": "inf"}, {"mode": "paper"}]
    for given in simulated:
        assert resolve(asked | given).noise == "seeded"


@pytest.mark.real_data
def test_the_published_files_are_known(real_data: Path) -> None:
    for name in ("mnist", "femnist"):
        assert resolve({"data": name, "data_dir": str(real_data)}).noise == "seeded"
        assert resolve({"data": name, "data_dir": str(real_data), "noise": "hardened"}).noise == "hardened"
