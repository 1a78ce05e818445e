"""From a total budget to the noise that keeps it: limits, sensitivity, multiplier, every run's plan."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.algorithms.hidden_updates import check_eta, largest_eta
from taciturn.algorithms.noisy_gradient import CertifiedGradient, HardenedGradient, NoisyGradient
from taciturn.algorithms.privacy_costs import BY_LENGTH, PublicParameters, RunTotal, gradient_event
from taciturn.algorithms.schedules import Schedule
from taciturn.data import Facts
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.objectives.clipping import MOST_SINGLE, Clipping, GradientClipping, RecordScaling, rounding_slack
from taciturn.planning.step_sizes import StepSizes
from taciturn.planning.study import Batch, local_updates, sampling_rate
from taciturn.privacy.accountants import EpsilonBound, tightest
from taciturn.privacy.calibration import affordable_rounds, calibrate
from taciturn.privacy.composition import StudyCost, cost_of
from taciturn.privacy.events import NON_PRIVATE, Discrete, Event, exposure
from taciturn.privacy.mechanisms import Calibrated, OutputNoise
from taciturn.privacy.sensitivity import ADJACENCIES, sensitivity
from taciturn.privacy.trust import noise_share
from taciturn.runs.records import EventCount, PlanEntry, RunLabel
from taciturn.settings import Settings
from taciturn.types import GRID

MOST_SINGLE_ROUNDS = 100_000  # of methods whose rounds are planned one by one
ONE_BY_ONE = ("hidden", "uploads", "objectives")


@dataclass(frozen=True, eq=False)
class RunPlan:
    """What one run means to spend at every agent."""

    total_epsilon: float
    delta: float
    multiplier: float  # noise over sensitivity; 0 without noise
    event: Event  # of the first noise draw
    events: Counter[Event]  # of the whole run
    rounds: int  # that the budget allows, at most those asked for
    bound: EpsilonBound  # of all events

    @property
    def cost(self) -> StudyCost:
        """What it costs a ledger over studies."""
        return cost_of(self.events)

    def covers(self, event: Event) -> bool:
        """Whether some planned event is of the same kind and has no more noise; totals are checked at the end."""
        return event in self.events or exposure(event) <= self._exposures.get(event.mechanism, 0.0) * (1.0 + 1e-9)

    @cached_property
    def _exposures(self) -> dict[str, float]:
        """By mechanism, the most that a planned event exposes."""
        found: dict[str, float] = {}
        for event in self.events:
            found[event.mechanism] = max(found.get(event.mechanism, 0.0), exposure(event))
        return found

    def entry(self, label: RunLabel) -> PlanEntry:
        """Return the plan's line in the ledger, for the run with this label."""
        return PlanEntry(
            run=label.run,
            algorithm=label.algorithm,
            epsilon=label.epsilon,
            seed=label.seed,
            total_epsilon=self.total_epsilon,
            delta=self.delta,
            planned_epsilon=self.bound.epsilon,
            accountant=self.bound.accountant,
            rounds=self.rounds,
            events=tuple(EventCount(event=event, count=count) for event, count in self.events.items()),
        )


@dataclass(frozen=True, eq=False)
class NoisePlan:
    """What keeps the promise of a batch, and the plan of each of its runs."""

    release: NoisyGradient
    limit: Clipping
    noise: OutputNoise
    public: PublicParameters  # of the first run
    plans: tuple[RunPlan, ...]  # [R]

    @property
    def cover(self) -> dict[str, Any]:
        """What a method's recipe takes from it, beside the release."""
        public = self.public
        own = {"moved": public.moved.l2, "trace": public.trace, "rank": public.rank}
        return {"limit": self.limit, "noise": self.noise, **own}

    @property
    def rounds(self) -> int:
        """The rounds that every run of the batch can afford."""
        return min(plan.rounds for plan in self.plans)


def calibrate_noise(settings: Settings, facts: Facts, problem: Problem, batch: Batch, pace: StepSizes) -> NoisePlan:
    """Everything from public facts: this runs before any record is read."""
    method = ALGORITHMS[batch.algorithm]
    check_method(settings, facts, problem, batch.algorithm)
    check_steps(settings, facts, problem, batch.algorithm, pace.eta)
    limit = _limit(settings, facts, method, batch)
    publics = [_public(settings, facts, problem, batch, pace, limit, r) for r in range(batch.size)]
    plans = _plans(settings, method, batch, publics)
    share = noise_share(settings.trust, facts.agents, settings.colluders)
    release = _release(settings, facts, problem, limit, plans, publics[0], share)
    noise = OutputNoise(BY_LENGTH[settings.mechanism], np.array([plan.multiplier for plan in plans]), share)
    return NoisePlan(release, limit, noise, publics[0], plans)


