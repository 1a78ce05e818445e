"""Algorithm 1 with the gradient taken at the common model, so that a secure sum of what is sent keeps its budget."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.algorithms.base import ALGORITHMS, Agent, Consensus, Method, Recipe, Step, Upload
from tacit.algorithms.releases import Release
from tacit.algorithms.schedules import Schedule
from tacit.algorithms.steps import dual_step, linearised_step
from tacit.privacy.noise import NoiseSource
from tacit.problems import Problem
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class IadmmAtW(Consensus):
    """Inexact ADMM whose z and dual are linear in the noisy gradients, with the same factors at every agent."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: Release
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Lines 15-23 with E = 1 and f'_p(w) in the place of f'_p(z)."""
        rho, eta = self.rho(t), self.eta(t)
        noisy, event, size = self.release(0, self.problem, w, shard, noise)
        z = linearised_step(self.problem.feasible, rho, eta, w, agent.lam, agent.z, noisy)
        lam = dual_step(agent.lam, rho, w, z)
        return Step(Agent(z, lam), Upload(z), (event,), size, eta)


def _build(recipe: Recipe) -> IadmmAtW:
    return IadmmAtW(recipe.problem, recipe.rho, recipe.eta, recipe.release, recipe.closing)


ALGORITHMS.register("objw")(
    Method(
        "objp with the gradient taken at the common model, so that noise on a secure sum is enough",
        "z⁺ = Proj_W((ρw + λ − f'(w) − ξ + z/η) / (ρ + 1/η))",
        _build,
        modes=("certified",),
        reference="Tacit's own, of Algorithm 1 of the paper",
        summed=True,
    )
)
