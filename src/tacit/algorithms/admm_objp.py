"""Exact ADMM with objective perturbation: Zhang and Zhu's dual variable perturbation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.algorithms.base import ALGORITHMS, Agent, Consensus, Method, Recipe, Step, Upload
from tacit.algorithms.objectives import ObjectivePerturbation, every_objective, perturbation
from tacit.algorithms.schedules import Schedule
from tacit.algorithms.steps import dual_step
from tacit.privacy.noise import NoiseSource
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class AdmmObjp(Consensus):
    """z = argmin f_p(z) - <lambda - b, z> + (rho/2) ||w - z||^2: the dual is perturbed before the step."""

    perturbed: ObjectivePerturbation
    rho: Schedule
    closing: bool = True

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """The perturbed subproblem's solution, and the dual of what is sent."""
        rho = self.rho(t)
        z, events, size = self.perturbed(rho, w, agent.lam, agent.z, shard, noise)
        lam = dual_step(agent.lam, rho, w, z)
        return Step(Agent(z, lam), Upload(z), events, size, np.full_like(rho, np.nan))


def _build(recipe: Recipe) -> AdmmObjp:
    return AdmmObjp(perturbation("admm-objp", recipe), recipe.rho)


ALGORITHMS.register("admm-objp")(
    Method(
        "exact ADMM with a random linear term in every subproblem (dual perturbation)",
        "z = argmin_z f(z) − ⟨λ − b, z⟩ + (ρ/2)‖w − z‖²,  b ~ N(0, σ²)",
        _build,
        modes=("certified",),
        backends=("numpy",),
        guarantee="approximate, in total; pure as well with --mechanism laplace; as published of a round",
        reference="Zhang and Zhu, IEEE TIFS 2017; cost as in Chaudhuri et al. 2011 and Kifer et al. 2012",
        charge=every_objective,
        bounded=True,
        hardened=False,
        pace="exact",
        noise_on="objectives",
    )
)
