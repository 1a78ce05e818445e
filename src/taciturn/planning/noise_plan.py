"""From a total budget to the noise that keeps it: clipping, sensitivity, noise multiplier, and every run's plan."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.algorithms.hidden_updates import check_eta, largest_eta
from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.algorithms.noisy_gradient import (
    CertifiedGradient,
    HardenedGradient,
    NoisyGradient,
    PooledGradient,
    SummedGradient,
)
from taciturn.algorithms.privacy_costs import L2_MECHANISMS, PublicParameters, gradient_event
from taciturn.algorithms.schedules import Schedule
from taciturn.data import Facts
from taciturn.errors import InputError
from taciturn.objectives import Problem, not_smooth
from taciturn.objectives.clipping import MAX_SINGLE, Clipping, GradientClipping, RecordScaling, rounding_slack
from taciturn.planning.evaluation_plan import EvaluationPlan, measure_release, plan_evaluations
from taciturn.planning.integer_sums import check_integers, check_participation, clip_bound, integer_grid
from taciturn.planning.step_sizes import StepSizes
from taciturn.planning.study import Batch, local_updates, sampling_rate
from taciturn.privacy.accountants import EpsilonBound, tightest
from taciturn.privacy.calibration import affordable_rounds, calibrate
from taciturn.privacy.composition import ZERO_COST, StudyCost, cost_of
from taciturn.privacy.events import NON_PRIVATE, Discrete, Event, exposure
from taciturn.privacy.mechanisms import Calibrated, OutputNoise
from taciturn.privacy.sensitivity import ADJACENCIES, gradient_sensitivity
from taciturn.runs.records import EventCount, PlanEntry, RunLabel
from taciturn.settings import Settings
from taciturn.types import ColumnBlock

PLANNED_BY_ROUND = ("hidden", "uploads", "objectives")  # noise whose events may differ between rounds
MAX_PLANNED_ROUNDS = 100_000  # of such methods


@dataclass(frozen=True, eq=False)
class RunPlan:
    """What one run may spend at every agent.

    Parameters
    ----------
    total_epsilon, delta : float
        The budget.
    multiplier : float
        The noise scale over the sensitivity; 0 without noise.
    event : Event
        Of the first noise draw.
    events : Counter of Event
        Of the whole run.
    rounds : int
        The rounds that the budget allows, at most those requested.
    bound : EpsilonBound
        The total cost of all events.
    reserve : int
        Uploads beyond the rounds that `events` and `bound` cover too.
    evaluation : EvaluationPlan, optional
        What held-out records may spend besides; `events` are those of training records.
    """

    total_epsilon: float
    delta: float
    multiplier: float
    event: Event
    events: Counter[Event]
    rounds: int
    bound: EpsilonBound
    reserve: int = 0
    evaluation: EvaluationPlan | None = None

    @property
    def charges(self) -> int:
        """T + reserve: the uploads of an agent that `events` pays for."""
        return self.rounds + self.reserve

    @property
    def cost(self) -> StudyCost:
        """The cost of training records to a ledger over studies."""
        return cost_of(self.events)

    @property
    def held_out_cost(self) -> StudyCost:
        """The cost of held-out records to a ledger over studies."""
        return ZERO_COST if self.evaluation is None else self.evaluation.cost

    def covers(self, event: Event) -> bool:
        """Return whether a planned event has the same mechanism and no more noise; totals are checked at the end."""
        return event in self.events or exposure(event) <= self._exposures.get(event.mechanism, 0.0) * (1.0 + 1e-9)

    @cached_property
    def _exposures(self) -> dict[str, float]:
        """The largest exposure of a planned event, by mechanism."""
        largest: dict[str, float] = {}
        for event in self.events:
            largest[event.mechanism] = max(largest.get(event.mechanism, 0.0), exposure(event))
        return largest

    def entry(self, label: RunLabel) -> PlanEntry:
        """Return the plan's line in the ledger, for the run with this label."""
        return PlanEntry(
            **vars(label),
            total_epsilon=self.total_epsilon,
            delta=self.delta,
            planned_epsilon=self.bound.epsilon,
            accountant=self.bound.accountant,
            rounds=self.rounds,
            reserve=self.reserve or None,
            events=_counted(self.events),
            evaluations=self.evaluation.charges if self.evaluation else None,
            held_out=_counted(self.evaluation.events) if self.evaluation else None,
        )


