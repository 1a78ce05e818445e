"""Exact ADMM with output perturbation: Zhang and Zhu's primal variable perturbation, Huang et al.'s Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.algorithms.base import ALGORITHMS, Agent, Consensus, Method, Recipe, Step, Upload
from tacit.algorithms.charges import Public, every_upload
from tacit.algorithms.schedules import Schedule
from tacit.algorithms.steps import dual_step
from tacit.algorithms.subproblem import Solver, moved_minimiser, solver_for
from tacit.privacy.mechanisms.output import OutputNoise
from tacit.privacy.noise import NoiseSource
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class AdmmOutp(Consensus):
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


def moved_solution(public: Public, t: int) -> float:
    """The same from public numbers, of round t."""
    return float(moved_minimiser(public.moved.l2, public.tolerance, public.rho(t) + public.convexity))


def _build(recipe: Recipe) -> AdmmOutp:
    r = recipe
    return AdmmOutp(solver_for("admm-outp", r), r.rho, r.noise, r.moved)


ALGORITHMS.register("admm-outp")(
    Method(
        "exact ADMM with noise on every solution (primal perturbation)",
        "z = argmin_z f(z) − ⟨λ, z⟩ + (ρ/2)‖w − z‖²;  z + ξ is sent,  σ ∝ 1/(ρ + α)",
        _build,
        modes=("certified",),
        backends=("numpy",),
        guarantee="approximate, in total; pure as well with --mechanism laplace; as published of a round",
        reference="Zhang and Zhu, IEEE TIFS 2017 (laplace); Huang et al., IEEE TIFS 2020, Algorithm 2 (gaussian)",
        charge=every_upload(moved_solution),
        noise_on="uploads",
        bounded=True,
        hardened=False,
        pace="exact",
    )
)
