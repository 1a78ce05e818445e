"""Output perturbation for empirical risk minimisation: a trusted curator solves the whole problem once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.algorithms.admm_outp import moved_solution
from tacit.algorithms.base import ALGORITHMS, Agent, Averaging, Method, Recipe, Step, Upload
from tacit.algorithms.charges import every_upload
from tacit.algorithms.schedules import Schedule
from tacit.algorithms.subproblem import Solver, moved_minimiser, solver_for
from tacit.arrays import namespace
from tacit.privacy.mechanisms.output import OutputNoise
from tacit.privacy.noise import NoiseSource
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class ErmOutp(Averaging):
    """w = argmin F(w) + (rho/2) ||w||^2, plus xi."""

    solver: Solver
    rho: Schedule  # it is added to the strong convexity of F
    noise: OutputNoise
    moved: float  # how far one unit moves F'
    closing: bool = True

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """The curator's only step: it does not depend on w."""
        zero, rho = namespace(w).zeros_like(w), self.rho(t)
        z = self.solver(rho, zero, zero, agent.z, shard)
        length = moved_minimiser(self.moved, self.solver.tolerance, self.solver.convexity(rho[:, 0]))
        xi, event = self.noise.draw(0, length, z, noise)
        sent, size = z + xi, self.noise.magnitude(length, z[:, 0].size)
        return Step(Agent(sent, agent.lam), Upload(sent), (event,), size, np.full_like(rho, np.nan))


def _build(recipe: Recipe) -> ErmOutp:
    r = recipe
    return ErmOutp(solver_for("erm-outp", r), r.rho, r.noise, r.moved)


ALGORITHMS.register("erm-outp")(
    Method(
        "a central reference: a trusted curator with all records solves the problem, and adds noise to the solution",
        "w = argmin_w F(w) + (ρ/2)‖w‖² + ξ,  σ ∝ 1/(ρ + α)",
        _build,
        modes=("certified",),
        backends=("numpy",),
        guarantee="approximate, in total, against all but the curator; pure with --mechanism laplace, as published",
        reference="Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 1",
        charge=every_upload(moved_solution),
        noise_on="uploads",
        bounded=True,
        hardened=False,
        central=True,
        pace="central",
        rounds=1,
    )
)
