"""Propositions 1 and 2, each checked on a small example."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.types import Array, Shard


class Constraints(Protocol):
    """W as inequalities h_m(z) <= 0, each convex and twice differentiable."""

    def __call__(self, z: Array) -> tuple[Array, Array, Array]:
        """Return h [M], its gradients [M, n] and Hessians [M, n, n] at z [n]."""
        ...


class BoxConstraints(NamedTuple):
    """z_i - size <= 0 and -z_i - size <= 0."""

    size: float

    def __call__(self, z: Array) -> tuple[Array, Array, Array]:
        """Return the values of the 2 n constraints."""
        n = z.size
        slopes = np.concatenate([np.eye(n), -np.eye(n)])
        return slopes @ z - self.size, slopes, np.zeros((2 * n, n, n))


class BallConstraint(NamedTuple):
    """||z||^2 - radius^2 <= 0."""

    radius: float

    def __call__(self, z: Array) -> tuple[Array, Array, Array]:
        """Return the value of the constraint."""
        return np.array([z @ z - self.radius**2]), 2.0 * z[None], 2.0 * np.eye(z.size)[None]


def penalty(constraints: Constraints, sharpness: float, z: Array) -> float:
    """Return g_l(z) = sum_m ln(1 + exp(l h_m(z))) (eq. logfn-prox)."""
    return float(np.logaddexp(0.0, sharpness * constraints(z)[0]).sum())


def penalised(constraints: Constraints, target: Array, curvature: float, sharpness: float) -> Array:
    """Return argmin_z G(z) + g_l(z) (eq. ADMM-2-Prox-log), by scipy.

    G of the subproblem is isotropic: up to a constant it is (mu/2) ||z - target||^2, with mu = rho + 1/eta and the
    target that the step projects.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    def value(z: Array) -> float:
        return curvature / 2.0 * float(((z - target) ** 2).sum()) + penalty(constraints, sharpness, z)

    def slope(z: Array) -> Array:
        h, slopes, _ = constraints(z)
        found: Array = curvature * (z - target) + sharpness * expit(sharpness * h) @ slopes
        return found

    def bend(z: Array) -> Array:
        h, slopes, bends = constraints(z)
        weight = expit(sharpness * h)
        steep = sharpness**2 * weight * (1.0 - weight)
        inner = np.einsum("m,mi,mj->ij", steep, slopes, slopes) + np.einsum("m,mij->ij", sharpness * weight, bends)
        found: Array = curvature * np.eye(z.size) + inner
        return found

    options: Any = {"gtol": 1e-10, "maxiter": 2000}
    return np.asarray(
        minimize(value, np.zeros(target.shape), jac=slope, hess=bend, method="trust-exact", options=options).x
    )


def distances(
    constraints: Constraints, projected: Array, target: Array, curvature: float, sharpnesses: Sequence[float]
) -> list[float]:
    """Return ||z_l - z|| for growing l, where z is the solution by projection."""
    found = (penalised(constraints, target, curvature, sharpness) for sharpness in sharpnesses)
    return [float(np.linalg.norm(z - projected)) for z in found]


class NoisyRelease(NamedTuple):
    """One agent's noisy gradient at z, from one data set."""

    gradient: Array  # [J, K]
    scale: float  # of its Laplace noise


def release(problem: Problem, z: Array, shard: Shard, epsilon: float, sensitivity: float | None = None) -> NoisyRelease:
    """Return a release with a public Delta or, as in the paper, with max_i ||x_i r_i^T||_1 / I of these records."""
    found = problem.gradient(z[:, None], shard)
    delta = float(found.longest[0]) if sensitivity is None else sensitivity
    return NoisyRelease(found.value[:, 0], delta / epsilon)


def log_ratio(first: NoisyRelease, second: NoisyRelease, common: Array) -> Array:
    """Return ln of the ratio of the two densities at outputs psi, [n] (eq. inverse).

    psi corresponds to the noise xi = common(psi) - f'(z; D) (eq. correspondence), where `common` [n, J, K] contains
    everything that does not depend on the records: rho (w - psi) + lambda - grad g_l(psi) - (psi - z) / eta. It takes
    every value as psi does, and the determinants cancel.
    """
    return _log_density(first, common) - _log_density(second, common)


def _log_density(one: NoisyRelease, common: Array) -> Array:
    """Return ln Lap(xi): each of the J K numbers has the factor 1 / (2 scale)."""
    xi = np.abs(common - one.gradient).reshape(len(common), -1)
    found: Array = -xi.sum(axis=1) / one.scale - xi.shape[1] * math.log(2.0 * one.scale)
    return found


SHARP = (1.0, 10.0, 100.0, 1e3, 1e4)  # l
SIZE, CURVATURE = 0.6, 2.5
FEATURES, CLASSES, RECORDS = 4, 3, 10
EPSILON, OUTPUTS = 1.0, 4000


class Approach(NamedTuple):
    """Proposition 1: the distance of the penalised solution from the projection, for every l."""

    sharpness: tuple[float, ...]
    box: tuple[float, ...]
    ball: tuple[float, ...]

    @property
    def words(self) -> str:
        """The result in one line."""
        at = ", ".join(f"{sharpness:,.0f}" for sharpness in self.sharpness)
        return (
            f"at ℓ = {at} the penalised solution is {_listed(self.box)} away from the projection in a box, "
            f"{_listed(self.ball)} in a ball"
        )

    def summary(self) -> dict[str, object]:
        """Return the result for JSON."""
        return {"l": list(self.sharpness), "box": list(self.box), "l2-ball": list(self.ball)}


class Ratios(NamedTuple):
    """Proposition 2: the largest |ln ratio| of two data sets' densities, over outputs drawn from both."""

    epsilon: float
    outputs: int
    public: float  # with one Delta for all data sets
    paper: float  # with Delta of each data set's own records

    @property
    def words(self) -> str:
        """The result in one line."""
        return (
            f"over {self.outputs:,} outputs the largest |ln ratio| of two data sets' densities is "
            f"{self._beside(self.public)} with a public Δ, and {self._beside(self.paper)} with the paper's Δ"
        )

    def _beside(self, ratio: float) -> str:
        return f"{ratio:.2g} ({'within' if ratio <= self.epsilon else 'above'} ε = {self.epsilon:g})"


def proposition_1() -> Approach:
    """Measure proposition 1 with a target outside both sets."""
    target = np.array([1.0, -0.4, 0.3])

    def away(name: str, constraints: Constraints) -> tuple[float, ...]:
        projected = SETS[name](SIZE).project(target[:, None, None])[:, 0, 0]
        return tuple(distances(constraints, projected, target, CURVATURE, SHARP))

    return Approach(SHARP, away("box", BoxConstraints(SIZE)), away("l2-ball", BallConstraint(SIZE)))


def proposition_2() -> Ratios:
    """Measure proposition 2 with equal records except one, twice as long, which the second data set lacks."""
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


def _drawn(one: NoisyRelease, seed: int) -> Array:
    """Return half of the outputs, drawn as noisy gradients of this data set, [n, J, K]."""
    random = np.random.default_rng(seed)
    found: Array = one.gradient + random.laplace(0.0, one.scale, (OUTPUTS // 2, *one.gradient.shape))
    return found


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.2g}" for value in values)
