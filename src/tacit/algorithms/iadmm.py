"""Inexact ADMM: one linearised local step a round, no noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.algorithms.base import ALGORITHMS, Agent, Consensus, Method, Recipe, Step, Upload
from tacit.algorithms.schedules import Schedule
from tacit.algorithms.steps import dual_step, linearised_step
from tacit.privacy.events import non_private
from tacit.privacy.noise import NoiseSource
from tacit.problems import Problem
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class Iadmm(Consensus):
    """IADMM: {eq. ADMM-1 -> eq. ADMM-2-Prox -> eq. ADMM-3}."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """One step on f_p linearised at z^t, and the dual."""
        rho, eta = self.rho(t), self.eta(t)
        g = self.problem.gradient(agent.z, shard).value
        z = linearised_step(self.problem.feasible, rho, eta, w, agent.lam, agent.z, g)
        lam = dual_step(agent.lam, rho, w, z)
        runs = z.shape[1]
        return Step(Agent(z, lam), Upload(z), (non_private(runs),), np.zeros(runs), eta)


def _build(recipe: Recipe) -> Iadmm:
    return Iadmm(recipe.problem, recipe.rho, recipe.eta, recipe.closing)


ALGORITHMS.register("iadmm")(
    Method(
        "inexact ADMM: one gradient step on each agent's subproblem a round, no noise",
        "z⁺ = Proj_W((ρw + λ − f'(z) + z/η) / (ρ + 1/η))",
        _build,
        noisy=False,
        modes=("certified", "paper"),
        pace="plain",
        reference="Huang et al., IEEE TIFS 2020; in the paper eq. ADMM-2-Prox",
    )
)
