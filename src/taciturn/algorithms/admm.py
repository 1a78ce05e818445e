"""Exact ADMM: without noise, with objective perturbation, and with output perturbation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taciturn.algorithms.base import ALGORITHMS, AdmmServer, Agent, AlgorithmConfig, AlgorithmSpec, Step, Upload
from taciturn.algorithms.perturbed_objectives import ObjectivePerturbation, per_objective_cost, perturbation
from taciturn.algorithms.privacy_costs import PublicParameters, per_upload_cost
from taciturn.algorithms.schedules import Schedule
from taciturn.algorithms.steps import dual_step
from taciturn.algorithms.subproblem import Solver, Subproblem, moved_minimiser, solver_for
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
        """The subproblem's solution of every run, and the dual."""
        rho, runs = self.rho(t), w.shape[1]
        z = np.empty_like(agent.z)
        for r in range(runs):  # each run is a problem of its own with its own stopping point
            one = slice(r, r + 1)
            subproblem = Subproblem(self.problem, shard, float(rho[r, 0]), w[:, one], agent.lam[:, one], self.tolerance)
            z[:, one] = subproblem.solve(agent.z[:, one])
        lam = dual_step(agent.lam, rho, w, z)
        return Step(Agent(z, lam), Upload(z), (non_private(runs),), np.zeros(runs), np.full_like(rho, math.nan))


def _build(recipe: AlgorithmConfig) -> Admm:
    problem = recipe.problem
    if not math.isfinite(problem.loss.curvature) or not math.isfinite(problem.regulariser.curvature):
        raise InputError("admm solves smooth subproblems: it knows the losses softmax and squared with regulariser l2")
    return Admm(problem, recipe.rho, recipe.tolerance, recipe.closing)


ALGORITHMS.register("admm")(
    AlgorithmSpec(
        "exact ADMM: every agent solves its subproblem to tolerance, no noise",
        "z⁺ = argmin_{z ∈ W} f(z) − ⟨λ, z⟩ + (ρ/2)‖w − z‖²",
        _build,
        noisy=False,
        modes=("certified", "paper"),
        backends=("numpy",),
        reference="Boyd et al., Foundations and Trends in Machine Learning 2011; in the paper eq. ADMM",
    )
)


@dataclass(frozen=True, eq=False)
class AdmmObjp(AdmmServer):
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


def _build_admm_objp(recipe: AlgorithmConfig) -> AdmmObjp:
    return AdmmObjp(perturbation("admm-objp", recipe), recipe.rho)


ALGORITHMS.register("admm-objp")(
    AlgorithmSpec(
        "exact ADMM with a random linear term in every subproblem (dual perturbation)",
        "z = argmin_z f(z) − ⟨λ − b, z⟩ + (ρ/2)‖w − z‖²,  b ~ N(0, σ²)",
        _build_admm_objp,
        modes=("certified",),
        backends=("numpy",),
        guarantee="approximate, in total; pure as well with --mechanism laplace; as published of a round",
        reference="Zhang and Zhu, IEEE TIFS 2017; cost as in Chaudhuri et al. 2011 and Kifer et al. 2012",
        charge=per_objective_cost,
        bounded=True,
        hardened=False,
        pace="exact",
        noise_on="objectives",
    )
)


@dataclass(frozen=True, eq=False)
class AdmmOutp(AdmmServer):
    """z = argmin f_p(z) - <lambda, z> + (rho/2) ||w - z||^2 plus xi; the noisy z is what everybody goes on with."""

    solver: Solver
    rho: Schedule
    noise: OutputNoise
    moved: float  # how far one unit moves f'_p
    closing: bool = True

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """The subproblem's solution with noise, and the dual of what is sent."""
        rho = self.rho(t)
        z = self.solver(rho, w, agent.lam, agent.z, shard)
        length = moved_minimiser(self.moved, self.solver.tolerance, self.solver.convexity(rho[:, 0]))
        xi, event = self.noise.draw(0, length, z, noise)
        sent = z + xi
        step = dual_step(agent.lam, rho, w, sent)
        size = self.noise.magnitude(length, z[:, 0].size)
        return Step(Agent(sent, step), Upload(sent), (event,), size, np.full_like(rho, np.nan))


def moved_solution(public: PublicParameters, t: int) -> float:
    """The same from public numbers, of round t."""
    return float(moved_minimiser(public.moved.l2, public.tolerance, public.rho(t) + public.convexity))


def _build_admm_outp(recipe: AlgorithmConfig) -> AdmmOutp:
    r = recipe
    return AdmmOutp(solver_for("admm-outp", r), r.rho, r.noise, r.moved)


ALGORITHMS.register("admm-outp")(
    AlgorithmSpec(
        "exact ADMM with noise on every solution (primal perturbation)",
        "z = argmin_z f(z) − ⟨λ, z⟩ + (ρ/2)‖w − z‖²;  z + ξ is sent,  σ ∝ 1/(ρ + α)",
        _build_admm_outp,
        modes=("certified",),
        backends=("numpy",),
        guarantee="approximate, in total; pure as well with --mechanism laplace; as published of a round",
        reference="Zhang and Zhu, IEEE TIFS 2017 (laplace); Huang et al., IEEE TIFS 2020, Algorithm 2 (gaussian)",
        charge=per_upload_cost(moved_solution),
        noise_on="uploads",
        bounded=True,
        hardened=False,
        pace="exact",
    )
)
