"""Communication-efficient ADMM (Zhou and Li): z and the dual change several times a round, and both are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taciturn.algorithms.base import ALGORITHMS, AdmmServer, Agent, AlgorithmSpec, S, Step
from taciturn.algorithms.noisy_gradient import NoisyGradient
from taciturn.algorithms.schedules import PrimalDualSteps, Schedule
from taciturn.algorithms.server import Received
from taciturn.algorithms.steps import dual_step, linearised_step
from taciturn.objectives import Problem
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


class PrimalDual(NamedTuple):
    """Everything that leaves an agent. Both fields depend on the records only through the round's noisy gradients."""

    z: Array  # [J, R, K]
    lam: Array  # [J, R, K]


@dataclass(frozen=True, eq=False)
class CommunicationEfficientAdmm(AdmmServer):
    """Inexact ADMM with E local updates of z and lambda; the server cannot compute lambda, so it is sent."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: NoisyGradient
    local_updates: int  # E
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Repeat {eq. ADMM-2-Prox -> eq. ADMM-3} E times with the same w."""
        rho, eta, z, lam = self.rho(t), self.eta(t), agent.z, agent.lam
        events: list[BatchEvent] = []
        magnitude = np.zeros(z.shape[1])
        for e in range(self.local_updates):
            noisy, event, size = self.release(e, self.problem, z, shard, noise)
            z = linearised_step(self.problem.feasible, rho, eta, w, lam, z, noisy)
            lam = dual_step(lam, rho, w, z)
            events.append(event)
            magnitude += size / self.local_updates
        return Step(Agent(z, lam), PrimalDual(z, lam), tuple(events), magnitude, eta)

    def server_receive(self, t: int, w: Array, server: S, received: Received) -> S:
        """Store z and lambda as they were sent."""
        return server.receive(received).receive_duals(received)


ALGORITHMS.register("ceadmm")(
    AlgorithmSpec(
        "inexact ADMM with several local updates of z and of the dual a round; sends both",
        "z⁺ = Proj_W((ρw + λ − f'(z) − ξ + z/η) / (ρ + 1/η)),  λ⁺ = λ + ρ(w − z⁺),  E times; z and λ are sent",
        CommunicationEfficientAdmm.from_config,
        local_updates=5,
        modes=("certified", "paper"),
        reference="Zhou and Li 2021 (arXiv 2110.15318), with the noise of the release",
        step_kind=PrimalDualSteps,
        upload=PrimalDual,
    )
)
