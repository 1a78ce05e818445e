"""What test_process_group.py starts: some rounds of every method on two ranks, and the laws of a process group."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError, TaciturnError
from taciturn.privacy.noise import SeededNoise
from taciturn.training.checkpoint import from_arrays, join_states, split_state, to_arrays
from taciturn.training.process_group import ProcessGroup, Requests
from taciturn.training.simulate import Round, simulate, start
from taciturn.training.torch_backend import on_device
from taciturn.training.torch_process_group import current_process_group
from tests.random_problems import shards
from tests.training.test_process_group import CASES, ROUNDS, SEEDS, SIZES, made

calls = {"all_reduce": 0}
plain_reduce = dist.all_reduce


def counted(*args: Any, **more: Any) -> Any:
    calls["all_reduce"] += 1
    return plain_reduce(*args, **more)


dist.all_reduce = counted


def play(group: ProcessGroup, name: str, mode: str, backend: str, dtype: str) -> Round:
    """The rounds, half of them after a checkpoint that was collected and dealt out."""
    whole = shards(4, SIZES, np.dtype(dtype).type)
    blocks = group.partition(len(whole))
    here = blocks[group.rank]
    parts: Any = whole[here.start : here.stop]
    algorithm = made(name, mode, dtype)
    if backend == "torch":
        parts, algorithm = list(on_device(tuple(parts), "cpu")), on_device(algorithm, "cpu")
    begin = start(parts, len(SEEDS), "sums", agents=len(whole))
    middle = _last(group, algorithm, parts, ROUNDS // 2, begin)
    kept = group.gather(to_arrays(middle.state))
    arrays = group.scatter(lambda: split_state(join_states(kept), blocks))
    return _last(group, algorithm, parts, ROUNDS, from_arrays(arrays, begin))


def _last(group: ProcessGroup, algorithm: Any, parts: Any, rounds: int, state: Any) -> Round:
    before = calls["all_reduce"] - state.round
    *_, last = simulate(algorithm, parts, lambda p, t: SeededNoise(SEEDS, p, t), rounds, state, group=group)
    assert calls["all_reduce"] - before == rounds, "one all-reduce a round"
    return last


def promises(group: ProcessGroup) -> None:
    """What is said in engine/group.py, where there are two."""
    assert [list(block) for block in group.partition(5)] == [[0, 1], [2, 3, 4]]
    assert (group.broadcast(os.getpid) == os.getpid()) is group.is_main
    assert group.scatter(lambda: ["a", "b"]) == "ab"[group.rank]
    assert group.gather(group.rank) == ([0, 1] if group.is_main else [])
    assert to_numpy(group.all_reduce(np.array([1.0, group.rank]))).tolist() == [2.0, 1.0]
    group.require_equal("the records", lambda: 1)
    refusals: dict[str, Callable[[], Any]] = {
        "the records of rank 1 are not those of rank 0": lambda: group.require_equal("the records", lambda: group.rank),
        "rank 1: only here": lambda: group.run_on_all(lambda: _refuse("only here", group.rank == 1)),
        "both": lambda: group.run_on_all(lambda: _refuse("both", True)),
        "nobody": lambda: group.broadcast(lambda: _refuse("nobody", True)),
        "there are 2 ranks, but only 1 agent": lambda: group.partition(1),
    }
    for sentence, work in refusals.items():
        try:
            work()
        except TaciturnError as error:
            assert error.collective and str(error).startswith(sentence), error
        else:
            raise AssertionError(sentence)


def requests(group: ProcessGroup) -> None:
    """A request of one rank is followed by all ranks, in the round in which it was raised."""
    asked = iter([Requests(), Requests(stop=group.rank == 1), Requests(save=group.is_main)])
    requesting = group.with_requests(lambda: next(asked))
    whole = shards(4, SIZES)
    here = group.partition(len(whole))[group.rank]
    parts = whole[here.start : here.stop]
    state = start(parts, len(SEEDS), "sums", agents=len(whole))
    algorithm = made("iadmm", "paper", "float64")
    rounds = simulate(algorithm, parts, lambda p, t: SeededNoise(SEEDS, p, t), 3, state, group=requesting)
    heard = [requesting.requests() for _ in rounds]
    assert heard == [Requests(), Requests(stop=True), Requests(save=True)]


def _refuse(sentence: str, now: bool) -> None:
    if now:
        raise InputError(sentence)


def main(folder: Path) -> None:
    with current_process_group() as group:
        promises(group)
        requests(group)
    found: dict[str, Any] = {}
    with current_process_group() as group:  # a second time in one process
        for case in CASES:
            done = play(group, *case)
            state = group.gather(to_arrays(done.state))
            if group.is_main:
                key = "-".join(case)
                figures = {"w": done.w, "residual": done.residual, "noise": done.noise, "eta": done.eta}
                numbers = {name: to_numpy(value) for name, value in figures.items()} | join_states(state)
                found |= {f"{key}/{name}": value for name, value in numbers.items()}
        if group.is_main:
            np.savez(folder / "found.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
