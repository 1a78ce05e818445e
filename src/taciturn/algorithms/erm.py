"""Central references: empirical risk minimisation by a trusted curator, with objective or output perturbation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taciturn.algorithms.admm import moved_solution
from taciturn.algorithms.base import ALGORITHMS, Agent, AlgorithmConfig, AlgorithmSpec, AveragingServer, Step, Upload
from taciturn.algorithms.perturbed_objectives import ObjectivePerturbation, per_objective_cost, perturbation
from taciturn.algorithms.privacy_costs import per_upload_cost
from taciturn.algorithms.schedules import Schedule
from taciturn.algorithms.subproblem import Solver, moved_minimiser, solver_for
from taciturn.core.arrays import namespace
from taciturn.privacy.mechanisms import OutputNoise
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


@dataclass(frozen=True, eq=False)
class ErmObjp(AveragingServer):
    """w = argmin F(w) + <b, w> + (rho/2) ||w||^2."""

    perturbed: ObjectivePerturbation
    rho: Schedule  # it is added to the strong convexity of F
    closing: bool = True

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """The curator's only step: it does not depend on w."""
        zero, rho = namespace(w).zeros_like(w), self.rho(t)
        z, events, size = self.perturbed(rho, zero, zero, agent.z, shard, noise)
        return Step(Agent(z, agent.lam), Upload(z), events, size, np.full_like(rho, np.nan))


def _build(recipe: AlgorithmConfig) -> ErmObjp:
    return ErmObjp(perturbation("erm-objp", recipe), recipe.rho)


ALGORITHMS.register("erm-objp")(
    AlgorithmSpec(
        "a central reference: a trusted curator with all records solves the problem with a random linear term in it",
        "w = argmin_w F(w) + ⟨b, w⟩ + (ρ/2)‖w‖²,  b ~ N(0, σ²)",
        _build,
        modes=("certified",),
        backends=("numpy",),
        guarantee="approximate, in total, against all but the curator; pure with --mechanism laplace, as published",
        reference="Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 2; Kifer, Smith and Thakurta, COLT 2012",
        charge=per_objective_cost,
        bounded=True,
        hardened=False,
        central=True,
        pace="central",
        rounds=1,
        noise_on="objectives",
    )
)


@dataclass(frozen=True, eq=False)
class ErmOutp(AveragingServer):
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


def _build_erm_outp(recipe: AlgorithmConfig) -> ErmOutp:
    r = recipe
    return ErmOutp(solver_for("erm-outp", r), r.rho, r.noise, r.moved)


ALGORITHMS.register("erm-outp")(
    AlgorithmSpec(
        "a central reference: a trusted curator with all records solves the problem, and adds noise to the solution",
        "w = argmin_w F(w) + (ρ/2)‖w‖² + ξ,  σ ∝ 1/(ρ + α)",
        _build_erm_outp,
        modes=("certified",),
        backends=("numpy",),
        guarantee="approximate, in total, against all but the curator; pure with --mechanism laplace, as published",
        reference="Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 1",
        charge=per_upload_cost(moved_solution),
        noise_on="uploads",
        bounded=True,
        hardened=False,
        central=True,
        pace="central",
        rounds=1,
    )
)
