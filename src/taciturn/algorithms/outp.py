"""The baseline: linearised ADMM with output perturbation (Huang et al.), certified, and as published code runs it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from taciturn.algorithms.base import ALGORITHMS, Agent, AlgorithmConfig, AlgorithmSpec, S, Step, Upload
from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.algorithms.privacy_costs import PublicParameters, per_upload_cost
from taciturn.algorithms.schedules import Schedule
from taciturn.algorithms.server import Received, Server
from taciturn.algorithms.steps import dual_step, linearised_step
from taciturn.core.arrays import namespace, to_numpy
from taciturn.errors import InputError, unknown_name
from taciturn.objectives import Problem
from taciturn.objectives.clipping import Clipping
from taciturn.privacy.mechanisms import GaussianClassic, OutputNoise
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


class OutpConstants(NamedTuple):
    """Huang's constants for an agent with I_p records, or for several agents at once."""

    c1: Any  # bound on the norm of one record's gradient
    c3: Any  # smoothness of the agent's mean loss


class PrimalFirst:
    """z moves first, then w, then lambda.

    The server's w and dual therefore come from the uploads of the round before: what is sent in round t closes
    round t - 1, and the model of a round is line 5 after its uploads.
    """

    rho: Schedule
    iterates_sent: int = 1

    def server_send(self, t: int, server: S) -> tuple[S, Array]:
        """w from the last uploads, then every dual."""
        w = server.consensus(self.rho(t - 1))
        return server.dual(self.rho(t - 1), w), w

    def server_receive(self, t: int, w: Array, server: S, received: Received) -> S:
        """The uploads wait for the next w."""
        return server.take(received)

    def model(self, t: int, w: Array, server: Server) -> Array:
        """w after the uploads of round t."""
        return server.consensus(self.rho(t))


@dataclass(frozen=True, eq=False)
class OutputPerturbation(PrimalFirst):
    """A linearised step on the agent's mean loss, and Gaussian noise on its result, as published."""

    problem: Problem
    rho: Schedule
    mechanism: GaussianClassic
    constants: Callable[[Any], OutpConstants]  # of I_p

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """The dual that w closes, the step, the noise on z itself."""
        lam = dual_step(agent.lam, self.rho(t - 1), w, agent.z)
        records = len(shard.x)
        rho, eta = self.rho(t), self.eta(t, records)[:, None]
        local = replace(self.problem, records=records, agents=1)  # normalised by I_p, where f_p has 1/I
        g = local.gradient(agent.z, shard).value
        z = linearised_step(self.problem.feasible, rho, eta, w, lam, agent.z, g)
        xi, event = self.mechanism.draw(0, self.sensitivity(records, rho[:, 0], eta[:, 0]), z, noise)
        size = to_numpy(namespace(xi).abs(xi).mean(axis=(0, 2)))
        return Step(Agent(z + xi, lam), Upload(z + xi), (event,), size, eta)

    def eta(self, t: int, records: Any) -> Array:
        """1/eta = c3 + 4 c1 sqrt(JK t ln(1.25/delta)) / (I_p epsilon c_w), c_w = sqrt(4 JK), so that JK cancels.

        [R] for an agent of I_p records; [P, R] for those of several agents, [P, 1].
        """
        c1, c3 = self.constants(records)
        growth = 2.0 * c1 * math.sqrt(t * math.log(1.25 / self.mechanism.delta)) / records
        eta: Array = 1.0 / (c3 + growth / self.mechanism.epsilon)
        return eta

    def sensitivity(self, records: Any, rho: Array, eta: Array) -> Array:
        """2 c1 / (I_p (rho + 1/eta)): one record replaced; [R], or [P, R] as for eta."""
        sensitivity: Array = 2.0 * self.constants(records).c1 / (records * (rho + 1.0 / eta))
        return sensitivity


@dataclass(frozen=True, eq=False)
class CertifiedOutput(PrimalFirst):
    """The same step on f_p with clipped gradients; noise scaled to what one unit can do to z from a public z."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    limit: Clipping
    noise: OutputNoise
    moved: float  # how far one unit moves f'_p

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """The dual that w closes, the step, the noise on z itself."""
        lam = dual_step(agent.lam, self.rho(t - 1), w, agent.z)
        rho, eta = self.rho(t), self.eta(t)
        g = self.problem.gradient(agent.z, shard, self.limit).value
        z = linearised_step(self.problem.feasible, rho, eta, w, lam, agent.z, g)
        length = self.moved / (to_numpy(rho) + 1.0 / to_numpy(eta))[:, 0]
        xi, event = self.noise.draw(0, length, z, noise)
        size = self.noise.magnitude(length, z[:, 0].size)
        return Step(Agent(z + xi, lam), Upload(z + xi), (event,), size, eta)


def _moved(public: PublicParameters, t: int) -> float:
    return public.moved.l2 / (public.rho(t) + 1.0 / public.eta(t))


NOISE_LEVELS = ("published", "published-formula", "calibrated")


def _build(recipe: AlgorithmConfig) -> OutputPerturbation | CertifiedOutput:
    if not isinstance(recipe.release, PaperGradient):
        r = recipe
        return CertifiedOutput(r.problem, r.rho, r.eta, r.limit, r.noise, r.moved)
    level, loss, bound = recipe.outp_noise, recipe.problem.loss, recipe.record_bound
    if level not in NOISE_LEVELS:
        raise unknown_name("outp-noise", level, NOISE_LEVELS)
    if level == "calibrated" and not math.isfinite(loss.residual_bound * loss.curvature):
        raise InputError("outp-noise calibrated needs a loss with bounded gradient and curvature: there is softmax")
    mechanism = GaussianClassic(recipe.epsilon, recipe.delta, squared=level == "published")

    def published(records: Any) -> OutpConstants:
        return OutpConstants(c1=records, c3=records / 4.0)

    def calibrated(records: Any) -> OutpConstants:
        return OutpConstants(c1=loss.residual_bound * bound, c3=loss.curvature * bound**2)

    constants = calibrated if level == "calibrated" else published
    return OutputPerturbation(recipe.problem, recipe.rho, mechanism, constants)


ALGORITHMS.register("outp")(
    AlgorithmSpec(
        "the baseline it is compared with: noise on what is sent (output perturbation, Huang et al.)",
        "z⁺ = Proj_W((ρw + λ − f'(z) + z/η) / (ρ + 1/η)) + ξ,  ξ ~ N(0, σ²),  σ ∝ 1/(ρ + 1/η)",
        _build,
        modes=("certified", "paper"),
        guarantee="approximate, in total; pure as well with --mechanism laplace; nominal per round in mode paper",
        reference="Huang et al., IEEE TIFS 2020, Algorithm 3; mode paper as its code runs it",
        charge=per_upload_cost(_moved),
        noise_on="uploads",
        hardened=False,
    )
)
