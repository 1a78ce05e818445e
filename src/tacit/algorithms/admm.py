"""Exact ADMM: every agent solves its subproblem to tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.algorithms.base import ALGORITHMS, Agent, Consensus, Method, Recipe, Step, Upload
from tacit.algorithms.schedules import Schedule
from tacit.algorithms.steps import dual_step
from tacit.algorithms.subproblem import Subproblem
from tacit.errors import InputError
from tacit.privacy.events import non_private
from tacit.privacy.noise import NoiseSource
from tacit.problems import Problem
from tacit.types import Array, Shard


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
        reference="Boyd et al., Foundations and Trends in Machine Learning 2011; in the paper eq. ADMM",
    )
)
