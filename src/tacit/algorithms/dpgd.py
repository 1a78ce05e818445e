"""Noisy gradient descent: every agent takes one step from the common model, and the mean goes round."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.algorithms.base import ALGORITHMS, Agent, Averaging, Method, Recipe, Step, Upload
from tacit.algorithms.releases import Release
from tacit.algorithms.schedules import Schedule
from tacit.privacy.noise import NoiseSource
from tacit.problems import Problem
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class DpGd(Averaging):
    """w⁺ = w - (eta/P) sum_p (f'_p(w) + xi_p): nothing that an agent keeps enters its next step."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: Release
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """z = Proj_W(w - eta (g + xi))."""
        eta = self.eta(t)
        noisy, event, size = self.release(0, self.problem, w, shard, noise)
        z = self.problem.feasible.project(w - eta * noisy)
        return Step(Agent(z, agent.lam), Upload(z), (event,), size, eta)


def _build(recipe: Recipe) -> DpGd:
    return DpGd(recipe.problem, recipe.rho, recipe.eta, recipe.release, recipe.closing)


ALGORITHMS.register("dpgd")(
    Method(
        "noisy gradient descent: one step from the common model at every agent, and the mean goes round",
        "z = Proj_W(w − η (f'(w) + ξ));  w⁺ = mean of z",
        _build,
        modes=("certified",),
        reference="Bassily, Smith and Thakurta, FOCS 2014, with all records in every step",
        pace="explicit",
        summed=True,
    )
)
