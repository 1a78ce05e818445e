"""The left-hand side of the theorems, measured: F(z^(T)) - F(z*) + gamma ||A w^(T) - z^(T)|| of many runs at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.algorithms.steps import consensus_residual
from tacit.arrays import namespace, to_numpy
from tacit.engine.simulate import Round
from tacit.errors import InputError
from tacit.problems import Problem
from tacit.theory.theorems import Theorem
from tacit.types import Array, Shard
from tacit.views.intervals import interval

CONFIDENCE = 0.95


class Measured(NamedTuple):
    """What a batch of runs gave at some rounds T."""

    rounds: Array  # [n]
    objective: Array  # [n, R]  F(z^(T))
    residual: Array  # [n, R]  ||A w^(T) - z^(T)||
    dual: Array  # [n, R]  the longest ||lambda^t|| up to then
    outside: float  # how far the z^(T) ever were from W
    rho: Array  # [T, R]
    eta: Array  # [T, R]

    def gaps(self, least: float, gamma: float) -> Array:
        """The left-hand side of every run, [n, R]."""
        return self.objective - least + gamma * self.residual

    def of(self, runs: NDArray[np.integer[Any]]) -> Measured:
        """The same of some of the runs."""
        picked = {name: getattr(self, name)[:, runs] for name in ("objective", "residual", "dual", "rho", "eta")}
        return self._replace(**picked)


class Interval(NamedTuple):
    """A number that was estimated, and where it lies with CONFIDENCE."""

    value: float
    low: float
    high: float


def log_spaced(rounds: int, points: int = 25) -> tuple[int, ...]:
    """About so many whole numbers from 1 to T, each a fixed factor above the one before."""
    return tuple(sorted({round(rounds ** (i / (points - 1))) for i in range(points)}))


def measure(
    theorem: Theorem,
    problem: Problem,
    shards: Sequence[Shard],
    rounds: Iterable[Round],
    at: Sequence[int],
    watch: Callable[[int], None] = lambda t: None,
) -> Measured:
    """Go through the rounds of a simulation that keeps the theorems' averages, and take note at `at`."""
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
    """w^(T) and z^(T) of this theorem."""
    averages = done.state.averages
    if averages is None:
        raise InputError("the theorems are about averages over the rounds: the run must keep them")
    return getattr(averages, theorem.w), getattr(averages, theorem.z)


def _outside(problem: Problem, z: Array) -> float:
    """The longest way from an agent's z^(T) to W, beyond rounding."""
    xp = namespace(z)
    away = max(float(xp.abs(part - problem.feasible.project(part)).max()) for part in z)
    return away if away > 1e3 * float(xp.finfo(z.dtype).eps) * (1.0 + float(xp.abs(z).max())) else 0.0


def mean_interval(values: Array) -> list[Interval]:
    """The mean over runs of every row [n, R], with Student's interval; of one run the interval is unknown."""
    found = (interval([float(value) for value in row], CONFIDENCE) for row in values)
    return [
        Interval(m, -math.inf if low is None else low, math.inf if high is None else high) for m, low, high, _ in found
    ]
