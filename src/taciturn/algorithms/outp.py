"""The baseline: linearised ADMM with output perturbation (Huang et al.), certified, and as published."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from taciturn.algorithms.base import ALGORITHMS, AdmmServer, Agent, AlgorithmConfig, AlgorithmSpec, S, Step, Upload
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


class PrimalFirst(AdmmServer):
    """ADMM in the order z, w, lambda.

    The server computes w and the duals from the uploads of the previous round: sending in round t completes round
    t - 1, and the model of a round is line 5 after its uploads.
    """

    def server_send(self, t: int, server: S) -> tuple[S, Array]:
        """Return w from the last uploads, and update every dual."""
        w = server.consensus(self.rho(t - 1))
        return server.update_duals(self.rho(t - 1), w), w

    def server_receive(self, t: int, w: Array, server: S, received: Received) -> S:
        """Store the uploads for the next w."""
        return server.receive(received)

    def model(self, t: int, w: Array, server: Server) -> Array:
        """Return w after the uploads of round t."""
        return server.consensus(self.rho(t))


@dataclass(frozen=True, eq=False)
class OutputPerturbation(PrimalFirst):
    """A linearised step on the agent's mean loss, with Gaussian noise on its result, as published."""

    problem: Problem
    rho: Schedule
    mechanism: GaussianClassic
    constants: Callable[[Any], OutpConstants]  # of I_p

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Update the dual with w, take the step, and add noise to z."""
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
        """Return 1/eta = c3 + 4 c1 sqrt(JK t ln(1.25/delta)) / (I_p epsilon c_w), c_w = sqrt(4 JK), inverted.

        [R] for an agent of I_p records; [P, R] for several agents, whose I_p are [P, 1]. JK cancels.
        """
        c1, c3 = self.constants(records)
        growth = 2.0 * c1 * math.sqrt(t * math.log(1.25 / self.mechanism.delta)) / records
        eta: Array = 1.0 / (c3 + growth / self.mechanism.epsilon)
        return eta

    def sensitivity(self, records: Any, rho: Array, eta: Array) -> Array:
        """Return 2 c1 / (I_p (rho + 1/eta)) for one replaced record; [R], or [P, R] as for eta."""
        sensitivity: Array = 2.0 * self.constants(records).c1 / (records * (rho + 1.0 / eta))
        return sensitivity


@dataclass(frozen=True, eq=False)
class CertifiedOutput(PrimalFirst):
    """The same step on f_p with clipped gradients, and noise scaled to the sensitivity of z, from a public z."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    clipping: Clipping
    noise: OutputNoise
    sensitivity: float  # Delta, of f'_p

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Update the dual with w, take the step, and add noise to z."""
        lam = dual_step(agent.lam, self.rho(t - 1), w, agent.z)
        rho, eta = self.rho(t), self.eta(t)
        g = self.problem.gradient(agent.z, shard, self.clipping).value
        z = linearised_step(self.problem.feasible, rho, eta, w, lam, agent.z, g)
        delta = step_sensitivity(self.sensitivity, to_numpy(rho), to_numpy(eta))[:, 0]
        xi, event = self.noise.draw(0, delta, z, noise)
        size = self.noise.magnitude(delta, z[:, 0].size)
        return Step(Agent(z + xi, lam), Upload(z + xi), (event,), size, eta)


def step_sensitivity(sensitivity: float, rho: Any, eta: Any) -> Any:
    """Return Delta / (rho + 1/eta), the L2 sensitivity of a linearised step whose gradient has the sensitivity Delta.

    >>> step_sensitivity(1.0, 2.0, 0.5)
    0.25
    """
    return sensitivity / (rho + 1.0 / eta)


def _upload_sensitivity(public: PublicParameters, t: int) -> float:
    return float(step_sensitivity(public.sensitivity.l2, public.rho(t), public.eta(t)))


NOISE_LEVELS = ("published", "published-formula", "calibrated")


def _build(config: AlgorithmConfig) -> OutputPerturbation | CertifiedOutput:
    if not isinstance(config.release, PaperGradient):
        return CertifiedOutput.from_config(config)
    level, loss, bound = config.outp_noise, config.problem.loss, config.record_bound
    if level not in NOISE_LEVELS:
        raise unknown_name("outp-noise", level, NOISE_LEVELS)
    if level == "calibrated" and not math.isfinite(loss.residual_bound * loss.curvature):
        raise InputError("outp-noise calibrated needs a loss with bounded gradient and curvature: softmax")
    mechanism = GaussianClassic(config.epsilon, config.delta, squared=level == "published")

    def published(records: Any) -> OutpConstants:
        return OutpConstants(c1=records, c3=records / 4.0)

    def calibrated(records: Any) -> OutpConstants:
        return OutpConstants(c1=loss.residual_bound * bound, c3=loss.curvature * bound**2)

    constants = calibrated if level == "calibrated" else published
    return OutputPerturbation(config.problem, config.rho, mechanism, constants)


OUTP = AlgorithmSpec(
    "the paper's baseline: noise on what is sent (output perturbation, Huang et al.)",
    "z⁺ = Proj_W((ρw + λ − f'(z) + z/η) / (ρ + 1/η)) + ξ,  ξ ~ N(0, σ²),  σ ∝ 1/(ρ + 1/η)",
    _build,
    modes=("certified", "paper"),
    guarantee="approximate, in total; pure as well with --mechanism laplace; nominal per round in mode paper",
    reference="Huang et al., IEEE TIFS 2020, Algorithm 3; mode paper as its code runs it",
    privacy_cost=per_upload_cost(_upload_sensitivity),
    noise_on="uploads",
    hardened=False,
)
ALGORITHMS.register("outp")(OUTP)
