"""Objective perturbation for empirical risk minimisation: a trusted curator solves a perturbed problem once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.algorithms.base import ALGORITHMS, Agent, Averaging, Method, Recipe, Step, Upload
from tacit.algorithms.objectives import ObjectivePerturbation, every_objective, perturbation
from tacit.algorithms.schedules import Schedule
from tacit.arrays import namespace
from tacit.privacy.noise import NoiseSource
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class ErmObjp(Averaging):
    """w = argmin F(w) + <b, w> + (rho/2) ||w||^2."""

    perturbed: ObjectivePerturbation
    rho: Schedule  # it is added to the strong convexity of F
    closing: bool = True

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """The curator's only step: it does not depend on w."""
        zero, rho = namespace(w).zeros_like(w), self.rho(t)
        z, events, size = self.perturbed(rho, zero, zero, agent.z, shard, noise)
        return Step(Agent(z, agent.lam), Upload(z), events, size, np.full_like(rho, np.nan))


def _build(recipe: Recipe) -> ErmObjp:
    return ErmObjp(perturbation("erm-objp", recipe), recipe.rho)


ALGORITHMS.register("erm-objp")(
    Method(
        "a central reference: a trusted curator with all records solves the problem with a random linear term in it",
        "w = argmin_w F(w) + ⟨b, w⟩ + (ρ/2)‖w‖²,  b ~ N(0, σ²)",
        _build,
        modes=("certified",),
        backends=("numpy",),
        guarantee="approximate, in total, against all but the curator; pure with --mechanism laplace, as published",
        reference="Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 2; Kifer, Smith and Thakurta, COLT 2012",
        charge=every_objective,
        bounded=True,
        hardened=False,
        central=True,
        pace="central",
        rounds=1,
        noise_on="objectives",
    )
)
