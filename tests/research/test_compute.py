"""A reproduction is computed, interrupted, continued and summarised."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from taciturn.data import DataOptions, load
from taciturn.errors import InputError, TrainingDiverged
from taciturn.objectives.metrics import test_error as error_of
from taciturn.privacy.noise import SeededNoise
from taciturn.research.reproduction import (
    ReproductionFolder,
    ReproductionInterrupted,
    ReproductionPlan,
    ReproductionProgress,
    make_plan,
    reproduce,
)
from taciturn.research.reproduction.paper_runs import DATA
from taciturn.research.reproduction.stages import build_algorithm
from taciturn.training.simulate import simulate, start
from tests.cli.helpers import environment
from tests.research.reproduction_helpers import small_mnist

ROUNDS = 8


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_mnist(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def plan() -> ReproductionPlan:
    return make_plan("mnist", rounds=ROUNDS, seeds=3)


@pytest.fixture(scope="module")
def straight(data_dir: Path, plan: ReproductionPlan, tmp_path_factory: pytest.TempPathFactory) -> ReproductionFolder:
    folder = ReproductionFolder(tmp_path_factory.mktemp("straight") / "r")
    reproduce(plan, folder, data_dir=str(data_dir))
    return folder


def test_the_traces_are_those_of_the_simulation(
    straight: ReproductionFolder, plan: ReproductionPlan, data_dir: Path
) -> None:
    dataset = load(DataOptions(data="mnist", data_dir=str(data_dir), precision="float32"))
    stage = next(stage for stage in plan.stages if stage.name == "objpm")
    algorithm = build_algorithm(stage, DATA["mnist"], dataset, "float32")
    seeds = tuple(case.seed for case in stage.cases)
    state = start(dataset.train, len(seeds), "sums", averages=False)
    rounds = list(simulate(algorithm, dataset.train, lambda p, t: SeededNoise(seeds, p, t), ROUNDS, state))
    traces = straight.read_traces("objpm")
    np.testing.assert_array_equal(traces["rounds"], range(1, ROUNDS + 1))
    errors = [error_of(done.w, dataset.test, dataset.target) for done in rounds]
    np.testing.assert_array_equal(traces["test_error"], np.array(errors, np.float32))
    np.testing.assert_array_equal(traces["noise"], np.array([done.noise for done in rounds], np.float32))


def test_the_summary_follows_from_the_traces(straight: ReproductionFolder, plan: ReproductionPlan) -> None:
    summary, traces = straight.read_summary(), straight.read_traces("objp")
    stage = next(stage for stage in plan.stages if stage.name == "objp")
    mine = [r for r, case in enumerate(stage.cases) if case.epsilon == 0.1]
    last = traces["test_error"][-1, mine]
    group = next(g for g in summary["groups"] if (g["stage"], g["epsilon"]) == ("objp", 0.1))
    assert group["seeds"] == 3
    assert group["final"]["best"] == pytest.approx(last.min(), abs=1e-5)
    assert group["final"]["mean"] == pytest.approx(last.mean(), abs=1e-5)
    assert group["final"]["low"] == pytest.approx(np.percentile(last, 20), abs=1e-5)
    assert group["event"] == {"mechanism": "laplace-data-dependent", "epsilon": 0.1, "delta": 0.0, "updates": ROUNDS}
    assert (group["curve"]["mean"] or [])[-1] == group["final"]["mean"]
    assert [entry["name"] for entry in summary["stages"]] == [stage.name for stage in plan.stages]
    updates = {g["event"]["updates"] for g in summary["groups"] if g["algorithm"] == "objpm"}
    assert updates == {10 * ROUNDS}


def stop_after(calls: int) -> Callable[[], bool]:
    left = [calls]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    return stop


def test_interrupted_anywhere_it_ends_the_same(
    straight: ReproductionFolder, plan: ReproductionPlan, data_dir: Path, tmp_path: Path
) -> None:
    folder = ReproductionFolder(tmp_path / "r")
    seen: list[ReproductionProgress] = []
    for after in (3, 1, 17, 0):
        with pytest.raises(ReproductionInterrupted):
            reproduce(plan, folder, data_dir=str(data_dir), watch=seen.append, stop=stop_after(after))
        assert not folder.summary.exists()
        name, t = next((p.stage.name, p.t) for p in reversed(seen) if p.t < ROUNDS)
        assert int(np.load(folder.checkpoint(name))["round"]) == t > 0
    before = len(seen)
    summary = reproduce(plan, folder, data_dir=str(data_dir), watch=seen.append)
    for stage in plan.stages:
        mine, theirs = folder.read_traces(stage.name), straight.read_traces(stage.name)
        for name in ("rounds", "test_error", "noise", "events"):
            np.testing.assert_array_equal(mine[name], theirs[name])
    assert summary["groups"] == straight.read_summary()["groups"]
    assert not list((folder.path / "checkpoint").glob("*.npz"))
    assert seen[before].t == t, "it goes on where it stopped"


def test_an_ended_one_is_not_computed_again(
    straight: ReproductionFolder, plan: ReproductionPlan, data_dir: Path
) -> None:
    before = straight.traces("objp").stat().st_mtime_ns
    seen: list[ReproductionProgress] = []
    reproduce(plan, straight, data_dir=str(data_dir), watch=seen.append)
    assert (straight.traces("objp").stat().st_mtime_ns, seen) == (before, [])


def test_another_plan_is_refused(straight: ReproductionFolder, data_dir: Path) -> None:
    with pytest.raises(InputError, match=f"its rounds is {ROUNDS}, not {ROUNDS + 1}"):
        reproduce(make_plan("mnist", rounds=ROUNDS + 1, seeds=3), straight, data_dir=str(data_dir))
    with pytest.raises(InputError, match="its stages differ"):
        reproduce(make_plan("mnist", (1,), rounds=ROUNDS, seeds=3), straight, data_dir=str(data_dir))


def test_only_one_process_works_in_a_folder(
    straight: ReproductionFolder, plan: ReproductionPlan, data_dir: Path
) -> None:
    with straight.locked(), pytest.raises(InputError, match="another process"):
        reproduce(plan, straight, data_dir=str(data_dir))


def test_an_update_without_noise_stops_it(plan: ReproductionPlan, tmp_path: Path) -> None:
    """An agent whose images are black has no sensitivity: its event would be another than the one written down."""
    root = small_mnist(tmp_path)
    images = root / "mnist" / "train-images-idx3-ubyte"
    raw = bytearray(images.read_bytes())
    raw[16 : 16 + 30 * 784] = bytes(30 * 784)
    images.write_bytes(bytes(raw))
    folder = ReproductionFolder(tmp_path / "r")
    with pytest.raises(InputError, match="by round 1 an agent's sensitivity was 0"):
        reproduce(plan, folder, data_dir=str(root))
    assert not folder.traces("objp").exists()


def test_a_folder_that_is_not_a_reproduction_is_not_touched(
    plan: ReproductionPlan, data_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a reproduction"):
        reproduce(plan, ReproductionFolder(tmp_path), data_dir=str(data_dir))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_progress_adds_up(plan: ReproductionPlan) -> None:
    done = [plan.done(stage, t) for stage in plan.stages for t in range(1, plan.rounds + 1)]
    assert done == sorted(set(done))
    whole = sum(plan.rounds * stage.local_updates * len(stage.cases) for stage in plan.stages)
    assert done[-1] == whole


def test_a_model_that_is_not_finite_stops_it(
    plan: ReproductionPlan, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATA, "mnist", DATA["mnist"].__class__(math.nan, 5.0, 10000))
    with pytest.raises(TrainingDiverged, match="diverged by round 1"):
        reproduce(plan, ReproductionFolder(tmp_path / "r"), data_dir=str(data_dir))


BARE = """
import runpy, sys
MISSING = {"scipy", "dp_accounting", "click", "rich", "rich_click", "matplotlib", "jinja2", "tomli_w", "pyarrow"}
class OnlyNumpy:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ImportError(f"{name} is not installed here")
sys.meta_path.insert(0, OnlyNumpy())
sys.argv = ["taciturn.research.reproduction", *sys.argv[1:]]
runpy.run_module("taciturn.research.reproduction", run_name="__main__")
"""


def test_the_computing_part_needs_nothing_but_numpy(
    straight: ReproductionFolder, data_dir: Path, tmp_path: Path
) -> None:
    arguments = ["mnist", "--device", "cpu", "--rounds", str(ROUNDS), "--seeds", "3", "--out", str(tmp_path / "r")]
    command = [sys.executable, "-c", BARE, *arguments, "--data-dir", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert "taciturn reproduce --from" in done.stderr
    mine = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert mine["groups"] == straight.read_summary()["groups"]
