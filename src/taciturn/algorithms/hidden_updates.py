"""DP-IADMM that sends its last local iterate only, so that E updates cost little more than one."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from taciturn.algorithms.base import ALGORITHMS, AdmmServer, Agent, AlgorithmConfig, AlgorithmSpec, Step, Upload
from taciturn.algorithms.noisy_gradient import CertifiedGradient
from taciturn.algorithms.privacy_costs import PublicParameters
from taciturn.algorithms.schedules import Schedule
from taciturn.algorithms.steps import dual_step, linearised_step
from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.objectives.clipping import RecordScaling
from taciturn.privacy.events import BatchEvent, Event, Hidden, Noise
from taciturn.privacy.noise import NoiseSource
from taciturn.privacy.sensitivity import contraction
from taciturn.types import Array, Shard


def largest_eta(name: str, problem: Problem, bound: float, records_max: int) -> float:
    """2 / L, up to which every step of a convex L-smooth f_p contracts; what has no L is refused."""
    smoothness = problem.public_smoothness(bound, records_max)
    if not math.isfinite(smoothness * problem.loss.residual_bound):
        raise InputError(f"{name} needs a smooth loss with bounded gradient, and a smooth regulariser: softmax with l2")
    return 2.0 / smoothness


def check_eta(name: str, eta: float, largest: float) -> None:
    """Refuse steps that might not contract."""
    if eta > largest:
        raise InputError(
            f"{name} needs eta L <= 2 for its updates to contract: eta is {eta:g}, and with L from the public bounds "
            f"(records-max, record-bound) it can be at most {largest:g}"
        )


@dataclass(frozen=True, eq=False)
class LastIterate(AdmmServer):
    """E noisy contractions of z; the last iterate is sent and is all that is kept, so nothing hidden survives a round.

    docs/explanation/hidden-state.md proves what this is worth, where `contraction` is content.
    """

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: CertifiedGradient
    local_updates: int  # E
    closing: bool = True

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """z^{t,e+1} from z^{t,e} for e = 1..E; z^{t+1} = z^{t,E+1}."""
        rho, eta, z = self.rho(t), self.eta(t), agent.z
        for e in range(self.local_updates):
            noisy = self.release(e, self.problem, z, shard, noise).gradient
            z = linearised_step(self.problem.feasible, rho, eta, w, agent.lam, z, noisy)
        lam = dual_step(agent.lam, rho, w, z)
        size = self.release.mechanism.magnitude
        return Step(Agent(z, lam), Upload(z), (self.event(rho, eta),), size, eta)

    def event(self, rho: Array, eta: Array) -> BatchEvent:
        """One event for the round's E updates, of every run."""
        rates = [contraction(float(r), float(e)) for r, e in zip(to_numpy(rho)[:, 0], to_numpy(eta)[:, 0], strict=True)]
        drawn = zip(self.release.mechanism.events, rates, strict=True)
        return BatchEvent(
            tuple(
                Hidden(event.scale, event.l2, self.local_updates, c) if isinstance(event, Noise) else event
                for event, c in drawn
            )
        )


def hidden_rounds(public: PublicParameters, multiplier: float, rounds: int) -> Counter[Event]:
    """A round of hidden updates is one event."""
    l2 = public.moved.l2
    rates = (contraction(public.rho(t), public.eta(t)) for t in range(1, rounds + 1))
    return Counter(Hidden(multiplier * l2, l2, public.updates, c) for c in rates)


def _build(recipe: AlgorithmConfig) -> LastIterate:
    release = recipe.release
    if not isinstance(release, CertifiedGradient) or not isinstance(release.limit, RecordScaling):
        raise InputError("hidden needs --mode certified with seeded Gaussian noise and bounded records")
    if release.mechanism.kind != "gaussian":
        raise InputError(f"hidden needs mechanism gaussian: its proof does not cover {release.mechanism.kind} noise")
    return LastIterate(recipe.problem, recipe.rho, recipe.eta, release, recipe.local_updates)


ALGORITHMS.register("hidden")(
    AlgorithmSpec(
        "several noisy local updates a round of which only the last iterate is seen, at little more than one's price",
        "z⁺ = Proj_W((ρw + λ − f'(z) − ξ + z/η) / (ρ + 1/η)),  E times; the last is sent,  ξ ~ N(0, σ²),  ηL ≤ 2",
        _build,
        10,
        modes=("certified",),
        guarantee="approximate, in total; a round is charged as docs/explanation/hidden-state.md proves",
        reference="Taciturn's own, by Bok, Su and Altschuler, ICML 2024",
        charge=hidden_rounds,
        noise_on="hidden",
        bounded=True,
        contracts=True,
        pace="constant",
        hardened=False,
        mechanisms=("gaussian",),
    )
)
