"""Several processes at one simulation: one all-reduce a round, and the numbers of one process to rounding."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest

from taciturn.algorithms import ALGORITHMS, Algorithm
from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.training.checkpoint import join_states, split_state, to_arrays
from taciturn.training.process_group import SINGLE_PROCESS, current_rank
from taciturn.training.torch_process_group import TorchProcessGroup, current_process_group
from tests.cli.helpers import PATIENCE, ranks
from tests.random_problems import build, problem, run, shards

BUDGETS = [0.5, 2.0, math.inf]
SEEDS = (1, 2, 3)
SIZES = (7, 5, 9, 4, 6)  # five agents: two for the first rank, three for the second
ROUNDS = 8
METHODS = [
    (name, mode) for name in ALGORITHMS if ALGORITHMS[name].backends != ("numpy",) for mode in ALGORITHMS[name].modes
]  # without those that solve: they stop within a tolerance
CASES = [
    *((name, mode, "numpy", "float64") for name, mode in METHODS),
    ("objp", "paper", "torch", "float64"),
    ("objpm", "certified", "numpy", "float32"),
]


def made(name: str, mode: str, dtype: str) -> Algorithm:
    """The method as its mode has it: in certified mode the model is line 5 once more, after the uploads."""
    of = problem(shards(4, SIZES, np.dtype(dtype).type))
    return build(name, of, BUDGETS, closing=mode == "certified", eta=0.3, dtype=np.dtype(dtype).type)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What two real processes came to; they check a group's promises on the way."""
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("ranks")
    processes = ranks("tests.training.process_group_program", str(out))
    said = [process.communicate(PATIENCE) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    return np.load(out / "found.npz")


@pytest.mark.torch
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_two_ranks_give_the_numbers_of_one_process(case: tuple[str, str, str, str], found: Any) -> None:
    name, mode, _, dtype = case
    straight = run(made(name, mode, dtype), shards(4, SIZES, np.dtype(dtype).type), SEEDS, ROUNDS, "sums")
    figures = {"w": straight.w, "residual": straight.residual, "noise": straight.noise, "eta": straight.eta}
    expected = {key: to_numpy(value) for key, value in figures.items()} | to_arrays(straight.state)
    tolerance = 1e-10 if dtype == "float64" else 2e-5
    for key, values in expected.items():
        other = found[f"{'-'.join(case)}/{key}"]
        assert other.shape == values.shape, key
        scale = max(np.abs(values).max(), 1e-3)  # sums of duals may cancel
        assert np.abs(other - values).max() <= tolerance * scale, key


def test_agents_are_partitioned_evenly_and_in_order() -> None:
    for agents in range(1, 20):
        for size in range(1, agents + 1):
            blocks = TorchProcessGroup(None, 0, size).partition(agents)
            assert [p for block in blocks for p in block] == list(range(agents))
            assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
    with pytest.raises(InputError, match="there are 4 ranks, but only 3 agents"):
        TorchProcessGroup(None, 0, 4).partition(3)


def test_every_rank_takes_its_own_gpu_and_its_share_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    group = TorchProcessGroup(None, 5, 8)
    assert (group.device("cpu"), group.device("cuda")) == ("cpu", "cuda:1")
    with pytest.raises(InputError, match="cuda:0"):
        group.device("cuda:0")
    monkeypatch.setattr("taciturn.training.torch_process_group.cores", lambda: 10)
    monkeypatch.setenv("OMP_NUM_THREADS", "10")
    assert group.cores() == 10
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert group.cores() == 2


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with current_process_group() as group:
        assert group is SINGLE_PROCESS
    monkeypatch.setenv("RANK", "3")
    assert current_rank() == 0  # another launcher's variable alone says nothing
    for name, value in (("WORLD_SIZE", "4"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "29500")):
        monkeypatch.setitem(os.environ, name, value)
    assert current_rank() == 3


def test_a_state_is_divided_and_joined() -> None:
    parts = shards(4, SIZES)
    whole = to_arrays(run(made("objpm", "paper", "float64"), parts, SEEDS, 3, "sums").state)
    blocks = TorchProcessGroup(None, 0, 2).partition(len(parts))
    divided_up = split_state(whole, blocks)
    assert [len(part["agents_z"]) for part in divided_up] == [2, 3]
    again = join_states(divided_up)
    assert again.keys() == whole.keys()
    assert all(np.array_equal(again[name], whole[name]) for name in whole)
    with pytest.raises(InputError, match="shapes differ"):
        split_state(whole, TorchProcessGroup(None, 0, 2).partition(len(parts) + 1))