def _counted(events: Counter[Event]) -> tuple[EventCount, ...]:
    return tuple(EventCount(event=event, count=count) for event, count in events.items())


@dataclass(frozen=True, eq=False)
class NoisePlan:
    """Noise configuration of a batch: clipping, mechanism, and the budget plan of each run.

    Parameters
    ----------
    release : NoisyGradient
        For methods that add noise to gradients.
    clipping : Clipping
        The bound on what one record can contribute.
    noise : OutputNoise
        For methods that add noise to something else.
    public : PublicParameters
        Of the first run.
    plans : tuple of RunPlan, [R]
        The plan of every run.
    blocks : tuple of ColumnBlock
        The features of each column of a table, for methods that use them.
    measure : MeasureRelease, optional
        What agents release in a private evaluation.
    """

    release: NoisyGradient
    clipping: Clipping
    noise: OutputNoise
    public: PublicParameters
    plans: tuple[RunPlan, ...]
    blocks: tuple[ColumnBlock, ...] = ()
    measure: MeasureRelease | None = None

    @property
    def clip(self) -> float:
        """The L2 bound on a record's gradient; inf where whole records are scaled."""
        return float(self.clipping.l2.min()) if isinstance(self.clipping, GradientClipping) else math.inf

    @property
    def rounds(self) -> int:
        """The rounds that every run of the batch can afford."""
        return min(plan.rounds for plan in self.plans)


def calibrate_noise(settings: Settings, facts: Facts, problem: Problem, batch: Batch, steps: StepSizes) -> NoisePlan:
    """Return the noise that keeps every run's budget, from public facts alone.

    Parameters
    ----------
    settings : Settings
        With rounds, clip and record bound filled in.
    facts : Facts
        The public facts about the data.
    problem : Problem
        The learning problem.
    batch : Batch
        The runs that share passes over the data.
    steps : StepSizes
        Penalty and proximity of every run.

    Returns
    -------
    NoisePlan

    Raises
    ------
    InputError
        If no noise keeps a budget, or if hardened noise has no integers for it.
    """
    spec = ALGORITHMS[batch.algorithm]
    clipping = _clipping(settings, facts, spec, batch)
    publics = [_public(settings, facts, problem, batch, steps, clipping, run) for run in range(batch.size)]
    plans = _plans(settings, facts, problem, batch, publics)
    share = settings.noise_share(facts.agents)
    events = tuple(_gradient_event(plan, publics[0]) for plan in plans)
    release = _release(settings, facts, problem, clipping, Calibrated(settings.mechanism, events, share), publics[0])
    noise = OutputNoise(L2_MECHANISMS[settings.mechanism], np.array([plan.multiplier for plan in plans]), share)
    measure = measure_release(settings, facts, problem, tuple(plan.evaluation for plan in plans))
    return NoisePlan(release, clipping, noise, publics[0], plans, facts.blocks, measure)


def gradient_bound(settings: Settings, problem: Problem, spec: AlgorithmSpec) -> float:
    """Return the largest L2 norm of one record's gradient."""
    return problem.loss.residual_bound * float(settings.record_bound) if spec.scales_records else float(settings.clip)


def hessian_trace(settings: Settings, facts: Facts, problem: Problem) -> float:
    """Return m ||x||^2 trace(l'') / I, the most that one unit changes the trace of an agent's Hessian."""
    return facts.max_records * problem.loss.trace * float(settings.record_bound) ** 2 / facts.total_records


def _public(
    settings: Settings, facts: Facts, problem: Problem, batch: Batch, steps: StepSizes, clipping: Clipping, run: int
) -> PublicParameters:
    spec = ALGORITHMS[batch.algorithm]
    hardened, units = settings.hardened, int(ADJACENCIES[settings.adjacency])
    clip_l1 = math.inf if spec.scales_records else float(settings.clip_l1)
    clip_l2 = gradient_bound(settings, problem, spec)
    grid = None
    if hardened and isinstance(clipping, GradientClipping):
        grid = integer_grid(settings, facts)
    return PublicParameters(
        mechanism=f"discrete-{settings.mechanism}" if hardened else settings.mechanism,
        sensitivity=gradient_sensitivity(clip_l1, clip_l2, facts.total_records, settings.adjacency, facts.max_records),
        updates=local_updates(settings, batch.algorithm),
        rho=partial(_at, steps.rho, run),
        eta=partial(_at, steps.eta, run),
        convexity=problem.strong_convexity,
        trace=hessian_trace(settings, facts, problem),
        rank=facts.outputs * facts.max_records * units,
        sampling=sampling_rate(settings, batch.algorithm),
        tolerance=settings.tolerance,
        grid=grid,
    )


