"""A round of the paper's method as Tacit plays it, ready to be called again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tacit.algorithms import ALGORITHMS, Recipe
from tacit.algorithms.releases.paper import PaperRelease
from tacit.algorithms.schedules import DynamicRho, NonsmoothEta
from tacit.engine.simulate import Round, simulate, start
from tacit.privacy.mechanisms.laplace_data_dependent import LaplaceDataDependent
from tacit.privacy.noise import SeededNoise
from tacit.problems import LOSSES, REGULARISERS, SETS, Problem
from tacit.types import Shard

BETA, RHO_C1, RHO_C2 = 1e-6, 2.0, 5.0
FOREVER = 10**9  # rounds


def tacit_rounds(
    shards: Sequence[Shard], epsilon: Sequence[float] = (1.0,), seeds: Sequence[int] = (1,), local_updates: int = 1
) -> Callable[[], Round]:
    """Each call plays one more round in mode paper: server sums, no averages, the runs side by side."""
    budgets = np.array(epsilon, shards[0].y.dtype)
    records = sum(len(shard.y) for shard in shards)
    problem = Problem(LOSSES["softmax"](), REGULARISERS["l2"](), BETA, SETS["all"](1.0), records, len(shards))
    recipe = Recipe(
        problem,
        budgets,
        DynamicRho(budgets, RHO_C1, RHO_C2),
        NonsmoothEta(budgets),
        PaperRelease(LaplaceDataDependent(budgets)),
        local_updates=local_updates,
    )
    algorithm = ALGORITHMS["objp" if local_updates == 1 else "objpm"].build(recipe)
    keys, state = tuple(seeds), start(shards, len(budgets), "sums", averages=False)
    rounds = simulate(algorithm, shards, lambda p, t: SeededNoise(keys, p, t), FOREVER, state)
    return lambda: next(rounds)


def grid(epsilons: Sequence[float], seeds: int) -> tuple[list[float], list[int]]:
    """Budgets and seeds of all runs side by side."""
    pairs = [(epsilon, seed) for epsilon in epsilons for seed in range(1, seeds + 1)]
    return [epsilon for epsilon, _ in pairs], [seed for _, seed in pairs]


def held_bytes(shards: Sequence[Shard]) -> int:
    """The bytes of the records as a round reads them: all, or only those that are not zero."""
    return sum(shard.layout.nbytes for shard in shards)


def multiplications(shards: Sequence[Shard]) -> int:
    """The multiply-adds of a round's two passes over the values that are held: scores, and sums."""
    return sum(2 * shard.layout.entries * shard.y.shape[1] for shard in shards)
