"""Noisy gradient descent, on all records or on random samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from taciturn.algorithms.base import ALGORITHMS, Agent, AlgorithmConfig, AlgorithmSpec, AveragingServer, Step, Upload
from taciturn.algorithms.noisy_gradient import NoisyGradient
from taciturn.algorithms.privacy_costs import PublicParameters
from taciturn.algorithms.schedules import Schedule
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
class DpGd(AveragingServer):
    """w⁺ = w - (eta/P) sum_p (f'_p(w) + xi_p): nothing that an agent keeps enters its next step."""

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: NoisyGradient
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """z = Proj_W(w - eta (g + xi))."""
        eta = self.eta(t)
        noisy, event, size = self.release(0, self.problem, w, shard, noise)
        z = self.problem.feasible.project(w - eta * noisy)
        return Step(Agent(z, agent.lam), Upload(z), (event,), size, eta)


def _build(recipe: AlgorithmConfig) -> DpGd:
    return DpGd(recipe.problem, recipe.rho, recipe.eta, recipe.release, recipe.closing)


ALGORITHMS.register("dpgd")(
    AlgorithmSpec(
        "noisy gradient descent: one step from the common model at every agent, and the mean goes round",
        "z = Proj_W(w − η (f'(w) + ξ));  w⁺ = mean of z",
        _build,
        modes=("certified",),
        reference="Bassily, Smith and Thakurta, FOCS 2014, with all records in every step",
        pace="explicit",
        summed=True,
    )
)


@dataclass(frozen=True, eq=False)
class DpSgd(AveragingServer):
    """One step from w with the clipped gradients of a Poisson sample and Gaussian noise; w is the mean.

    With one agent this is the algorithm of the reference; with several, each of them runs it on its own records.
    """

    problem: Problem
    rho: Schedule
    eta: Schedule
    limit: GradientClipping
    noise: OutputNoise
    moved: float  # how far one record moves the sum over a sample, in units of 1/I
    sampling: float  # q
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """z = Proj_W(w - eta (g + xi)), g the mean of the sample's clipped gradients, scaled to all records."""
        eta, q = self.eta(t), self.sampling
        g = sampled_gradient(self.problem, w, shard, noise.chosen(0, q, len(shard.x), w), q, self._limit)
        moved = np.full(w.shape[1], self.moved)
        xi = self.noise.xi(0, moved / q, w, noise)
        z = self.problem.feasible.project(w - eta * in_precision_of(g + xi, w))
        size = self.noise.magnitude(moved / q, w[:, 0].size)
        return Step(Agent(z, agent.lam), Upload(z), (self.event(moved),), size, eta)

    def event(self, moved: Array) -> BatchEvent:
        """The sum over the sample with its noise, of every run."""
        scales = to_numpy(self.noise.scale(moved))
        return BatchEvent(
            tuple(Sampled(float(s), self.moved, self.sampling) if s > 0.0 else NON_PRIVATE for s in scales)
        )

    def _limit(self, run: int) -> GradientClipping:
        return GradientClipping(self.limit.l2[run : run + 1], self.limit.l1[run : run + 1])


def _charge(public: PublicParameters, multiplier: float, rounds: int) -> Counter[Event]:
    l2 = public.moved.l2
    return Counter({Sampled(multiplier * l2, l2, public.sampling): rounds})


def _build_dpsgd(recipe: AlgorithmConfig) -> DpSgd:
    r = recipe
    if not isinstance(r.limit, GradientClipping):
        raise InputError("dpsgd needs --mode certified: it clips the gradient of every record")
    return DpSgd(r.problem, r.rho, r.eta, r.limit, r.noise, r.moved, r.sampling, r.closing)


ALGORITHMS.register("dpsgd")(
    AlgorithmSpec(
        "DP-SGD at every agent: noisy gradients of random samples, clipped record by record",
        "z = Proj_W(w − η (g + ξ)),  g = 1/(qI) Σ clip(∇ℓ) over a sample of rate q,  ξ ~ N(0, σ²);  w⁺ = mean of z",
        _build_dpsgd,
        sampling=0.1,
        modes=("certified",),
        guarantee="approximate, in total, with the amplification of Poisson sampling",
        reference="Abadi et al., CCS 2016",
        charge=_charge,
        hardened=False,
        mechanisms=("gaussian",),
        noise_on="samples",
        pace="explicit",
        summed=True,
    )
)
