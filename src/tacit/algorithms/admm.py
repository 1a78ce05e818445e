"""Exact ADMM: every agent solves its subproblem to tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.algorithms.base import ALGORITHMS, Agent, Consensus, Method, Recipe, Step, Upload
from tacit.algorithms.schedules import Schedule
from tacit.algorithms.steps import dual_step
from tacit.errors import InputError
from tacit.privacy.events import non_private
from tacit.privacy.noise import NoiseSource
from tacit.problems import Problem
from tacit.problems.sets.box import Box
from tacit.problems.sets.l2_ball import L2Ball
from tacit.types import Array, Shard


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
        """The minimiser, [J, 1, K]."""
        match self.problem.feasible:
            case L2Ball(radius):
                return self._solve_in_ball(start, radius)
            case Box(low, high):
                return self._minimise(start, box=(low, high))
            case _:
                return self._minimise(start)

    def _solve_in_ball(self, start: Array, radius: float) -> Array:
        """The multiplier mu of ||z||^2 <= radius^2 is 0 or makes the constraint tight; ||z(mu)|| falls with mu."""
        from scipy.optimize import brentq  # noqa: PLC0415  the simulation's other methods need only numpy

        z = self._minimise(start)
        if np.linalg.norm(z) <= radius:
            return z
        high = self.rho
        while np.linalg.norm(self._minimise(z, mu=high)) > radius:
            high *= 2.0
        mu = brentq(lambda m: float(np.linalg.norm(self._minimise(z, mu=m)) - radius), 0.0, high, xtol=1e-12)
        return self.problem.feasible.project(self._minimise(z, mu=mu))

    def _minimise(self, start: Array, mu: float = 0.0, box: tuple[float, float] | None = None) -> Array:
        from scipy.optimize import minimize  # noqa: PLC0415

        def objective(flat: Array) -> tuple[float, Array]:
            z = flat.reshape(self.w.shape)
            value = self.problem.objective(z, self.shard)[0]
            value += ((self.rho * (self.w - z) ** 2 + mu * z**2) / 2.0 - self.lam * z).sum()
            gradient = self.problem.gradient(z, self.shard).value + self.rho * (z - self.w) + mu * z - self.lam
            return float(value), gradient.ravel()

        bounds = None if box is None else [box] * start.size
        found = minimize(
            objective,
            start.ravel().astype(np.float64),  # the solver works in the precision it starts in
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": self.tolerance},
        )
        self._check(found.x, objective(found.x)[1], box)
        return np.asarray(found.x).reshape(self.w.shape)

    def _check(self, z: Array, gradient: Array, box: tuple[float, float] | None) -> None:
        """A line search may give up a little before the tolerance; one that gave up early is not an exact step."""
        step = z - gradient
        residual = float(np.abs(z - (step if box is None else np.clip(step, *box))).max())
        if residual > max(1e3 * self.tolerance, 1e-5):
            raise InputError(f"admm's subproblem ended with a gradient of {residual:.1e}: raise rho or the tolerance")


@dataclass(frozen=True, eq=False)
class Admm(Consensus):
    """Exact ADMM: {eq. ADMM-1 -> eq. ADMM-2 -> eq. ADMM-3}."""

    problem: Problem
    rho: Schedule
    tolerance: float
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """The subproblem's solution of every run, and the dual."""
        rho, runs = self.rho(t), w.shape[1]
        z = np.empty_like(agent.z)
        for r in range(runs):  # each run is a problem of its own with its own stopping point
            one = slice(r, r + 1)
            subproblem = Subproblem(self.problem, shard, float(rho[r, 0]), w[:, one], agent.lam[:, one], self.tolerance)
            z[:, one] = subproblem.solve(agent.z[:, one])
        lam = dual_step(agent.lam, rho, w, z)
        return Step(Agent(z, lam), Upload(z), (non_private(runs),), np.zeros(runs), np.full_like(rho, math.nan))


def _build(recipe: Recipe) -> Admm:
    problem = recipe.problem
    if not math.isfinite(problem.loss.curvature) or not math.isfinite(problem.regulariser.curvature):
        raise InputError("admm solves smooth subproblems: it knows the losses softmax and squared with regulariser l2")
    return Admm(problem, recipe.rho, recipe.tolerance, recipe.closing)


ALGORITHMS.register("admm")(
    Method(
        "exact ADMM: every agent solves its subproblem to tolerance, no noise",
        "z⁺ = argmin_{z ∈ W} f(z) − ⟨λ, z⟩ + (ρ/2)‖w − z‖²",
        _build,
        noisy=False,
        modes=("certified", "paper"),
        backends=("numpy",),
    )
)
