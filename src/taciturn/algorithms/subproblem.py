"""An agent's subproblem, solved to a tolerance that is verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from taciturn.algorithms.base import AlgorithmConfig
from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.objectives import Problem, not_smooth
from taciturn.objectives.clipping import NO_CLIPPING, Clipping, RecordScaling
from taciturn.objectives.constraints import Box, L2Ball
from taciturn.types import Array, Shard

LOOSE = 1e3  # times the tolerance: the largest residual of a solution on which no guarantee depends
POLISHING = 2000  # gradient steps after L-BFGS stopped


@dataclass(frozen=True, eq=False)
class Subproblem:
    """min_{z in W} f_p(z) - <lambda, z> + (rho/2) ||w - z||^2  (eq. ADMM-2), of one run."""

    problem: Problem
    shard: Shard
    rho: float
    w: Array  # [J, 1, K]
    lam: Array  # [J, 1, K]
    tolerance: float

    def solve(self, start: Array) -> Array:
        """Return the minimiser, [J, 1, K], approximately to the tolerance."""
        match self.problem.feasible:
            case L2Ball(radius):
                return self._solve_in_ball(start, radius)
            case Box(low, high):
                return self._solve_loosely(start, box=(low, high))
            case _:
                return self._solve_loosely(start)

    def solve_within(self, start: Array) -> Array:
        """Return a z whose gradient is at most the tolerance: within tolerance / (rho + alpha) of the minimiser.

        Raises
        ------
        InputError
            If the tolerance is not reached.
        """
        z = self._minimise(start)
        best = float(np.linalg.norm(gradient := self.gradient(z)))
        step = 1.0 / (self.rho + self.problem.smoothness([self.shard])) if best > self.tolerance else 0.0
        for _ in range(POLISHING):  # gradients still show progress where function values no longer differ
            if best <= self.tolerance:
                return z
            new_z = z - step * gradient
            new_gradient = self.gradient(new_z)
            dz, dg = new_z - z, new_gradient - gradient
            z, gradient, best = new_z, new_gradient, float(np.linalg.norm(new_gradient))
            if (curvature := float((dz * dg).sum())) > 0.0:
                step = float((dz * dz).sum()) / curvature  # Barzilai and Borwein
        raise InputError(f"a subproblem was not solved to the tolerance {self.tolerance:g}; raise it, or rho")

    def objective(self, z: Array, mu: float = 0.0) -> float:
        """Return the objective plus (mu/2) ||z||^2."""
        value = self.problem.objective(z, self.shard)[0]
        value += ((self.rho * (self.w - z) ** 2 + mu * z**2) / 2.0 - self.lam * z).sum()
        return float(value)

    def gradient(self, z: Array, mu: float = 0.0) -> Array:
        """Return the gradient of `objective`, [J, 1, K]."""
        return self.problem.gradient(z, self.shard).value + self.rho * (z - self.w) + mu * z - self.lam

    def _solve_in_ball(self, start: Array, radius: float) -> Array:
        """Find the multiplier mu of ||z||^2 <= radius^2: 0, or the one with ||z(mu)|| = radius; ||z(mu)|| falls."""
        from scipy.optimize import brentq

        z = self._solve_loosely(start)
        if np.linalg.norm(z) <= radius:
            return z
        high = self.rho
        while np.linalg.norm(self._solve_loosely(z, mu=high)) > radius:
            high *= 2.0
        mu = brentq(lambda m: float(np.linalg.norm(self._solve_loosely(z, mu=m)) - radius), 0.0, high, xtol=1e-12)
        return self.problem.feasible.project(self._solve_loosely(z, mu=mu))

    def _solve_loosely(self, start: Array, mu: float = 0.0, box: tuple[float, float] | None = None) -> Array:
        """Minimise, and refuse a solution far from the tolerance; L-BFGS may stop a little before it."""
        z = self._minimise(start, mu, box)
        step = z - self.gradient(z, mu)
        residual = float(np.abs(z - (step if box is None else np.clip(step, *box))).max())
        if residual > max(LOOSE * self.tolerance, 1e-5):
            raise InputError(f"the subproblem of admm ended with a gradient of {residual:.1e}; raise rho or tolerance")
        return z

    def _minimise(self, start: Array, mu: float = 0.0, box: tuple[float, float] | None = None) -> Array:
        from scipy.optimize import minimize

        def objective(flat: Array) -> tuple[float, Array]:
            z = flat.reshape(self.w.shape)
            return self.objective(z, mu), self.gradient(z, mu).ravel()

        found = minimize(
            objective,
            start.ravel().astype(np.float64),  # L-BFGS works in the precision of its start
            jac=True,
            method="L-BFGS-B",
            bounds=None if box is None else [box] * start.size,
            options={"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": self.tolerance},
        )
        return np.asarray(found.x).reshape(self.w.shape)


@dataclass(frozen=True, eq=False)
class Solver:
    """Solves the subproblems of all runs, each with its own stopping point.

    Parameters
    ----------
    problem : Problem
        The learning problem.
    tolerance : float
        The largest norm of the gradient at a solution.
    clipping : Clipping
        Scales records that are too long before solving.
    solve : callable
        `Subproblem.solve_within`, whose tolerance a guarantee may depend on, or `Subproblem.solve`.
    """

    problem: Problem
    tolerance: float
    clipping: Clipping = NO_CLIPPING
    solve: Callable[[Subproblem, Array], Array] = Subproblem.solve_within

    def __call__(self, rho: Array, w: Array, lam: Array, start: Array, shard: Shard) -> Array:
        """Return the minimisers of all runs.

        Parameters
        ----------
        rho : Array, [R, 1]
            The penalty.
        w, lam, start : Array, [J, R, K]
            Model, dual, and the starting point.
        shard : Shard
            The agent's records.

        Returns
        -------
        Array, [J, R, K]
        """
        scaled, z = scale_records(shard, self.clipping), np.empty_like(w)
        for r, penalty in enumerate(to_numpy(rho)[:, 0]):
            run = slice(r, r + 1)
            subproblem = Subproblem(self.problem, scaled, float(penalty), w[:, run], lam[:, run], self.tolerance)
            z[:, run] = self.solve(subproblem, start[:, run])
        return z

    def error(self, rho: Array) -> Array:
        """Return tolerance / (rho + alpha), the largest distance of a solution from the minimiser."""
        return self.tolerance / self.convexity(rho)

    def convexity(self, rho: Array) -> Array:
        """Return rho + alpha of the subproblem, in double precision because noise is scaled to it."""
        convexity: Array = to_numpy(rho).astype(np.float64) + self.problem.strong_convexity
        return convexity


def minimiser_sensitivity(sensitivity: float, tolerance: float, convexity: ArrayLike) -> Array:
    """Return (Delta + 2 tolerance) / (rho + alpha), the L2 sensitivity of a solution.

    One unit moves the minimiser by at most Delta / (rho + alpha), and each of two solutions has its solver's error.

    >>> float(minimiser_sensitivity(1.0, 0.0, 4.0))
    0.25
    """
    return (sensitivity + 2.0 * tolerance) / np.asarray(convexity, np.float64)


def scale_records(shard: Shard, clipping: Clipping) -> Shard:
    """Return the records scaled to the bound of `RecordScaling`; unchanged with any other clipping."""
    if not isinstance(clipping, RecordScaling) or float(shard.norm2.max(initial=0.0)) <= clipping.bound:
        return shard
    return shard.with_features(shard.x * clipping.scale(shard)[:, None])


def solver_for(name: str, config: AlgorithmConfig) -> Solver:
    """Return the solver of a method whose guarantee depends on the tolerance.

    Raises
    ------
    InputError
        If the problem is not smooth, its gradient has no bound, or it has constraints.
    """
    problem = config.problem
    if not (problem.is_smooth and problem.is_bounded):
        raise not_smooth(name)
    if isinstance(problem.feasible, (Box, L2Ball)):
        raise InputError(f"{name} needs set all; its solver's tolerance is not worked out for other sets")
    return Solver(problem, config.tolerance, config.clipping)
