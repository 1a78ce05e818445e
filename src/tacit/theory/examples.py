"""Propositions 1 and 2, each on a small example."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.problems import LOSSES, REGULARISERS, SETS, Problem
from tacit.theory.propositions import (
    BallConstraint,
    BoxConstraints,
    Constraints,
    Release,
    distances,
    log_ratio,
    release,
)
from tacit.types import Array, Shard

SHARP = (1.0, 10.0, 100.0, 1e3, 1e4)  # l
SIZE, CURVATURE = 0.6, 2.5
FEATURES, CLASSES, RECORDS = 4, 3, 10
EPSILON, OUTPUTS = 1.0, 4000


class Approach(NamedTuple):
    """Proposition 1: how far the penalised solution is from the projection, for every l."""

    sharpness: tuple[float, ...]
    box: tuple[float, ...]
    ball: tuple[float, ...]

    @property
    def words(self) -> str:
        """In one line."""
        at = ", ".join(f"{sharpness:,.0f}" for sharpness in self.sharpness)
        return (
            f"at ℓ = {at} the penalised solution is {_listed(self.box)} away from the projection in a box, "
            f"{_listed(self.ball)} in a ball"
        )

    def summary(self) -> dict[str, Any]:
        """For JSON."""
        return {"l": list(self.sharpness), "box": list(self.box), "l2-ball": list(self.ball)}


class Ratios(NamedTuple):
    """Proposition 2: the largest |ln ratio| of two data sets' densities, over outputs drawn from both."""

    epsilon: float
    outputs: int
    public: float  # with one Delta for all data sets
    paper: float  # with Delta of each data set's own records

    @property
    def words(self) -> str:
        """In one line."""
        return (
            f"over {self.outputs:,} outputs the largest |ln ratio| of two data sets' densities is "
            f"{self._beside(self.public)} with a public Δ, and {self._beside(self.paper)} with the paper's Δ"
        )

    def _beside(self, ratio: float) -> str:
        return f"{ratio:.2g} ({'within' if ratio <= self.epsilon else 'above'} ε = {self.epsilon:g})"


def proposition_1() -> Approach:
    """A target outside both sets."""
    target = np.array([1.0, -0.4, 0.3])

    def away(name: str, constraints: Constraints) -> tuple[float, ...]:
        projected = SETS[name](SIZE).project(target[:, None, None])[:, 0, 0]
        return tuple(distances(constraints, projected, target, CURVATURE, SHARP))

    return Approach(SHARP, away("box", BoxConstraints(SIZE)), away("l2-ball", BallConstraint(SIZE)))


def proposition_2() -> Ratios:
    """Records that are alike but for one, twice as long; the second data set is without it."""
    x = np.vstack([np.full((RECORDS - 1, FEATURES), 0.5), np.ones((1, FEATURES))])
    y = np.eye(CLASSES)[np.zeros(RECORDS, int)]
    problem = Problem(LOSSES["softmax"](), REGULARISERS["l2"](), 0.0, SETS["all"](1.0), RECORDS, 1)
    public = 2.0 * FEATURES / RECORDS  # x in [0, 1]^J, ||h - y||_1 <= 2

    def largest(sensitivity: float | None) -> float:
        shards = Shard(x, y), Shard(x[:-1], y[:-1])
        z = np.zeros((FEATURES, CLASSES))
        first, second = (release(problem, z, shard, EPSILON, sensitivity) for shard in shards)
        drawn = np.concatenate([_drawn(first, 1), _drawn(second, 2)])
        return float(np.abs(log_ratio(first, second, drawn)).max())

    return Ratios(EPSILON, OUTPUTS, largest(public), largest(None))


def _drawn(one: Release, seed: int) -> Array:
    """Half of the outputs, as noisy gradients of this data set, [n, J, K]."""
    random = np.random.default_rng(seed)
    found: Array = one.gradient + random.laplace(0.0, one.scale, (OUTPUTS // 2, *one.gradient.shape))
    return found


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.2g}" for value in values)