def gradient_bound(settings: Settings, problem: Problem, method: AlgorithmSpec) -> float:
    """How long the gradient of one record can be, in L2."""
    return problem.loss.residual_bound * float(settings.record_bound) if method.bounded else float(settings.clip)


def hessian_trace(settings: Settings, facts: Facts, problem: Problem) -> float:
    """How far one unit moves the trace of the Hessian of an agent's objective: its records' ||x||^2 trace(l'') / I."""
    return facts.max_records * problem.loss.trace * float(settings.record_bound) ** 2 / facts.total_records


def _public(
    settings: Settings, facts: Facts, problem: Problem, batch: Batch, pace: StepSizes, limit: Clipping, run: int
) -> PublicParameters:
    method = ALGORITHMS[batch.algorithm]
    clip_l1 = math.inf if method.bounded else float(settings.clip_l1)
    clip_l2 = gradient_bound(settings, problem, method)
    return PublicParameters(
        f"discrete-{settings.mechanism}" if settings.noise == "hardened" else settings.mechanism,
        sensitivity(clip_l1, clip_l2, facts.total_records, settings.adjacency, facts.max_records),
        local_updates(settings, batch.algorithm),
        partial(_at, pace.rho, run),
        partial(_at, pace.eta, run),
        problem.strong_convexity,
        hessian_trace(settings, facts, problem),
        facts.outputs * facts.max_records * int(ADJACENCIES[settings.adjacency]),
        sampling_rate(settings, batch.algorithm),
        settings.tolerance,
        _whole(settings, facts, limit),
    )


def _whole(settings: Settings, facts: Facts, limit: Clipping) -> RunTotal | None:
    """What decides the integers of hardened noise."""
    if settings.noise != "hardened" or not isinstance(limit, GradientClipping):
        return None
    touched = facts.features * facts.outputs * int(ADJACENCIES[settings.adjacency])
    return RunTotal(facts.total_records, facts.largest, float(limit.l2.max()), touched)


def _at(schedule: Schedule, run: int, t: int) -> float:
    return float(schedule(t)[run, 0])


def _plans(
    settings: Settings, method: AlgorithmSpec, batch: Batch, publics: list[PublicParameters]
) -> tuple[RunPlan, ...]:
    """The plan of every run; the runs of a batch share their integers, and those of the most noise serve all."""
    by_budget = {  # seeds of one budget share its plan, and its rho and eta
        epsilon: _plan(settings, method, epsilon, public)
        for epsilon, public in zip(batch.budgets, publics, strict=True)
    }
    plans = tuple(by_budget[epsilon] for epsilon in batch.budgets)
    whole = publics[0].whole
    found = {whole.bits(plan.event.scale) for plan in plans if whole and isinstance(plan.event, Discrete)}
    if whole is None or len(found) < 2:
        return plans
    coarser = whole._replace(most_bits=min(found))
    return _plans(settings, method, batch, [public._replace(whole=coarser) for public in publics])


def _plan(settings: Settings, method: AlgorithmSpec, epsilon: float, public: PublicParameters) -> RunPlan:
    rounds = method.rounds or int(settings.rounds)
    if math.isinf(epsilon):
        draws = sum(method.charge(public, 1.0, 1).values())
        planned: Counter[Event] = Counter({NON_PRIVATE: rounds * draws})
        return RunPlan(epsilon, settings.delta, 0.0, NON_PRIVATE, planned, rounds, tightest(planned, settings.delta))
    if settings.noise_multiplier == "auto":
        multiplier = calibrate(lambda m: method.charge(public, m, rounds), epsilon, settings.delta)
        affordable = rounds
    else:
        multiplier = float(settings.noise_multiplier)
        affordable = affordable_rounds(partial(method.charge, public, multiplier), epsilon, settings.delta, rounds)
        if affordable == 0:
            cost = tightest(method.charge(public, multiplier, 1), settings.delta).epsilon
            raise InputError(
                f"the budget is exhausted before the first round: with noise-multiplier {settings.noise_multiplier:g} "
                f"one round costs epsilon {cost:.4g}, and total-epsilon is {epsilon:g}"
            )
    planned = method.charge(public, multiplier, affordable)
    first = next(iter(planned))
    return RunPlan(epsilon, settings.delta, multiplier, first, planned, affordable, tightest(planned, settings.delta))


