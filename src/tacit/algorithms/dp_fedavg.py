"""DP-FedAvg: FedAvg with noise on what every agent sends (output perturbation)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.algorithms.base import ALGORITHMS, Agent, Method, Recipe, Step, Upload
from tacit.algorithms.charges import Public, every_upload
from tacit.algorithms.fedavg import FedAvg
from tacit.algorithms.local_training import LocalTraining, moved_by_training
from tacit.arrays import to_numpy
from tacit.privacy.mechanisms.output import SILENT, OutputNoise
from tacit.privacy.noise import NoiseSource
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class DpFedAvg(FedAvg):
    """z_p + xi, xi scaled to what one unit can do to E contracting steps from the public w; records are bounded.

    What was published (Wei et al. 2020) scales its noise to 2C/I_p, with C a clip of the weights, as if local training
    were a mean over records; docs/explanation/algorithms.md has an example where that is far too little.
    """

    noise: OutputNoise = SILENT
    moved: float = math.inf  # how far one unit moves f'_p

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Local training, then noise."""
        z, eta, pull = self.local(t, w, shard, noise), self.local.eta(t), self.local.pull
        rho = None if pull is None else to_numpy(pull(t))[:, 0]
        length = moved_by_training(self.moved, to_numpy(eta)[:, 0], self.local.updates, rho)
        xi, event = self.noise.draw(0, length, z, noise)
        sent = z + xi
        return Step(Agent(sent, agent.lam), Upload(sent), (event,), self.noise.magnitude(length, z[:, 0].size), eta)


def build(recipe: Recipe, pull: bool) -> DpFedAvg:
    """With or without a pull towards w."""
    r = recipe
    local = LocalTraining(r.problem, r.eta, r.local_updates, r.rho if pull else None, limit=r.limit)
    return DpFedAvg(local, r.rho, r.closing, r.noise, r.moved)


def _moved(public: Public, t: int) -> float:
    return float(moved_by_training(public.moved.l2, public.eta(t), public.updates))


ALGORITHMS.register("dp-fedavg")(
    Method(
        "fedavg with noise on what every agent sends (output perturbation)",
        "z ← Proj_W(z − η f'(z)),  E times from z = w;  z + ξ is sent,  ξ ~ N(0, σ²),  σ ∝ E η,  ηL ≤ 2",
        lambda recipe: build(recipe, pull=False),
        10,
        modes=("certified",),
        guarantee="approximate, in total; pure as well with --mechanism laplace",
        reference="Naseri et al. 2020 (arXiv 2009.03561); sensitivity as in Wu et al., SIGMOD 2017",
        charge=every_upload(_moved),
        noise_on="uploads",
        bounded=True,
        contracts=True,
        hardened=False,
    )
)
