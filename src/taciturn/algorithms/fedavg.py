"""FedAvg and FedProx, without noise and with output perturbation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taciturn.algorithms.base import ALGORITHMS, Agent, AlgorithmConfig, AlgorithmSpec, AveragingServer, Step, Upload
from taciturn.algorithms.local_training import LocalTraining, moved_by_training
from taciturn.algorithms.privacy_costs import PublicParameters, per_upload_cost
from taciturn.algorithms.schedules import Schedule
from taciturn.core.arrays import to_numpy
from taciturn.privacy.events import non_private
from taciturn.privacy.mechanisms import SILENT, OutputNoise
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


@dataclass(frozen=True, eq=False)
class FedAvg(AveragingServer):
    """w = (1/P) sum_p z_p, where z_p is w after E steps on f_p."""

    local: LocalTraining
    rho: Schedule
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Local training, sent as it is."""
        z, runs = self.local(t, w, shard, noise), w.shape[1]
        return Step(Agent(z, agent.lam), Upload(z), (non_private(runs),), np.zeros(runs), self.local.eta(t))


def _build(recipe: AlgorithmConfig) -> FedAvg:
    r = recipe
    return FedAvg(LocalTraining(r.problem, r.eta, r.local_updates, sampling=r.sampling), r.rho, r.closing)


ALGORITHMS.register("fedavg")(
    AlgorithmSpec(
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


def _build_fedprox(recipe: AlgorithmConfig) -> FedAvg:
    r = recipe
    return FedAvg(LocalTraining(r.problem, r.eta, r.local_updates, r.rho, r.sampling), r.rho, r.closing)


ALGORITHMS.register("fedprox")(
    AlgorithmSpec(
        "federated averaging with a pull towards the common model in every agent's objective, no noise",
        "z ← Proj_W((ρw − f'(z) + z/η) / (ρ + 1/η)),  E times from z = w;  w⁺ = mean of z",
        _build_fedprox,
        10,
        1.0,
        noisy=False,
        modes=("certified", "paper"),
        reference="Li et al., MLSys 2020",
        pace="plain",
    )
)


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


def build(recipe: AlgorithmConfig, pull: bool) -> DpFedAvg:
    """With or without a pull towards w."""
    r = recipe
    local = LocalTraining(r.problem, r.eta, r.local_updates, r.rho if pull else None, limit=r.limit)
    return DpFedAvg(local, r.rho, r.closing, r.noise, r.moved)


def _moved(public: PublicParameters, t: int) -> float:
    return float(moved_by_training(public.moved.l2, public.eta(t), public.updates))


ALGORITHMS.register("dp-fedavg")(
    AlgorithmSpec(
        "fedavg with noise on what every agent sends (output perturbation)",
        "z ← Proj_W(z − η f'(z)),  E times from z = w;  z + ξ is sent,  ξ ~ N(0, σ²),  σ ∝ E η,  ηL ≤ 2",
        lambda recipe: build(recipe, pull=False),
        10,
        modes=("certified",),
        guarantee="approximate, in total; pure as well with --mechanism laplace",
        reference="Naseri et al. 2020 (arXiv 2009.03561); sensitivity as in Wu et al., SIGMOD 2017",
        charge=per_upload_cost(_moved),
        noise_on="uploads",
        bounded=True,
        contracts=True,
        hardened=False,
    )
)


def _moved_dp_fedprox(public: PublicParameters, t: int) -> float:
    return float(moved_by_training(public.moved.l2, public.eta(t), public.updates, public.rho(t)))


ALGORITHMS.register("dp-fedprox")(
    AlgorithmSpec(
        "fedprox with noise on what every agent sends (output perturbation)",
        "z ← Proj_W((ρw − f'(z) + z/η) / (ρ + 1/η)),  E times from z = w;  z + ξ is sent,  ξ ~ N(0, σ²),  ηL ≤ 2",
        lambda recipe: build(recipe, pull=True),
        10,
        modes=("certified",),
        guarantee="approximate, in total; pure as well with --mechanism laplace",
        reference="Wei et al., IEEE TIFS 2020; sensitivity as in Wu et al., SIGMOD 2017",
        charge=per_upload_cost(_moved_dp_fedprox),
        noise_on="uploads",
        bounded=True,
        contracts=True,
        hardened=False,
    )
)