def _at(schedule: Schedule, run: int, t: int) -> float:
    return float(schedule(t)[run, 0])


def _plans(
    settings: Settings, facts: Facts, problem: Problem, batch: Batch, publics: list[PublicParameters]
) -> tuple[RunPlan, ...]:
    """Plan every run; the runs of a batch share one integer grid, which is that of the most noise."""
    spec, by_budget = ALGORITHMS[batch.algorithm], {}
    for epsilon, public in dict(zip(batch.budgets, publics, strict=True)).items():  # seeds of one budget share its plan
        evaluation = plan_evaluations(settings, facts, problem, epsilon)
        by_budget[epsilon] = _plan(settings, spec, epsilon, public, evaluation)
    plans = tuple(by_budget[epsilon] for epsilon in batch.budgets)
    grid = publics[0].grid
    bits = {grid.bits(plan.event.scale) for plan in plans if grid and isinstance(plan.event, Discrete)}
    if grid is None or len(bits) < 2:
        return plans
    coarser = grid._replace(max_bits=min(bits))
    return _plans(settings, facts, problem, batch, [public._replace(grid=coarser) for public in publics])


def _plan(
    settings: Settings,
    spec: AlgorithmSpec,
    epsilon: float,
    public: PublicParameters,
    evaluation: EvaluationPlan | None,
) -> RunPlan:
    rounds = affordable = spec.rounds or int(settings.rounds)
    reserve = settings.reserve
    if math.isinf(epsilon):
        draws = sum(spec.privacy_cost(public, 1.0, 1).values())
        events: Counter[Event] = Counter({NON_PRIVATE: rounds * draws})
        bound = tightest(events, settings.delta)
        return RunPlan(epsilon, settings.delta, 0.0, NON_PRIVATE, events, rounds, bound, evaluation=evaluation)
    beside: Counter[Event] = Counter()  # what evaluations add to the cost of a unit that is replaced
    if evaluation is not None and settings.adjacency != "add-remove":
        beside = evaluation.events

    def all_events(multiplier: float, rounds: int) -> Counter[Event]:
        return spec.privacy_cost(public, multiplier, rounds) + beside

    if settings.noise_multiplier == "auto":
        multiplier = calibrate(lambda m: all_events(m, rounds + reserve), epsilon, settings.delta)
    else:
        multiplier = float(settings.noise_multiplier)
        cost_of_first = partial(all_events, multiplier)
        affordable = affordable_rounds(cost_of_first, epsilon, settings.delta, rounds + reserve) - reserve
        if affordable < 1:
            cost = tightest(cost_of_first(1 + reserve), settings.delta).epsilon
            one = f"one round with a reserve of {reserve} costs" if reserve else "one round costs"
            raise InputError(
                f"the budget is exhausted before the first round: with noise-multiplier {settings.noise_multiplier:g} "
                f"{one} epsilon {cost:.4g}, and total-epsilon is {epsilon:g}"
            )
    events = spec.privacy_cost(public, multiplier, affordable + reserve)
    bound = tightest(events + beside, settings.delta)
    if evaluation is not None:
        bound = max(bound, evaluation.bound)  # of a record that is held out
    event = next(iter(events))
    return RunPlan(epsilon, settings.delta, multiplier, event, events, affordable, bound, reserve, evaluation)


def _clipping(settings: Settings, facts: Facts, spec: AlgorithmSpec, batch: Batch) -> Clipping:
    if spec.scales_records:
        return RecordScaling(
            float(settings.record_bound) * rounding_slack(facts.features, facts.outputs, batch.precision)
        )
    bounds = [clip_bound(settings, facts, float(clip)) for clip in (settings.clip, settings.clip_l1)]
    return GradientClipping(*(np.full(batch.size, bound, batch.precision) for bound in bounds))


