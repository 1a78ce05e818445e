"""Cost of the compiled kernels relative to numpy, compared with the committed ratios.

    taciturn bench kernel-speed            # compare; exit code 1 if a kernel became 1.5 times slower
    taciturn bench kernel-speed --write    # measure again and write benchmarks/results/kernel_speed.json

Times are CPU time of one thread, the smallest of several turns. The committed ratios are of a processor with AVX-512.

Takes a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.program import arguments, read_results, write_results
from numpy.random import Generator, Philox
from threadpoolctl import threadpool_limits

from taciturn.kernels.library import fill_noise
from taciturn.kernels.threads import threads
from taciturn.objectives import LOSSES
from taciturn.objectives.clipping import NO_CLIPPING
from taciturn.objectives.passes import COMPILED
from taciturn.types import Shard

TOLERANCE = 1.5  # how many times its committed ratio a kernel may cost
TURNS = 8
RECORDS, FEATURES, CLASSES = 4000, 784, 10  # a third of an agent's MNIST

Pair = tuple[Callable[[], Any], Callable[[], Any]]  # the work measured, and its reference


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
    """Return the cost of a case over the cost of its reference."""
    works, best = CASES[case](), [float("inf")] * 2
    with threads(1), threadpool_limits(1):
        for _ in range(TURNS):
            for i, work in enumerate(works):
                began = time.thread_time()
                work()
                best[i] = min(best[i], time.thread_time() - began)
    return best[0] / best[1]


def main() -> int:
    """Compare, or write; return the exit code."""
    parser = arguments(__doc__, "kernel_speed")
    parser.add_argument("--write", action="store_true", help="write the ratios instead of comparing them")
    given = parser.parse_args()
    found = {case: round(ratio(case), 3) for case in CASES}
    if given.write:
        write_results(given.out, found)
        return 0
    committed = read_results(given.out)
    for case, cost in found.items():
        print(f"{case}: {cost:.3f} (committed: {committed[case]:.3f})")
    return int(any(cost > TOLERANCE * committed[case] for case, cost in found.items()))


if __name__ == "__main__":
    raise SystemExit(main())
