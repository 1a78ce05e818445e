"""What test_ranks.py has torchrun start: some rounds of every method on two ranks, and what a team promises."""

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
from taciturn.training.checkpoint import divided, from_arrays, joined, to_arrays
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


def play(team: ProcessGroup, name: str, mode: str, backend: str, dtype: str) -> Round:
    """The rounds, half of them after a checkpoint that was collected and dealt out."""
    whole = shards(4, SIZES, np.dtype(dtype).type)
    blocks = team.parts(len(whole))
    here = blocks[team.rank]
    parts: Any = whole[here.start : here.stop]
    algorithm = made(name, mode, dtype)
    if backend == "torch":
        parts, algorithm = list(on_device(tuple(parts), "cpu")), on_device(algorithm, "cpu")
    begin = start(parts, len(SEEDS), "sums", agents=len(whole))
    middle = _last(team, algorithm, parts, ROUNDS // 2, begin)
    kept = team.collected(to_arrays(middle.state))
    arrays = team.dealt(lambda: divided(joined(kept), blocks))
    return _last(team, algorithm, parts, ROUNDS, from_arrays(arrays, begin))


def _last(team: ProcessGroup, algorithm: Any, parts: Any, rounds: int, state: Any) -> Round:
    before = calls["all_reduce"] - state.round
    *_, last = simulate(algorithm, parts, lambda p, t: SeededNoise(SEEDS, p, t), rounds, state, team=team)
    assert calls["all_reduce"] - before == rounds, "one all-reduce a round"
    return last


def promises(team: ProcessGroup) -> None:
    """What is said in engine/team.py, where there are two."""
    assert [list(block) for block in team.parts(5)] == [[0, 1], [2, 3, 4]]
    assert (team.told(os.getpid) == os.getpid()) is team.leads
    assert team.dealt(lambda: ["a", "b"]) == "ab"[team.rank]
    assert team.collected(team.rank) == ([0, 1] if team.leads else [])
    assert to_numpy(team.summed(np.array([1.0, team.rank]))).tolist() == [2.0, 1.0]
    team.alike("the records", lambda: 1)
    refusals: dict[str, Callable[[], Any]] = {
        "the records of rank 1 are not those of rank 0": lambda: team.alike("the records", lambda: team.rank),
        "rank 1: only here": lambda: team.together(lambda: _refuse("only here", team.rank == 1)),
        "both": lambda: team.together(lambda: _refuse("both", True)),
        "nobody": lambda: team.told(lambda: _refuse("nobody", True)),
        "there are 2 ranks, but only 1 agent": lambda: team.parts(1),
    }
    for sentence, work in refusals.items():
        try:
            work()
        except TaciturnError as error:
            assert error.collective and str(error).startswith(sentence), error
        else:
            raise AssertionError(sentence)


def wishes(team: ProcessGroup) -> None:
    """What one rank wishes for, all heed, in the round it was raised in."""
    asked = iter([Requests(), Requests(stop=team.rank == 1), Requests(save=team.leads)])
    heeding = team.heeding(lambda: next(asked))
    whole = shards(4, SIZES)
    here = team.parts(len(whole))[team.rank]
    parts = whole[here.start : here.stop]
    state = start(parts, len(SEEDS), "sums", agents=len(whole))
    algorithm = made("iadmm", "paper", "float64")
    rounds = simulate(algorithm, parts, lambda p, t: SeededNoise(SEEDS, p, t), 3, state, team=heeding)
    heard = [heeding.wishes() for _ in rounds]
    assert heard == [Requests(), Requests(stop=True), Requests(save=True)]


def _refuse(sentence: str, now: bool) -> None:
    if now:
        raise InputError(sentence)


def main(folder: Path) -> None:
    with current_process_group() as team:
        promises(team)
        wishes(team)
    found: dict[str, Any] = {}
    with current_process_group() as team:  # a second time in one process
        for case in CASES:
            done = play(team, *case)
            state = team.collected(to_arrays(done.state))
            if team.leads:
                key = "-".join(case)
                figures = {"w": done.w, "residual": done.residual, "noise": done.noise, "eta": done.eta}
                numbers = {name: to_numpy(value) for name, value in figures.items()} | joined(state)
                found |= {f"{key}/{name}": value for name, value in numbers.items()}
        if team.leads:
            np.savez(folder / "found.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