def _release(
    settings: Settings,
    facts: Facts,
    problem: Problem,
    clipping: Clipping,
    mechanism: Calibrated,
    public: PublicParameters,
) -> NoisyGradient:
    if not settings.hardened:
        certified = CertifiedGradient(clipping, mechanism)
        return PooledGradient(certified, facts.agents) if settings.pooled_sums else certified
    if public.grid is None or not isinstance(clipping, GradientClipping):
        raise TypeError("hardened noise is for clipped gradients")
    discrete = [event for event in mechanism.events if isinstance(event, Discrete)]
    without_noise = public.grid._replace(summed=None).bits(0.0)
    bits = min((public.grid.bits(event.scale) for event in discrete), default=without_noise)
    check_integers(integer_grid(settings, facts), bits, discrete, mechanism.share)
    release = HardenedGradient(clipping, mechanism, facts.largest, bits)
    if any(event.sigma != event.scale * release.unit(problem) for event in discrete):
        raise RuntimeError("the plan and the release use different integer grids")
    return SummedGradient(release) if settings.integer_sums else release


def _gradient_event(plan: RunPlan, public: PublicParameters) -> Event:
    """Return the event of one gradient in one run."""
    if plan.multiplier == 0.0:
        return NON_PRIVATE
    return plan.event if isinstance(plan.event, Discrete) else gradient_event(public, plan.multiplier)


def check_guarantee(settings: Settings, facts: Facts, problem: Problem, name: str) -> None:
    """Raise InputError if a method's guarantee does not cover the settings.

    Parameters
    ----------
    settings : Settings
        With rounds filled in.
    facts : Facts
        The public facts about the data.
    problem : Problem
        The learning problem.
    name : str
        The algorithm.
    """
    spec = ALGORITHMS[name]
    if settings.evaluations > (spec.rounds or int(settings.rounds)):
        raise InputError(
            f"evaluations is {settings.evaluations}, but {name} has {spec.rounds or settings.rounds} rounds: the model "
            "is evaluated at most once after each of them"
        )
    if settings.integer_sums:
        check_participation(facts.agents, settings.colluders, settings.missing)
    if spec.noisy and settings.mechanism not in spec.mechanisms:
        known, given = ", ".join(spec.mechanisms), settings.mechanism
        raise InputError(f"{name} needs mechanism {known}; its guarantee is not proven for {given} noise")
    if spec.noise_on == "samples" and (settings.adjacency != "add-remove" or facts.max_records > 1):
        raise InputError(
            f"{name} needs adjacency add-remove and one record a unit; the effect of sampling is proven only for that"
        )
    rate, rounds = sampling_rate(settings, name), int(settings.rounds)
    if spec.noise_on == "samples" and rate * rounds <= settings.delta:
        raise InputError(
            f"sampling-rate is {rate:g}, so small that delta {settings.delta:g} would allow every sample to be shown "
            f"without noise; it must be above delta / rounds, {settings.delta / rounds:g}"
        )
    if spec.noise_on in PLANNED_BY_ROUND and rounds > MAX_PLANNED_ROUNDS:
        raise InputError(f"rounds is {rounds}; {name} plans every round, and at most {MAX_PLANNED_ROUNDS:,}")
    rounded = spec.noise_on in ("uploads", "objectives") and settings.precision != "float64"
    if rounded and min(settings.total_epsilon) < math.inf:
        raise InputError(f"{name} needs precision float64; rounding may change an upload by more than one record does")
    if settings.precision == "float32" and not settings.hardened and facts.largest > MAX_SINGLE:
        raise InputError(
            f"records-max is {facts.largest:,}, but with precision float32 and noise seeded a sum of more than "
            f"{MAX_SINGLE:,} records may be off by more than one record's contribution; use noise hardened, whose "
            "sums are exact, or partition the records over more agents"
        )
    smooth = spec.noise_on != "objectives" or math.isfinite(problem.loss.trace)
    if spec.scales_records and not (smooth and problem.is_bounded):
        raise not_smooth(name)


def check_contraction(settings: Settings, facts: Facts, problem: Problem, name: str, eta: Schedule) -> None:
    """Raise InputError if a method's guarantee needs eta L <= 2 and a round's eta is larger."""
    if ALGORITHMS[name].requires_contraction:
        used = max(float(eta(t).max()) for t in range(1, int(settings.rounds) + 1))
        check_eta(name, used, largest_eta(name, problem, float(settings.record_bound), facts.largest))
