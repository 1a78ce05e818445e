"""Minimal numerical counterexamples to statements and proofs of the paper."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from taciturn.algorithms.server import FullState
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.privacy.noise import NoiseSource, SeededNoise
from taciturn.research.theory.bounds import Setting, right_side
from taciturn.research.theory.measure import measure
from taciturn.research.theory.optimum import optimum
from taciturn.research.theory.small_problems import TheoremCase, cases
from taciturn.research.theory.theorems import NONSMOOTH, SMOOTH, STRONG, Theorem, constants
from taciturn.training.simulate import Round, simulate, start
from taciturn.types import Array, Shard

NEARLY_FLAT = 1e-3  # x of the one record, whose squared loss is then as good as linear
PLENTY = 1e6  # an epsilon with next to no noise


class InequalitySides(NamedTuple):
    """A left-hand side, and the right-hand side as printed and as repaired."""

    left: float
    stated: float
    corrected: float


def stated_bound_violation(theorem: Theorem) -> InequalitySides:
    """Return both sides where all agents have f_p(z) = -c z + (alpha/2) z^2 on W = [-1, 1], E = 1 and little noise.

    All agents agree, so lambda* = 0 and gamma can be arbitrarily small. Each agent moves as if it were alone and the
    gap is P times that of one agent, but the printed bound does not depend on P.
    """
    pull, alpha, agents, rho, rounds = {
        SMOOTH: (1.0, 0.0, 20, 2.0, 1),
        NONSMOOTH: (0.5, 0.0, 20, 0.1, 1),
        STRONG: (1.0, 1.0, 100, 100.0, 80),
    }[theorem]
    case = _pulled(theorem, pull, alpha, agents, rho)
    steps = simulate(case.algorithm(np.array([PLENTY]), 1), case.shards, _noise, rounds, start(case.shards, 1))
    measured = measure(theorem, case.problem, case.shards, steps, (rounds,))
    found = optimum(case.problem, case.shards)
    longest = float(measured.dual.max())
    gamma = longest if theorem is STRONG else 1e-6  # assumption 2 (i) asks for as much
    at = Setting(PLENTY, 1, rho, rho, max(gamma, 2.0 * found.dual_norm), 0.0, longest)
    c = constants(case.problem, case.shards)
    printed, repaired = (right_side(theorem, c, at, rounds, corrected).total for corrected in (False, True))
    return InequalitySides(float(measured.gaps(found.value, at.gamma)[-1, 0]), printed, repaired)


def _pulled(theorem: Theorem, pull: float, alpha: float, agents: int, rho: float) -> TheoremCase:
    x, y = NEARLY_FLAT, pull * agents / NEARLY_FLAT
    shard = Shard(np.array([[x]]), np.array([[y]]))
    beta = alpha * agents / 2.0
    problem = Problem(LOSSES["squared"](), REGULARISERS["l2"](), beta, SETS["box"](1.0), agents, agents)
    return TheoremCase(theorem, problem, (shard,) * agents, rho)


def _noise(agent: int, t: int) -> NoiseSource:
    return SeededNoise((1,), agent, t)


class TwoMeans(NamedTuple):
    """The average in the proof of theorem 2 and the average in its statement, for E > 1."""

    difference: float  # ||(1/T) sum_t z^t - z^(T)||
    repaired: float  # ||(1/T) sum_t z^{t+1} - z^(T) - (z^{T,E+1} - z^{1,1}) / (T E)||, which is 0


def two_means(updates: int, rounds: int = 20) -> TwoMeans:
    """Measure the nonsmooth case, with seeds, at epsilon 1."""
    last = _played(cases()[1], updates, rounds)
    averages, server = last.state.averages, last.state.server
    if averages is None or not isinstance(server, FullState):
        raise RuntimeError("start() must keep averages and every z")
    end = np.stack([agent.z for agent in last.state.agents])  # z^{T,E+1}; z^{1,1} = 0
    sent = server.z  # z^{T+1}; z^1 = 0
    earlier = averages.z_smooth - sent / rounds  # (1/T) sum_t z^t
    shift = averages.z_smooth - averages.z_nonsmooth - end / (rounds * updates)
    return TwoMeans(*(float(np.linalg.norm(v)) for v in (earlier - averages.z_nonsmooth, shift)))


def _played(case: TheoremCase, updates: int, rounds: int) -> Round:
    algorithm = case.algorithm(np.array([1.0]), updates)
    *_, last = simulate(algorithm, case.shards, _noise, rounds, start(case.shards, 1))
    return last


class SeparatingNoise(SeededNoise):
    """Noise of positive Laplace density that moves every agent to its own side of W."""

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        """Return huge values with the sign of the agent."""
        return np.full_like(like, 1e6 if self.agent % 2 else -1e6)


def dual_norms(rounds: int) -> list[float]:
    """Return ||lambda^t|| of theorem 3's case under noise that pulls the agents apart: no gamma bounds all of them."""
    case = cases()[2]
    steps = simulate(
        case.algorithm(np.array([1.0]), 1),
        case.shards,
        lambda p, t: SeparatingNoise((1,), p, t),
        rounds,
        start(case.shards, 1),
    )
    return [math.sqrt(sum(float((agent.lam**2).sum()) for agent in done.state.agents)) for done in steps]
