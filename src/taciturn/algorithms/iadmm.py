"""Inexact ADMM: without noise, Algorithm 1 of the paper (ObjP, ObjPM), and two variants of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from taciturn.algorithms.base import (
    ALGORITHMS,
    AdmmServer,
    Agent,
    AlgorithmConfig,
    AlgorithmSpec,
    Step,
    Upload,
)
from taciturn.algorithms.gradient_at_model import GradientAtModel
from taciturn.algorithms.noisy_gradient import NoisyGradient
from taciturn.algorithms.schedules import NoiseFreeStep, Schedule
from taciturn.algorithms.steps import dual_step, linearised_step
from taciturn.core.arrays import namespace
from taciturn.errors import InputError, unknown_name
from taciturn.objectives import Problem
from taciturn.objectives.constraints import L2Ball
from taciturn.privacy.events import BatchEvent, non_private
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


@dataclass(frozen=True, eq=False)
class Iadmm(AdmmServer):
    """IADMM: {eq. ADMM-1 -> eq. ADMM-2-Prox -> eq. ADMM-3}."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Take one step on f_p linearised at z^t, and update the dual."""
        rho, eta = self.rho(t), self.eta(t)
        g = self.problem.gradient(agent.z, shard).value
        z = linearised_step(self.problem.feasible, rho, eta, w, agent.lam, agent.z, g)
        lam = dual_step(agent.lam, rho, w, z)
        runs = z.shape[1]
        return Step(Agent(z, lam), Upload(z), (non_private(runs),), np.zeros(runs), eta)


IADMM = AlgorithmSpec(
    "inexact ADMM: one gradient step on each agent's subproblem a round, no noise",
    "z⁺ = Proj_W((ρw + λ − f'(z) + z/η) / (ρ + 1/η))",
    Iadmm.from_config,
    noisy=False,
    modes=("certified", "paper"),
    reference="Huang et al., IEEE TIFS 2020; in the paper eq. ADMM-2-Prox",
    step_kind=NoiseFreeStep,
)
ALGORITHMS.register("iadmm")(IADMM)


@dataclass(frozen=True, eq=False)
class DpIadmm(AdmmServer):
    """Algorithm 1: inexact ADMM with E noisy local updates, whose average is sent."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: NoisyGradient
    local_updates: int  # E
    closing: bool = False

    @property
    def iterates_sent(self) -> int:
        """E: all local iterates are averaged."""
        return self.local_updates

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Run lines 15-23."""
        rho, eta, z = self.rho(t), self.eta(t), agent.z  # line 16: z^{t,1} = z^{t-1,E+1}
        total = namespace(z).zeros_like(z)
        events: list[BatchEvent] = []
        magnitude = np.zeros(z.shape[1])
        for e in range(self.local_updates):
            noisy, event, size = self.release(e, self.problem, z, shard, noise)  # line 18
            z = linearised_step(self.problem.feasible, rho, eta, w, agent.lam, z, noisy)  # line 19
            total += z
            events.append(event)
            magnitude += size / self.local_updates
        out = total / self.local_updates  # line 21
        lam = dual_step(agent.lam, rho, w, out)  # line 23
        return Step(Agent(z, lam), Upload(out), tuple(events), magnitude, eta)  # line 22 sends the upload


OBJP = AlgorithmSpec(
    "the paper's method with one noisy local update a round (DP-IADMM, Algorithm 1, E = 1)",
    "z⁺ = Proj_W((ρw + λ − f'(z) − ξ + z/η) / (ρ + 1/η)),  E times; their mean is sent",
    DpIadmm.from_config,
    local_updates=1,
    modes=("certified", "paper"),
    reference="Ryu and Kim, the paper, Algorithm 1",
)
OBJPM_SUMMARY = "the paper's method with several noisy local updates a round (DP-IADMM, Algorithm 1, E = 10)"
ALGORITHMS.register("objp")(OBJP)
ALGORITHMS.register("objpm")(replace(OBJP, summary=OBJPM_SUMMARY, local_updates=10))


@dataclass(frozen=True, eq=False)
class IadmmAtW(GradientAtModel, AdmmServer):
    """Inexact ADMM with gradients at w: z and lambda are linear in them, with the same factors at every agent."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: NoisyGradient
    closing: bool = False

    def local_step(self, t: int, w: Array, agent: Agent, noisy: Array) -> tuple[Agent, Upload]:
        """Run lines 19-23 with E = 1 and f'_p(w) instead of f'_p(z)."""
        rho = self.rho(t)
        z = linearised_step(self.problem.feasible, rho, self.eta(t), w, agent.lam, agent.z, noisy)
        return Agent(z, dual_step(agent.lam, rho, w, z)), Upload(z)


OBJW = AlgorithmSpec(
    "objp with the gradient taken at the common model, so that noise on a secure sum is enough",
    "z⁺ = Proj_W((ρw + λ − f'(w) − ξ + z/η) / (ρ + 1/η))",
    IadmmAtW.from_config,
    modes=("certified",),
    reference="Taciturn's own variant of Algorithm 1 of the paper",
    allows_aggregate_noise=True,
)
ALGORITHMS.register("objw")(OBJW)


RADII = ("constant", "decreasing")


@dataclass(frozen=True, eq=False)
class TrustRegion(AdmmServer):
    """Objective perturbation without a proximal term; z stays in an infinity-norm ball around the last iterate."""

    problem: Problem
    rho: Schedule
    release: NoisyGradient
    radius: str  # constant: a, as in the published code; decreasing: a / t^2, as in its text
    radius_scale: float  # a
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Compute z = clip((rho w + lambda - g - xi) / rho, z - d, z + d), and update the dual."""
        xp, rho, d = namespace(w), self.rho(t), self.radius_at(t)
        noisy, event, size = self.release(0, self.problem, agent.z, shard, noise)
        z: Array = xp.clip((rho * w + agent.lam - noisy) / rho, agent.z - d, agent.z + d)
        z = self.problem.feasible.project(z)  # exact for a box, whose intersection with the trust region is a box
        lam = dual_step(agent.lam, rho, w, z)
        return Step(Agent(z, lam), Upload(z), (event,), size, xp.full_like(rho, d))

    def radius_at(self, t: int) -> float:
        """Return the radius d of round t."""
        return self.radius_scale if self.radius == "constant" else self.radius_scale / t**2


def _build_objt(config: AlgorithmConfig) -> TrustRegion:
    if config.radius not in RADII:
        raise unknown_name("radius", config.radius, RADII)
    if isinstance(config.problem.feasible, L2Ball):
        raise InputError("objt supports the sets all and box; its step onto an l2-ball has no closed form")
    return TrustRegion.from_config(config)


OBJT = AlgorithmSpec(
    "the published code's variant of objp: a trust region instead of the proximal term",
    "z⁺ = clip((ρw + λ − f'(z) − ξ) / ρ, z − d, z + d),  d = a or a/t²",
    _build_objt,
    modes=("certified", "paper"),
    reference="Ryu and Kim, the code published with the paper",
)
ALGORITHMS.register("objt")(OBJT)
