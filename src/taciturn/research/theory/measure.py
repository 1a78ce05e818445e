"""The left-hand side of the theorems, measured over many runs, and its rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.steps import consensus_residual
from taciturn.core.arrays import namespace, to_numpy
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.reporting.intervals import interval
from taciturn.research.theory.theorems import Theorem
from taciturn.training.simulate import Round
from taciturn.types import Array, Shard

CONFIDENCE = 0.95


class Measured(NamedTuple):
    """Measurements of a batch of runs at some rounds T."""

    rounds: Array  # [n]
    objective: Array  # [n, R]  F(z^(T))
    residual: Array  # [n, R]  ||A w^(T) - z^(T)||
    dual: Array  # [n, R]  the longest ||lambda^t|| up to then
    outside: float  # how far the z^(T) ever were from W
    rho: Array  # [T, R]
    eta: Array  # [T, R]

    def gaps(self, least: float, gamma: float) -> Array:
        """Return the left-hand side of every run, [n, R]."""
        return self.objective - least + gamma * self.residual

    def of(self, runs: NDArray[np.integer[Any]]) -> Measured:
        """Return the measurements of some of the runs."""
        picked = {name: getattr(self, name)[:, runs] for name in ("objective", "residual", "dual", "rho", "eta")}
        return self._replace(**picked)


class MeanInterval(NamedTuple):
    """An estimate with its interval at level CONFIDENCE."""

    value: float
    low: float
    high: float


def log_spaced(rounds: int, points: int = 25) -> tuple[int, ...]:
    """Return about `count` whole numbers from 1 to T, with a constant ratio between neighbours."""
    return tuple(sorted({round(rounds ** (i / (points - 1))) for i in range(points)}))


def measure(
    theorem: Theorem,
    problem: Problem,
    shards: Sequence[Shard],
    rounds: Iterable[Round],
    at: Sequence[int],
    watch: Callable[[int], None] = lambda t: None,
) -> Measured:
    """Run a simulation that keeps the theorems' averages, and measure at the rounds `at`."""
    wanted, found = set(at), []
    longest, rho, eta, outside = np.zeros(()), [], [], 0.0
    for done in rounds:
        duals = (agent.lam for agent in done.state.agents)
        square = sum(to_numpy((lam**2).sum(axis=(0, 2))).astype(np.float64) for lam in duals)
        longest = np.maximum(longest, np.sqrt(square))
        rho.append(to_numpy(done.rho).astype(np.float64))
        eta.append(to_numpy(done.eta).astype(np.float64))
        if done.t in wanted:
            w, z = _averages(theorem, done)
            objective = sum(problem.objective(z[p], shard) for p, shard in enumerate(shards))
            found.append((done.t, to_numpy(objective), to_numpy(consensus_residual(w, z)), longest))
            outside = max(outside, _outside(problem, z))
        watch(done.t)
    at_, objectives, residuals, longests = (np.array(column, np.float64) for column in zip(*found, strict=True))
    return Measured(at_, objectives, residuals, longests, outside, np.stack(rho), np.stack(eta))


def _averages(theorem: Theorem, done: Round) -> tuple[Array, Array]:
    """Return w^(T) and z^(T) of this theorem."""
    averages = done.state.averages
    if averages is None:
        raise InputError("the theorems bound averages over the rounds, which this run does not keep")
    return getattr(averages, theorem.w), getattr(averages, theorem.z)


def _outside(problem: Problem, z: Array) -> float:
    """Return the largest distance of an agent's z^(T) from W, beyond rounding."""
    xp = namespace(z)
    away = max(float(xp.abs(part - problem.feasible.project(part)).max()) for part in z)
    return away if away > 1e3 * float(xp.finfo(z.dtype).eps) * (1.0 + float(xp.abs(z).max())) else 0.0


def mean_interval(values: Array) -> list[MeanInterval]:
    """Return the mean over runs of every row [n, R], with Student's interval, which is unknown for one run."""
    found = (interval([float(value) for value in row], CONFIDENCE) for row in values)
    return [
        MeanInterval(m, -math.inf if low is None else low, math.inf if high is None else high)
        for m, low, high, _ in found
    ]


DRAWS = 1000  # of the bootstrap
LATER = 0.5  # the part of the curve, in log T, that the exponent is fitted to
FEWEST = 3  # points that a line is fitted to


def exponent_in_rounds(rounds: Array, gaps: Array, seed: int = 0) -> MeanInterval | None:
    """Return a of mean gap ~ T^-a over the later part of the curve; gaps [n, R]."""
    later = np.log(rounds) >= (1.0 - LATER) * np.log(rounds[-1])
    return exponent(rounds[later], gaps[later], seed)


def exponent_in_epsilon(epsilons: Sequence[float], gaps: Sequence[Array], seed: int = 0) -> MeanInterval | None:
    """Return b of mean gap ~ epsilon^-b at one T; gaps [R] of every epsilon, with the same seeds."""
    return exponent(np.array(epsilons, np.float64), np.stack(gaps), seed)


def exponent(x: Array, gaps: Array, seed: int) -> MeanInterval | None:
    """Return c of mean gap ~ x^-c by least squares in logarithms, with a bootstrap interval over several runs.

    None if there are too few points for a line, or a gap has no logarithm. The gaps are [n, R].
    """
    if len(x) < FEWEST or not (gaps > 0.0).all():
        return None
    runs, away = gaps.shape[1], np.log(x) - np.log(x).mean()
    if runs < 2:
        return MeanInterval(float(-(away @ np.log(gaps[:, 0])) / (away @ away)), -math.inf, math.inf)
    drawn = np.random.default_rng(seed).integers(0, runs, (DRAWS, runs))
    means = np.concatenate([gaps.mean(axis=1)[:, None], gaps[:, drawn].mean(axis=2)], axis=1)  # [n, 1 + DRAWS]
    slopes = away @ np.log(means) / (away @ away)
    low, high = np.quantile(-slopes[1:], [(1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0])
    return MeanInterval(float(-slopes[0]), float(low), float(high))