def _limit(settings: Settings, facts: Facts, method: AlgorithmSpec, batch: Batch) -> Clipping:
    slack = rounding_slack(facts.features, facts.outputs, batch.precision)
    if method.bounded:
        return RecordScaling(float(settings.record_bound) * slack)
    bounds = [np.full(batch.size, float(clip) * slack, batch.precision) for clip in (settings.clip, settings.clip_l1)]
    return GradientClipping(*bounds)


def _release(
    settings: Settings,
    facts: Facts,
    problem: Problem,
    limit: Clipping,
    plans: tuple[RunPlan, ...],
    public: PublicParameters,
    share: float,
) -> NoisyGradient:
    events = tuple(_event(plan, public) for plan in plans)
    mechanism = Calibrated(settings.mechanism, events, share)
    if settings.noise != "hardened":
        return CertifiedGradient(limit, mechanism)
    if not isinstance(limit, GradientClipping):
        raise TypeError("hardened noise is for clipped gradients")
    release = HardenedGradient(limit, mechanism, facts.largest)
    unit = problem.records * GRID * 2.0 ** release.bits(problem)  # what does not fit its integers is refused now
    if any(isinstance(event, Discrete) and event.sigma != event.scale * unit for event in events):
        raise RuntimeError("the plan and the release count in different whole numbers")
    return release


def _event(plan: RunPlan, public: PublicParameters) -> Event:
    """The event of a gradient in one run."""
    if plan.multiplier == 0.0:
        return NON_PRIVATE
    return plan.event if isinstance(plan.event, Discrete) else gradient_event(public, plan.multiplier)


def check_method(settings: Settings, facts: Facts, problem: Problem, name: str) -> None:
    """Refuse what a method's guarantee does not cover."""
    method = ALGORITHMS[name]
    if method.noisy and settings.mechanism not in method.mechanisms:
        known, given = ", ".join(method.mechanisms), settings.mechanism
        raise InputError(f"{name} needs mechanism {known}: what it promises is not proven for {given} noise")
    if method.noise_on == "samples" and (settings.adjacency != "add-remove" or facts.max_records > 1):
        raise InputError(
            f"{name} needs adjacency add-remove and one record a unit: what random samples hide is proven for that"
        )
    rate, rounds = sampling_rate(settings, name), int(settings.rounds)
    if method.noise_on == "samples" and rate * rounds <= settings.delta:
        raise InputError(
            f"sampling-rate is {rate:g}, so rare that delta {settings.delta:g} lets every sample be shown as it is: it "
            f"must be above delta / rounds, {settings.delta / rounds:g}"
        )
    if method.noise_on in ONE_BY_ONE and rounds > MOST_SINGLE_ROUNDS:
        raise InputError(f"rounds is {rounds}: {name} plans at most {MOST_SINGLE_ROUNDS:,}, one by one")
    rounded = method.noise_on in ("uploads", "objectives") and settings.precision != "float64"
    if rounded and min(settings.total_epsilon) < math.inf:
        raise InputError(f"{name} needs precision float64: a record may move what it sends by less than others round")
    if settings.precision == "float32" and settings.noise != "hardened" and facts.largest > MOST_SINGLE:
        raise InputError(
            f"records-max is {facts.largest:,}, but with precision float32 and noise seeded a sum of more than "
            f"{MOST_SINGLE:,} records may be off by more than one of them counts: use noise hardened, whose sums are "
            "exact, or deal the records to more agents"
        )
    smooth = method.noise_on != "objectives" or math.isfinite(problem.loss.trace)
    if method.bounded and not (smooth and math.isfinite(problem.loss.residual_bound)):
        raise InputError(f"{name} needs a smooth loss with bounded gradient, and a smooth regulariser: softmax with l2")


def check_steps(settings: Settings, facts: Facts, problem: Problem, name: str, eta: Schedule) -> None:
    """Refuse steps that a method's guarantee does not cover."""
    if not ALGORITHMS[name].contracts:
        return
    used = max(float(eta(t).max()) for t in range(1, int(settings.rounds) + 1))
    check_eta(name, used, largest_eta(name, problem, float(settings.record_bound), facts.largest))
