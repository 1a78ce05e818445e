"""DP-IADMM with multiple local updates (Algorithm 1): the paper's ObjP (E = 1) and ObjPM (E = 10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.algorithms.base import ALGORITHMS, Agent, Consensus, Method, Recipe, Step, Upload
from tacit.algorithms.releases import Release
from tacit.algorithms.schedules import Schedule
from tacit.algorithms.steps import dual_step, linearised_step
from tacit.arrays import namespace
from tacit.privacy.events import BatchEvent
from tacit.privacy.noise import NoiseSource
from tacit.problems import Problem
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class DpIadmm(Consensus):
    """Inexact ADMM with E noisy local updates, of which the average is sent."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: Release
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


def _build(recipe: Recipe) -> DpIadmm:
    r = recipe
    return DpIadmm(r.problem, r.rho, r.eta, r.release, r.local_updates, r.closing)


_EQUATION = "z⁺ = Proj_W((ρw + λ − f'(z) − ξ + z/η) / (ρ + 1/η)),  E times; their mean is sent"
_MODES = ("certified", "paper")
_PAPER = "Ryu and Kim, the paper, Algorithm 1"

ALGORITHMS.register("objp")(
    Method(
        "the paper's method with one noisy local update a round (DP-IADMM, Algorithm 1, E = 1)",
        _EQUATION,
        _build,
        1,
        modes=_MODES,
        reference=_PAPER,
    )
)
ALGORITHMS.register("objpm")(
    Method(
        "the paper's method with several noisy local updates a round (DP-IADMM, Algorithm 1, E = 10)",
        _EQUATION,
        _build,
        10,
        modes=_MODES,
        reference=_PAPER,
    )
)
