"""Two ranks on two cores compared with one process on one core, for the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from taciturn.errors import InputError
from taciturn.research.bench.benchmark import BENCHMARKS, Benchmark, Report
from taciturn.research.bench.inputs import has_mnist
from taciturn.research.bench.timing import Options, Timing

NAME = "ranks"
TWO, ONE = "two ranks on two cores", "one process on one core"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ROUNDS, EVERY, TURNS = 200, 20, 3  # rounds of a run, and between two looks at its clock
SMALL_EVERY = 3


def run(options: Options) -> Report:
    """Start both in turns, read the seconds of their rounds from the run folders, and compare the models."""
    cores, data = _cores(), _data(options)
    turns = 1 if options.small else min(options.repeats, TURNS)
    taken: dict[str, list[float]] = {TWO: [], ONE: []}
    with tempfile.TemporaryDirectory(prefix="taciturn-bench-") as name:
        for turn in range(turns):
            for who, launcher, bound in ((TWO, TORCHRUN, cores), (ONE, (), cores[:1])):
                options.watch(f"turn {turn + 1} of {turns}: {who}")
                _train(Path(name) / f"{who}-{turn}", data, launcher, bound, options)
                taken[who] += _seconds(Path(name) / f"{who}-{turn}", _every(options))
        difference = _difference(*(Path(name) / f"{who}-0" for who in (TWO, ONE)))
    timings = {who: Timing(min(found), median(found), len(found)) for who, found in taken.items()}
    figures = {
        "speedup_of_two_ranks": timings[ONE].best / timings[TWO].best,
        "largest_relative_difference": difference,
        "data": data,
        "rounds": _rounds(options),
    }
    few = () if len(cores) == 2 else ("the processes could not be bound to a core each",)
    notes = (
        f"seconds of a round of objp on {data}, float32, mode paper, ten agents, over {_every(options)} rounds each, "
        "as rank 0 wrote them; evaluating is not counted",
        "largest_relative_difference: of the two models after the last round, relative to the largest parameter",
        *few,
    )
    return Report(NAME, "The same run by two ranks and by one process", figures, timings, notes=notes)


def _cores() -> list[int]:
    """Return two cores to bind processes to, if the system supports it."""
    if find_spec("torch") is None:
        raise InputError("ranks need torch.distributed: pip install 'taciturn[torch]'")
    return sorted(os.sched_getaffinity(0))[:2] if hasattr(os, "sched_setaffinity") else []


def _data(options: Options) -> str:
    return "mnist" if not options.small and has_mnist(options.data_dir) else "mnist14"


def _every(options: Options) -> int:
    return SMALL_EVERY if options.small else EVERY


def _rounds(options: Options) -> int:
    return 2 * SMALL_EVERY if options.small else ROUNDS


def _train(out: Path, data: str, launcher: tuple[str, ...], cores: list[int], options: Options) -> None:
    where = ["--data-dir", options.data_dir] if options.data_dir else []
    method = ["--mode", "paper", "--algorithm", "objp", "--epsilon", "1", "--precision", "float32", "--no-averages"]
    length = [
        "--rounds",
        str(_rounds(options)),
        "--evaluate-every",
        str(_every(options)),
        "--checkpoint-seconds",
        "1000",
    ]
    command = [sys.executable, *launcher, "-m", "taciturn", "run", "--data", data, *where, *method, *length]
    done = subprocess.run(
        [*command, "--out", str(out)],
        preexec_fn=partial(os.sched_setaffinity, 0, cores) if cores else None,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InputError(f"{' '.join(command)} failed: {done.stderr[-500:]}")


def _seconds(out: Path, every: int) -> list[float]:
    """Return the seconds of a round."""
    clock = [json.loads(line)["seconds"] for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(after - before) / every for before, after in pairwise(clock)]


def _difference(found: Path, expected: Path) -> float:
    ours, theirs = (np.load(folder / "model.npz")["w"] for folder in (found, expected))
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


BENCHMARKS.register(NAME)(
    Benchmark("one run by two ranks (torchrun), compared with one process on one core", "minutes", run, alone=False)
)
