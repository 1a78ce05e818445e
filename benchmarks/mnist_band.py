"""The spread of ten seeds of the plain implementation on MNIST, and Taciturn's result within it.

    taciturn bench mnist-band [--data-dir DIR] [--device cuda] [--out FILE]

The plain implementation (tests/plain.py) runs `objpm` at epsilon 1 with the paper's constants for 300 rounds and ten
noise seeds, in float64; Taciturn runs the first of those seeds. Writes benchmarks/results/mnist_band.json.

Takes minutes on a GPU.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from benchmarks.program import arguments, write_results
from numpy.random import Generator, Philox
from tests import plain

from taciturn.algorithms import ALGORITHMS, AlgorithmConfig
from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.algorithms.schedules import DynamicRho, NonsmoothEta
from taciturn.data import DataOptions, load
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.metrics import test_error
from taciturn.privacy.mechanisms import LaplaceDataDependent
from taciturn.privacy.noise import SeededNoise
from taciturn.training.simulate import simulate, start
from taciturn.types import Dataset

EPSILON, UPDATES, BETA = 1.0, 10, 1e-6
CHECKS = (1, 5, 20, 100, 300)


def plain_errors(dataset: Dataset, seed: int, rounds: int, device: str) -> list[float]:
    """Test errors of the plain implementation after each of the checked rounds."""
    xp, move, back = _backend(device)
    shards = [(move(shard.x), move(shard.y)) for shard in dataset.train]
    assert dataset.test is not None
    labels = dataset.test.y.argmax(axis=1)
    errors = []

    def noise(p: int, t: int, e: int, shape: tuple[int, ...]) -> Any:
        return move(Generator(Philox(key=[seed, p], counter=[0, 0, e, t])).laplace(size=tuple(shape)))

    for check in (c for c in CHECKS if c <= rounds):  # the checks double the work; plainness is the point
        found = plain.dp_iadmm(
            shards, check, UPDATES, lambda t: plain.dynamic_rho(t, EPSILON, 2.0, 5.0, 10000),
            lambda t: 1.0 / math.sqrt(t), EPSILON, noise, beta=BETA, xp=xp,
        )  # fmt: skip
        errors.append(float(plain.test_error(back(found["w"]), dataset.test.x, labels)))
    return errors


def taciturn_errors(dataset: Dataset, seed: int, rounds: int) -> list[float]:
    """The same with Taciturn."""
    epsilon = np.array([EPSILON])
    problem = Problem(
        LOSSES["softmax"](), REGULARISERS["l2"](), BETA, SETS["all"](1.0), dataset.records, len(dataset.agents)
    )
    release = PaperGradient(LaplaceDataDependent(epsilon))
    recipe = AlgorithmConfig(
        problem, epsilon, DynamicRho(epsilon), NonsmoothEta(epsilon), release, local_updates=UPDATES
    )
    algorithm = ALGORITHMS["objpm"].build(recipe)
    state = start(dataset.train, 1, averages=False)
    done = simulate(algorithm, dataset.train, lambda p, t: SeededNoise((seed,), p, t), rounds, state)
    return [float(test_error(r.w, dataset.test, dataset.target)[0]) for r in done if r.t in CHECKS]


def _backend(device: str) -> tuple[Any, Any, Any]:
    if device == "cpu":
        return np, lambda a: a, lambda a: a
    import torch

    return torch, lambda a: torch.as_tensor(np.ascontiguousarray(a), device=device), lambda a: a.cpu().numpy()


def main() -> None:
    """Train both and write."""
    parser = arguments(__doc__, "mnist_band")
    parser.add_argument("--data-dir", default="", help="folder that holds mnist/  (default: $TACITURN_DATA)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=max(CHECKS))
    args = parser.parse_args()
    dataset = load(DataOptions(data="mnist", data_dir=args.data_dir))
    began = time.perf_counter()
    band = {seed: plain_errors(dataset, seed, args.rounds, args.device) for seed in range(1, args.seeds + 1)}
    middle = time.perf_counter()
    found = taciturn_errors(dataset, 1, args.rounds)
    result = {
        "what": "objpm, epsilon 1, E 10, MNIST, 10 agents in file order, the paper's constants; test error",
        "rounds": [c for c in CHECKS if c <= args.rounds],
        "plain": {str(seed): errors for seed, errors in band.items()},
        "taciturn_seed_1": found,
        "seconds": {"plain": round(middle - began, 1), "taciturn": round(time.perf_counter() - middle, 1)},
    }
    write_results(args.out, result, show=True)


if __name__ == "__main__":
    main()
