"""No regression can hide: what the compiled functions cost beside numpy's own, against ratios that are committed.

`python -m tests.kernels.test_speed` measures them again and writes them down. Processor time of one thread, the least
of several turns: other work on the machine is not counted, though it takes away cache.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, Philox
from threadpoolctl import threadpool_limits

from taciturn.kernels import library
from taciturn.kernels.library import fill_noise
from taciturn.kernels.threads import threads
from taciturn.objectives import LOSSES
from taciturn.objectives.clipping import NO_CLIPPING
from taciturn.objectives.passes import COMPILED
from taciturn.types import Shard

COMMITTED = Path(__file__).with_name("speed.json")
TOLERANCE = 1.5  # how many times its committed ratio a function may cost before the test fails
TURNS = 8
RECORDS, FEATURES, CLASSES = 4000, 784, 10  # a third of an agent's MNIST

Pair = tuple[Callable[[], Any], Callable[[], Any]]  # what is measured, and what it is measured against


def a_pass(density: float, runs: int) -> Pair:
    rng = np.random.default_rng(0)
    kept = rng.uniform(size=(RECORDS, FEATURES)) < density
    x = np.where(kept, rng.integers(1, 256, kept.shape) / 255.0, 0.0).astype(np.float32)
    shard = Shard(x, np.eye(CLASSES, dtype=np.float32)[rng.integers(0, CLASSES, RECORDS)])
    z = rng.normal(size=(FEATURES, runs, CLASSES)).astype(np.float32)
    w, r = z.reshape(FEATURES, -1), rng.normal(size=(RECORDS, runs * CLASSES)).astype(np.float32)
    loss = LOSSES["softmax"]()
    return lambda: COMPILED.sums(loss, z, shard, NO_CLIPPING), lambda: (x @ w, x.T @ r)


def noise(kind: str) -> Pair:
    out, key, counter = np.zeros((FEATURES, 62)), np.ones(2, np.uint64), np.zeros(4, np.uint64)

    def numpys() -> Any:
        generator = Generator(Philox(key=key, counter=counter))
        return generator.standard_normal(out.shape) if kind == "gaussian" else generator.laplace(size=out.shape)

    return lambda: fill_noise(out, kind, key, counter, 1.0), numpys


CASES: dict[str, Callable[[], Pair]] = {
    "a sparse pass, in bare matrix products": lambda: a_pass(0.191, 1),
    "a dense pass, in bare matrix products": lambda: a_pass(1.0, 1),
    "a sparse pass of 40 runs, in bare matrix products": lambda: a_pass(0.191, 40),
    "Laplace noise, in numpy's": lambda: noise("laplace"),
    "Gaussian noise, in numpy's": lambda: noise("gaussian"),
}


def ratio(case: str) -> float:
    """Return the time relative to the reference."""
    works, best = CASES[case](), [float("inf")] * 2
    with threads(1), threadpool_limits(1):
        for _ in range(TURNS):
            for i, work in enumerate(works):
                began = time.thread_time()
                work()
                best[i] = min(best[i], time.thread_time() - began)
    return best[0] / best[1]


@pytest.mark.skipif(library.level() < 4, reason="ratios are committed for processors with AVX-512")
@pytest.mark.parametrize("case", list(CASES))
def test_nothing_became_slower(case: str) -> None:
    committed = json.loads(COMMITTED.read_text())[case]
    for _ in range(3):  # a busy machine may spoil a turn, but not three
        found = ratio(case)
        if found <= TOLERANCE * committed:
            return
    pytest.fail(f"{case}: {found:.3f}, but {committed:.3f} is committed, and {TOLERANCE} times that is allowed")


if __name__ == "__main__":
    COMMITTED.write_text(json.dumps({case: round(ratio(case), 3) for case in CASES}, indent=2) + "\n")
