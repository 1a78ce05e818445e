"""Noisy gradient descent, on all records or on random samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from taciturn.algorithms.base import (
    ALGORITHMS,
    Agent,
    AlgorithmConfig,
    AlgorithmSpec,
    AveragingServer,
    Step,
    Upload,
)
from taciturn.algorithms.gradient_at_model import GradientAtModel
from taciturn.algorithms.noisy_gradient import NoisyGradient
from taciturn.algorithms.privacy_costs import PublicParameters
from taciturn.algorithms.schedules import GradientStep, Schedule
from taciturn.core.arrays import in_precision_of, to_numpy
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.objectives.clipping import GradientClipping
from taciturn.objectives.problem import sampled_gradient
from taciturn.privacy.events import NON_PRIVATE, BatchEvent, Event, Sampled
from taciturn.privacy.mechanisms import OutputNoise
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


@dataclass(frozen=True, eq=False)
class DpGd(GradientAtModel, AveragingServer):
    """w⁺ = w - (eta/P) sum_p (f'_p(w) + xi_p): an agent's next step does not depend on its state."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: NoisyGradient
    closing: bool = False

    def local_step(self, t: int, w: Array, agent: Agent, noisy: Array) -> tuple[Agent, Upload]:
        """Compute z = Proj_W(w - eta (g + xi))."""
        z = self.problem.feasible.project(w - self.eta(t) * noisy)
        return Agent(z, agent.lam), Upload(z)


DPGD = AlgorithmSpec(
    "noisy gradient descent: every agent takes one step from the common model, and the server broadcasts the mean",
    "z = Proj_W(w − η (f'(w) + ξ));  w⁺ = mean of z",
    DpGd.from_config,
    modes=("certified",),
    reference="Bassily, Smith and Thakurta, FOCS 2014, with all records in every step",
    step_kind=GradientStep,
    allows_aggregate_noise=True,
)
ALGORITHMS.register("dpgd")(DPGD)


@dataclass(frozen=True, eq=False)
class DpSgd(AveragingServer):
    """One step from w with the clipped gradients of a Poisson sample and Gaussian noise; w is the mean.

    With one agent this is the algorithm of the reference; with several, each of them runs it on its own records.
    """

    problem: Problem
    rho: Schedule
    eta: Schedule
    clipping: GradientClipping
    noise: OutputNoise
    sensitivity: float  # of the sum over a sample, in units of 1/I, to one record
    sampling: float  # q
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Compute z = Proj_W(w - eta (g + xi)), g being the sample's clipped gradient scaled to all records."""
        eta, q = self.eta(t), self.sampling
        sample = noise.poisson_sample(0, q, len(shard.x), w)
        g = sampled_gradient(self.problem, w, shard, sample, q, self._clipping)
        delta = np.full(w.shape[1], self.sensitivity)
        xi = self.noise.xi(0, delta / q, w, noise)
        z = self.problem.feasible.project(w - eta * in_precision_of(g + xi, w))
        size = self.noise.magnitude(delta / q, w[:, 0].size)
        return Step(Agent(z, agent.lam), Upload(z), (self.event(delta),), size, eta)

    def event(self, sensitivity: Array) -> BatchEvent:
        """Return the events of the noisy sum over the sample, for sensitivities [R]."""
        scales = to_numpy(self.noise.scale(sensitivity))
        return BatchEvent(
            tuple(Sampled(float(s), self.sensitivity, self.sampling) if s > 0.0 else NON_PRIVATE for s in scales)
        )

    def _clipping(self, run: int) -> GradientClipping:
        return GradientClipping(self.clipping.l2[run : run + 1], self.clipping.l1[run : run + 1])


def _per_sample_cost(public: PublicParameters, multiplier: float, rounds: int) -> Counter[Event]:
    l2 = public.sensitivity.l2
    return Counter({Sampled(multiplier * l2, l2, public.sampling): rounds})


def _build_dpsgd(config: AlgorithmConfig) -> DpSgd:
    if not isinstance(config.clipping, GradientClipping):
        raise InputError("dpsgd needs --mode certified, because it clips the gradient of every record")
    return DpSgd.from_config(config)


DPSGD = AlgorithmSpec(
    "DP-SGD at every agent: noisy gradients of random samples, clipped record by record",
    "z = Proj_W(w − η (g + ξ)),  g = 1/(qI) Σ clip(∇ℓ) over a sample of rate q,  ξ ~ N(0, σ²);  w⁺ = mean of z",
    _build_dpsgd,
    sampling=0.1,
    modes=("certified",),
    guarantee="approximate, in total, with the amplification of Poisson sampling",
    reference="Abadi et al., CCS 2016",
    privacy_cost=_per_sample_cost,
    noise_on="samples",
    step_kind=GradientStep,
    hardened=False,
    mechanisms=("gaussian",),
    allows_aggregate_noise=True,
)
ALGORITHMS.register("dpsgd")(DPSGD)
