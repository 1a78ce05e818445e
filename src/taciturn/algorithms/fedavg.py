"""FedAvg and FedProx: local training between two rounds without a dual, without noise and with output perturbation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from taciturn.algorithms.base import ALGORITHMS, Agent, AlgorithmConfig, AlgorithmSpec, AveragingServer, Step, Upload
from taciturn.algorithms.privacy_costs import PublicParameters, per_upload_cost
from taciturn.algorithms.schedules import NoiseFreeStep, Schedule
from taciturn.algorithms.steps import linearised_step
from taciturn.core.arrays import namespace, to_numpy
from taciturn.objectives import Problem
from taciturn.objectives.clipping import NO_CLIPPING, Clipping
from taciturn.objectives.problem import sampled_gradient
from taciturn.privacy.events import non_private
from taciturn.privacy.mechanisms import NO_NOISE, OutputNoise
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """z <- Proj_W(z - eta f'_p(z)), E times from z = w; with a pull, (rho/2) ||z - w||^2 is added to f_p.

    The weight I_p / I of an agent is part of f_p (eq. def_fn_f), so agents need not reveal how many records they have.

    Parameters
    ----------
    problem : Problem
        The learning problem.
    eta : Schedule
        The proximity.
    updates : int
        E.
    pull : Schedule, optional
        rho of the proximal term.
    sampling : float, default 1
        q: below 1, every step uses a Poisson sample of the records.
    clipping : Clipping
        The bound on what one record can contribute.
    """

    problem: Problem
    eta: Schedule
    updates: int
    pull: Schedule | None = None
    sampling: float = 1.0
    clipping: Clipping = NO_CLIPPING

    def __call__(self, t: int, w: Array, shard: Shard, noise: NoiseSource) -> Array:
        """Return the agent's model after its steps, [J, R, K]."""
        feasible, eta, z = self.problem.feasible, self.eta(t), w
        for e in range(self.updates):
            g = self._gradient(e, z, shard, noise)
            if self.pull is None:
                z = feasible.project(z - eta * g)
            else:
                z = linearised_step(feasible, self.pull(t), eta, w, namespace(w).zeros_like(w), z, g)
        return z

    def _gradient(self, e: int, z: Array, shard: Shard, noise: NoiseSource) -> Array:
        if self.sampling == 1.0:
            return self.problem.gradient(z, shard, self.clipping).value
        sample = noise.poisson_sample(e, self.sampling, len(shard.x), z)
        return sampled_gradient(self.problem, z, shard, sample, self.sampling)


def training_sensitivity(sensitivity: float, eta: ArrayLike, updates: int, pull: ArrayLike | None = None) -> Array:
    """Return the L2 sensitivity of E local steps, each of whose gradients has the sensitivity Delta.

    A step with eta L <= 2 does not increase the distance of two iterates, and one unit adds at most eta Delta to it:
    E eta Delta in total (Hardt, Recht and Singer 2016; Wu et al. 2017). With a pull rho a step shrinks the distance by
    c = 1 / (1 + rho eta), and the sum is geometric: (Delta / rho) (1 - c^E). It is computed without cancellation: a
    weak pull must not round the sensitivity, and with it the noise, to 0.

    Parameters
    ----------
    sensitivity : float
        Delta.
    eta : array_like, [R]
        The proximity.
    updates : int
        E.
    pull : array_like, [R], optional
        rho.

    Returns
    -------
    Array, [R]

    Examples
    --------
    >>> float(training_sensitivity(0.5, 0.1, 10)), round(float(training_sensitivity(0.5, 0.1, 10, 2.0)), 4)
    (0.5, 0.2096)
    """
    steps = np.asarray(eta, np.float64)
    if pull is None:
        return sensitivity * updates * steps
    rho = np.asarray(pull, np.float64)
    total: Array = -sensitivity * np.expm1(-updates * np.log1p(rho * steps)) / rho
    return total


@dataclass(frozen=True, eq=False)
class FedAvg(AveragingServer):
    """w = (1/P) sum_p z_p, where z_p is w after E steps on f_p."""

    local: LocalTraining
    rho: Schedule
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Train locally, and send the result."""
        z, runs = self.local(t, w, shard, noise), w.shape[1]
        return Step(Agent(z, agent.lam), Upload(z), (non_private(runs),), np.zeros(runs), self.local.eta(t))


def _fedavg(c: AlgorithmConfig) -> FedAvg:
    return FedAvg.from_config(c, local=LocalTraining(c.problem, c.eta, c.local_updates, None, c.sampling))


def _fedprox(c: AlgorithmConfig) -> FedAvg:
    return FedAvg.from_config(c, local=LocalTraining(c.problem, c.eta, c.local_updates, c.rho, c.sampling))


FEDAVG = AlgorithmSpec(
    "federated averaging: every agent trains locally from the common model; the server broadcasts the mean; no noise",
    "z ← Proj_W(z − η f'(z)),  E times from z = w;  w⁺ = mean of z",
    _fedavg,
    local_updates=10,
    sampling=1.0,
    noisy=False,
    modes=("certified", "paper"),
    reference="McMahan et al., AISTATS 2017",
    step_kind=NoiseFreeStep,
)
FEDPROX = replace(
    FEDAVG,
    summary="federated averaging with a proximal term towards the common model in every agent's objective; no noise",
    equation="z ← Proj_W((ρw − f'(z) + z/η) / (ρ + 1/η)),  E times from z = w;  w⁺ = mean of z",
    build=_fedprox,
    reference="Li et al., MLSys 2020",
)
ALGORITHMS.register("fedavg")(FEDAVG)
ALGORITHMS.register("fedprox")(FEDPROX)


@dataclass(frozen=True, eq=False)
class DpFedAvg(FedAvg):
    """z_p + xi, with xi scaled to the sensitivity of E contracting steps from the public w; records are scaled.

    The published method (Wei et al. 2020) scales its noise to 2C/I_p, with C a clip of the weights, as if local
    training were a mean over records; docs/explanation/algorithms.md has an example where that is far too little.
    """

    noise: OutputNoise = NO_NOISE
    sensitivity: float = math.inf  # Delta, of f'_p

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Train locally, and add noise."""
        z, eta, pull = self.local(t, w, shard, noise), self.local.eta(t), self.local.pull
        rho = None if pull is None else to_numpy(pull(t))[:, 0]
        delta = training_sensitivity(self.sensitivity, to_numpy(eta)[:, 0], self.local.updates, rho)
        xi, event = self.noise.draw(0, delta, z, noise)
        z = z + xi
        return Step(Agent(z, agent.lam), Upload(z), (event,), self.noise.magnitude(delta, z[:, 0].size), eta)


def _dp_fedavg(c: AlgorithmConfig) -> DpFedAvg:
    return DpFedAvg.from_config(c, local=LocalTraining(c.problem, c.eta, c.local_updates, clipping=c.clipping))


def _dp_fedprox(c: AlgorithmConfig) -> DpFedAvg:
    return DpFedAvg.from_config(c, local=LocalTraining(c.problem, c.eta, c.local_updates, c.rho, clipping=c.clipping))


def _fedavg_sensitivity(public: PublicParameters, t: int) -> float:
    return float(training_sensitivity(public.sensitivity.l2, public.eta(t), public.updates))


def _fedprox_sensitivity(public: PublicParameters, t: int) -> float:
    return float(training_sensitivity(public.sensitivity.l2, public.eta(t), public.updates, public.rho(t)))


DP_FEDAVG = AlgorithmSpec(
    "fedavg with noise on what every agent sends (output perturbation)",
    "z ← Proj_W(z − η f'(z)),  E times from z = w;  z + ξ is sent,  ξ ~ N(0, σ²),  σ ∝ E η,  ηL ≤ 2",
    _dp_fedavg,
    local_updates=10,
    modes=("certified",),
    reference="Naseri et al. 2020 (arXiv 2009.03561); sensitivity as in Wu et al., SIGMOD 2017",
    privacy_cost=per_upload_cost(_fedavg_sensitivity),
    noise_on="uploads",
    scales_records=True,
    requires_contraction=True,
    hardened=False,
)
DP_FEDPROX = replace(
    DP_FEDAVG,
    summary="fedprox with noise on what every agent sends (output perturbation)",
    equation="z ← Proj_W((ρw − f'(z) + z/η) / (ρ + 1/η)),  E times from z = w;  z + ξ is sent,  ξ ~ N(0, σ²),  ηL ≤ 2",
    build=_dp_fedprox,
    reference="Wei et al., IEEE TIFS 2020; sensitivity as in Wu et al., SIGMOD 2017",
    privacy_cost=per_upload_cost(_fedprox_sensitivity),
)
ALGORITHMS.register("dp-fedavg")(DP_FEDAVG)
ALGORITHMS.register("dp-fedprox")(DP_FEDPROX)
