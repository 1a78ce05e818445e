"""Inexact ADMM: without noise, Algorithm 1 of the paper (ObjP, ObjPM), and two variants of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taciturn.algorithms.base import ALGORITHMS, AdmmServer, Agent, AlgorithmConfig, AlgorithmSpec, Step, Upload
from taciturn.algorithms.noisy_gradient import NoisyGradient
from taciturn.algorithms.schedules import Schedule
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
        """One step on f_p linearised at z^t, and the dual."""
        rho, eta = self.rho(t), self.eta(t)
        g = self.problem.gradient(agent.z, shard).value
        z = linearised_step(self.problem.feasible, rho, eta, w, agent.lam, agent.z, g)
        lam = dual_step(agent.lam, rho, w, z)
        runs = z.shape[1]
        return Step(Agent(z, lam), Upload(z), (non_private(runs),), np.zeros(runs), eta)


def _build(recipe: AlgorithmConfig) -> Iadmm:
    return Iadmm(recipe.problem, recipe.rho, recipe.eta, recipe.closing)


ALGORITHMS.register("iadmm")(
    AlgorithmSpec(
        "inexact ADMM: one gradient step on each agent's subproblem a round, no noise",
        "z⁺ = Proj_W((ρw + λ − f'(z) + z/η) / (ρ + 1/η))",
        _build,
        noisy=False,
        modes=("certified", "paper"),
        pace="plain",
        reference="Huang et al., IEEE TIFS 2020; in the paper eq. ADMM-2-Prox",
    )
)


@dataclass(frozen=True, eq=False)
class DpIadmm(AdmmServer):
    """Inexact ADMM with E noisy local updates, of which the average is sent."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: NoisyGradient
    local_updates: int  # E
    closing: bool = False

    @property
    def iterates_sent(self) -> int:  # type: ignore[override]
        """E: the average of all."""
        return self.local_updates

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Lines 15-23."""
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


def _build_dp_iadmm(recipe: AlgorithmConfig) -> DpIadmm:
    r = recipe
    return DpIadmm(r.problem, r.rho, r.eta, r.release, r.local_updates, r.closing)


_EQUATION = "z⁺ = Proj_W((ρw + λ − f'(z) − ξ + z/η) / (ρ + 1/η)),  E times; their mean is sent"
_MODES = ("certified", "paper")
_PAPER = "Ryu and Kim, the paper, Algorithm 1"

ALGORITHMS.register("objp")(
    AlgorithmSpec(
        "the paper's method with one noisy local update a round (DP-IADMM, Algorithm 1, E = 1)",
        _EQUATION,
        _build_dp_iadmm,
        1,
        modes=_MODES,
        reference=_PAPER,
    )
)
ALGORITHMS.register("objpm")(
    AlgorithmSpec(
        "the paper's method with several noisy local updates a round (DP-IADMM, Algorithm 1, E = 10)",
        _EQUATION,
        _build_dp_iadmm,
        10,
        modes=_MODES,
        reference=_PAPER,
    )
)


@dataclass(frozen=True, eq=False)
class IadmmAtW(AdmmServer):
    """Inexact ADMM whose z and dual are linear in the noisy gradients, with the same factors at every agent."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: NoisyGradient
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Lines 15-23 with E = 1 and f'_p(w) in the place of f'_p(z)."""
        rho, eta = self.rho(t), self.eta(t)
        noisy, event, size = self.release(0, self.problem, w, shard, noise)
        z = linearised_step(self.problem.feasible, rho, eta, w, agent.lam, agent.z, noisy)
        lam = dual_step(agent.lam, rho, w, z)
        return Step(Agent(z, lam), Upload(z), (event,), size, eta)


def _build_objw(recipe: AlgorithmConfig) -> IadmmAtW:
    return IadmmAtW(recipe.problem, recipe.rho, recipe.eta, recipe.release, recipe.closing)


ALGORITHMS.register("objw")(
    AlgorithmSpec(
        "objp with the gradient taken at the common model, so that noise on a secure sum is enough",
        "z⁺ = Proj_W((ρw + λ − f'(w) − ξ + z/η) / (ρ + 1/η))",
        _build_objw,
        modes=("certified",),
        reference="Taciturn's own, of Algorithm 1 of the paper",
        summed=True,
    )
)


RADII = ("constant", "decreasing")


@dataclass(frozen=True, eq=False)
class TrustRegion(AdmmServer):
    """Objective perturbation without a proximal term, z kept within an infinity-norm ball around the last iterate."""

    problem: Problem
    rho: Schedule
    release: NoisyGradient
    radius: str  # constant: a, as coded; decreasing: a / t^2, as its text says
    radius_scale: float  # a
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """z = clip((rho w + lambda - g - xi) / rho, z - d, z + d), and the dual."""
        xp, rho, d = namespace(w), self.rho(t), self.radius_at(t)
        noisy, event, size = self.release(0, self.problem, agent.z, shard, noise)
        z: Array = xp.clip((rho * w + agent.lam - noisy) / rho, agent.z - d, agent.z + d)
        z = self.problem.feasible.project(z)  # exact for a box, which meets the trust region in a box
        lam = dual_step(agent.lam, rho, w, z)
        return Step(Agent(z, lam), Upload(z), (event,), size, xp.full_like(rho, d))

    def radius_at(self, t: int) -> float:
        """The radius d of round t."""
        return self.radius_scale if self.radius == "constant" else self.radius_scale / t**2


def _build_objt(recipe: AlgorithmConfig) -> TrustRegion:
    if recipe.radius not in RADII:
        raise unknown_name("radius", recipe.radius, RADII)
    if isinstance(recipe.problem.feasible, L2Ball):
        raise InputError("objt knows the sets all and box: its step onto an l2-ball has no closed form")
    r = recipe
    return TrustRegion(r.problem, r.rho, r.release, r.radius, r.radius_scale, r.closing)


ALGORITHMS.register("objt")(
    AlgorithmSpec(
        "the published code's variant of objp: a trust region instead of the proximal term",
        "z⁺ = clip((ρw + λ − f'(z) − ξ) / ρ, z − d, z + d),  d = a or a/t²",
        _build_objt,
        modes=("certified", "paper"),
        reference="Ryu and Kim, the code published with the paper",
    )
)
