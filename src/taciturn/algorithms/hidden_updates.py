"""DP-IADMM that sends only its last local iterate, so that E updates cost little more than one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from taciturn.algorithms.base import ALGORITHMS, AdmmServer, Agent, AlgorithmConfig, AlgorithmSpec, Step, Upload
from taciturn.algorithms.noisy_gradient import CertifiedGradient
from taciturn.algorithms.privacy_costs import PublicParameters
from taciturn.algorithms.schedules import HiddenSteps, Schedule
from taciturn.algorithms.steps import dual_step, linearised_step
from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.objectives import Problem, not_smooth
from taciturn.objectives.clipping import RecordScaling
from taciturn.privacy.events import BatchEvent, Event, Hidden, Noise
from taciturn.privacy.noise import NoiseSource
from taciturn.privacy.sensitivity import contraction
from taciturn.types import Array, Shard


def largest_eta(name: str, problem: Problem, bound: float, records_max: int) -> float:
    """Return 2 / L, up to which every step of a convex L-smooth f_p contracts.

    Parameters
    ----------
    name : str
        The method, for the error message.
    problem : Problem
        The learning problem.
    bound : float
        The record bound.
    records_max : int
        The most records of one agent.

    Raises
    ------
    InputError
        If the problem has no L or no bound on its residuals.
    """
    if not (problem.is_smooth and problem.is_bounded):
        raise not_smooth(name)
    return 2.0 / problem.public_smoothness(bound, records_max)


def check_eta(name: str, eta: float, largest: float) -> None:
    """Raise InputError if a step might not contract."""
    if eta > largest:
        raise InputError(
            f"{name} needs eta L <= 2 for its updates to contract: eta is {eta:g}, and with L from the public bounds "
            f"(records-max, record-bound) it must be at most {largest:g}"
        )


@dataclass(frozen=True, eq=False)
class LastIterate(AdmmServer):
    """E noisy contractions of z. The last iterate is sent and kept, so that nothing hidden survives a round.

    docs/explanation/hidden-state.md proves the cost of a round.
    """

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: CertifiedGradient
    local_updates: int  # E
    closing = True

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Compute z^{t,e+1} from z^{t,e} for e = 1..E; z^{t+1} = z^{t,E+1}."""
        rho, eta, z = self.rho(t), self.eta(t), agent.z
        for e in range(self.local_updates):
            noisy = self.release(e, self.problem, z, shard, noise).gradient
            z = linearised_step(self.problem.feasible, rho, eta, w, agent.lam, z, noisy)
        lam = dual_step(agent.lam, rho, w, z)
        size = self.release.mechanism.magnitude
        return Step(Agent(z, lam), Upload(z), (self.event(rho, eta),), size, eta)

    def event(self, rho: Array, eta: Array) -> BatchEvent:
        """Return one event for the E updates of a round, of every run."""
        rates = [contraction(float(r), float(e)) for r, e in zip(to_numpy(rho)[:, 0], to_numpy(eta)[:, 0], strict=True)]
        pairs = zip(self.release.mechanism.events, rates, strict=True)
        return BatchEvent(
            tuple(Hidden(e.scale, e.l2, self.local_updates, c) if isinstance(e, Noise) else e for e, c in pairs)
        )


def per_hidden_round_cost(public: PublicParameters, multiplier: float, rounds: int) -> Counter[Event]:
    """Return one event for each round of hidden updates."""
    l2 = public.sensitivity.l2
    rates = (contraction(public.rho(t), public.eta(t)) for t in range(1, rounds + 1))
    return Counter(Hidden(multiplier * l2, l2, public.updates, c) for c in rates)


def _build(config: AlgorithmConfig) -> LastIterate:
    release = config.release
    if not isinstance(release, CertifiedGradient) or not isinstance(release.clipping, RecordScaling):
        raise InputError("hidden needs --mode certified with seeded Gaussian noise and scaled records")
    if release.mechanism.kind != "gaussian":
        raise InputError(f"hidden needs mechanism gaussian; its proof does not cover {release.mechanism.kind} noise")
    return LastIterate.from_config(config)


HIDDEN = AlgorithmSpec(
    "several noisy local updates a round; only the last iterate is sent, and it costs little more than one update",
    "z⁺ = Proj_W((ρw + λ − f'(z) − ξ + z/η) / (ρ + 1/η)),  E times; the last is sent,  ξ ~ N(0, σ²),  ηL ≤ 2",
    _build,
    local_updates=10,
    modes=("certified",),
    guarantee="approximate, in total; a round is charged as the page 'Hidden local updates' proves",
    reference="Taciturn's own, after Bok, Su and Altschuler, ICML 2024",
    privacy_cost=per_hidden_round_cost,
    noise_on="hidden",
    scales_records=True,
    requires_contraction=True,
    step_kind=HiddenSteps,
    hardened=False,
    mechanisms=("gaussian",),
)
ALGORITHMS.register("hidden")(HIDDEN)
