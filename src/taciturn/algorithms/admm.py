"""Exact ADMM: without noise, with objective perturbation, and with output perturbation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taciturn.algorithms.base import ALGORITHMS, AdmmServer, Agent, AlgorithmConfig, AlgorithmSpec, Step, Upload
from taciturn.algorithms.perturbed_objectives import ObjectivePerturbation, objective_perturbation, per_objective_cost
from taciturn.algorithms.privacy_costs import PublicParameters, per_upload_cost
from taciturn.algorithms.schedules import ExactStep, Schedule
from taciturn.algorithms.steps import dual_step
from taciturn.algorithms.subproblem import Solver, Subproblem, minimiser_sensitivity, solver_for
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.privacy.events import non_private
from taciturn.privacy.mechanisms import OutputNoise
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


@dataclass(frozen=True, eq=False)
class Admm(AdmmServer):
    """Exact ADMM: {eq. ADMM-1 -> eq. ADMM-2 -> eq. ADMM-3}."""

    problem: Problem
    rho: Schedule
    tolerance: float
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Solve the subproblem of every run, and update the dual."""
        rho, runs = self.rho(t), w.shape[1]
        z = Solver(self.problem, self.tolerance, solve=Subproblem.solve)(rho, w, agent.lam, agent.z, shard)
        lam = dual_step(agent.lam, rho, w, z)
        return Step(Agent(z, lam), Upload(z), (non_private(runs),), np.zeros(runs), np.full_like(rho, math.nan))


def _build(config: AlgorithmConfig) -> Admm:
    problem = config.problem
    if not problem.is_smooth:
        raise InputError("admm solves smooth subproblems: it needs the loss softmax or squared, with regulariser l2")
    return Admm.from_config(config)


ADMM = AlgorithmSpec(
    "exact ADMM: every agent solves its subproblem to tolerance, no noise",
    "z⁺ = argmin_{z ∈ W} f(z) − ⟨λ, z⟩ + (ρ/2)‖w − z‖²",
    _build,
    noisy=False,
    modes=("certified", "paper"),
    backends=("numpy",),
    reference="Boyd et al., Foundations and Trends in Machine Learning 2011; in the paper eq. ADMM",
)
ALGORITHMS.register("admm")(ADMM)


@dataclass(frozen=True, eq=False)
class AdmmObjp(AdmmServer):
    """z = argmin f_p(z) - <lambda - b, z> + (rho/2) ||w - z||^2: the dual is perturbed before the step."""

    perturbed: ObjectivePerturbation
    rho: Schedule
    closing = True

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Solve the perturbed subproblem, and update the dual with the z that is sent."""
        rho = self.rho(t)
        z, events, size = self.perturbed(rho, w, agent.lam, agent.z, shard, noise)
        lam = dual_step(agent.lam, rho, w, z)
        return Step(Agent(z, lam), Upload(z), events, size, np.full_like(rho, np.nan))


ADMM_OBJP = AlgorithmSpec(
    "exact ADMM with a random linear term in every subproblem (dual perturbation)",
    "z = argmin_z f(z) − ⟨λ − b, z⟩ + (ρ/2)‖w − z‖²,  b ~ N(0, σ²)",
    lambda config: AdmmObjp(objective_perturbation("admm-objp", config), config.rho),
    modes=("certified",),
    backends=("numpy",),
    guarantee="approximate, in total; pure as well with --mechanism laplace; as published of a round",
    reference="Zhang and Zhu, IEEE TIFS 2017; cost as in Chaudhuri et al. 2011 and Kifer et al. 2012",
    privacy_cost=per_objective_cost,
    noise_on="objectives",
    scales_records=True,
    step_kind=ExactStep,
    hardened=False,
)
ALGORITHMS.register("admm-objp")(ADMM_OBJP)


@dataclass(frozen=True, eq=False)
class AdmmOutp(AdmmServer):
    """z = argmin f_p(z) - <lambda, z> + (rho/2) ||w - z||^2 plus xi; agent and server continue with the noisy z."""

    solver: Solver
    rho: Schedule
    noise: OutputNoise
    sensitivity: float  # Delta, of f'_p
    closing = True

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Solve the subproblem, add noise, and update the dual with the z that is sent."""
        rho = self.rho(t)
        z = self.solver(rho, w, agent.lam, agent.z, shard)
        delta = minimiser_sensitivity(self.sensitivity, self.solver.tolerance, self.solver.convexity(rho[:, 0]))
        xi, event = self.noise.draw(0, delta, z, noise)
        z = z + xi
        lam = dual_step(agent.lam, rho, w, z)
        size = self.noise.magnitude(delta, z[:, 0].size)
        return Step(Agent(z, lam), Upload(z), (event,), size, np.full_like(rho, np.nan))


def solution_sensitivity(public: PublicParameters, t: int) -> float:
    """Return the L2 sensitivity of the solution of round t."""
    return float(minimiser_sensitivity(public.sensitivity.l2, public.tolerance, public.rho(t) + public.convexity))


ADMM_OUTP = AlgorithmSpec(
    "exact ADMM with noise on every solution (primal perturbation)",
    "z = argmin_z f(z) − ⟨λ, z⟩ + (ρ/2)‖w − z‖²;  z + ξ is sent,  σ ∝ 1/(ρ + α)",
    lambda config: AdmmOutp.from_config(config, solver=solver_for("admm-outp", config)),
    modes=("certified",),
    backends=("numpy",),
    guarantee="approximate, in total; pure as well with --mechanism laplace; as published of a round",
    reference="Zhang and Zhu, IEEE TIFS 2017 (laplace); Huang et al., IEEE TIFS 2020, Algorithm 2 (gaussian)",
    privacy_cost=per_upload_cost(solution_sensitivity),
    noise_on="uploads",
    scales_records=True,
    step_kind=ExactStep,
    hardened=False,
)
ALGORITHMS.register("admm-outp")(ADMM_OUTP)
