"""FedAvg: local gradient steps from the common model, and the mean of what comes back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.algorithms.base import ALGORITHMS, Agent, Averaging, Method, Recipe, Step, Upload
from tacit.algorithms.local_training import LocalTraining
from tacit.algorithms.schedules import Schedule
from tacit.privacy.events import non_private
from tacit.privacy.noise import NoiseSource
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class FedAvg(Averaging):
    """w = (1/P) sum_p z_p, where z_p is w after E steps on f_p."""

    local: LocalTraining
    rho: Schedule
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Local training, sent as it is."""
        z, runs = self.local(t, w, shard, noise), w.shape[1]
        return Step(Agent(z, agent.lam), Upload(z), (non_private(runs),), np.zeros(runs), self.local.eta(t))


def _build(recipe: Recipe) -> FedAvg:
    r = recipe
    return FedAvg(LocalTraining(r.problem, r.eta, r.local_updates, sampling=r.sampling), r.rho, r.closing)


ALGORITHMS.register("fedavg")(
    Method(
        "federated averaging: every agent trains by itself from the common model, and the mean goes round, no noise",
        "z ← Proj_W(z − η f'(z)),  E times from z = w;  w⁺ = mean of z",
        _build,
        10,
        1.0,
        noisy=False,
        modes=("certified", "paper"),
        reference="McMahan et al., AISTATS 2017",
        pace="plain",
    )
)
