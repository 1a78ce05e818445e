"""Three small seeded problems, one for each theorem, on which Algorithm 1 runs in seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from taciturn.algorithms import ALGORITHMS, Algorithm, AlgorithmConfig
from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.algorithms.schedules import Constant, NonsmoothEta, Schedule, SmoothEta, StrongEta
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.privacy.mechanisms import LaplaceDataDependent
from taciturn.privacy.noise import NoiseSource, SeededNoise
from taciturn.research.theory.measure import Measured, log_spaced, measure
from taciturn.research.theory.theorems import NONSMOOTH, SMOOTH, STRONG, Theorem
from taciturn.training.simulate import simulate, start
from taciturn.types import Array, Shard

AGENTS, RECORDS, FEATURES, CLASSES = 3, 20, 3, 2


class TheoremCase(NamedTuple):
    """A problem that satisfies the assumptions of a theorem on f and eta."""

    theorem: Theorem
    problem: Problem
    shards: tuple[Shard, ...]
    rho: float

    def eta(self, epsilon: Array) -> Schedule:
        """Return the theorem's step."""
        if self.theorem is SMOOTH:
            return SmoothEta(epsilon, self.problem.smoothness(self.shards))
        if self.theorem is NONSMOOTH:
            return NonsmoothEta(epsilon)
        return StrongEta(epsilon, self.problem.strong_convexity)

    def algorithm(self, epsilon: Array, updates: int) -> Algorithm:
        """Return Algorithm 1 with the paper's noise and E = `updates`."""
        release = PaperGradient(LaplaceDataDependent(epsilon))
        recipe = AlgorithmConfig(
            self.problem, epsilon, Constant(self.rho, epsilon), self.eta(epsilon), release, local_updates=updates
        )
        return ALGORITHMS["objpm"].build(recipe)


def cases() -> tuple[TheoremCase, ...]:
    """Return softmax in a ball, hinge loss with an l1 norm in a box, and softmax with a strong l2 norm in a ball."""
    return (
        _case(SMOOTH, "softmax", "l2", 1e-6, "l2-ball", 1.0, 0.2, seed=1),
        _case(NONSMOOTH, "hinge", "l1", 0.01, "box", 1.0, 0.2, seed=2),
        _case(STRONG, "softmax", "l2", 0.5, "l2-ball", 0.5, 0.2, seed=3),
    )


def _case(
    theorem: Theorem, loss: str, regulariser: str, beta: float, feasible: str, size: float, rho: float, seed: int
) -> TheoremCase:
    shards = agents(seed)
    everyone = sum(len(shard.x) for shard in shards)
    problem = Problem(LOSSES[loss](), REGULARISERS[regulariser](), beta, SETS[feasible](size), everyone, len(shards))
    return TheoremCase(theorem, problem, shards, rho)


def agents(seed: int) -> tuple[Shard, ...]:
    """Return agents with records in [-1, 1] and classes that a plane separates except for one record in ten.

    Each agent emphasises another feature.
    """
    random = np.random.default_rng(seed)
    plane = random.standard_normal(FEATURES)
    shards = []
    for p in range(AGENTS):
        x = random.uniform(-1.0, 1.0, (RECORDS, FEATURES))
        x[:, p % FEATURES] = np.clip(1.5 * x[:, p % FEATURES] + 0.3, -1.0, 1.0)
        label = (x @ plane > 0.0) ^ (random.random(RECORDS) < 0.1)
        shards.append(Shard(x, np.eye(CLASSES)[label.astype(int)]))
    return tuple(shards)


def simulate_case(
    case: TheoremCase,
    epsilons: Sequence[float],
    seeds: int,
    rounds: int,
    updates: int = 1,
    watch: Callable[[int], None] = lambda t: None,
) -> Measured:
    """Run all epsilons and seeds together, epsilon by epsilon, and measure at logarithmically spaced rounds."""
    epsilon = np.repeat(np.array(epsilons, np.float64), seeds)
    keys = tuple(range(1, seeds + 1)) * len(epsilons)

    def noise(agent: int, t: int) -> NoiseSource:
        return SeededNoise(keys, agent, t)

    steps = simulate(
        case.algorithm(epsilon, updates), case.shards, noise, rounds, start(case.shards, len(epsilon), "sums")
    )
    return measure(case.theorem, case.problem, case.shards, steps, log_spaced(rounds), watch)
