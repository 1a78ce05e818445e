"""The plan of private evaluations: when a model is measured on held-out records, and with how much noise."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.data import Facts
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.objectives.private_measures import MeasureLayout
from taciturn.planning.integer_sums import MIN_SHARE
from taciturn.privacy.accountants import EpsilonBound, tightest
from taciturn.privacy.calibration import calibrate
from taciturn.privacy.composition import StudyCost, cost_of
from taciturn.privacy.events import NON_PRIVATE, Discrete, Event
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.privacy.trust import AGENTS, SECURE_SUM, SERVER, noise_share
from taciturn.secure_sum.parameters import RESIDUAL_BITS, NumberFormat, choose_format, default_missing
from taciturn.settings import Settings
from taciturn.settings.checks import COLLUDERS

MAX_BITS = 20  # a unit of a measurement is at most 2^20; finer fractions would not show beside the noise
NOISE_LIMIT = 2.0**40  # the largest scale of noise in whole numbers
REPLACED_SHARE = 0.25  # of total-epsilon, for evaluations with replace-one, whose cost adds to that of training
PER_RESERVE = 5  # planned evaluations of a secure sum, or fewer, for which one more is paid


@dataclass(frozen=True, eq=False)
class EvaluationPlan:
    """What one run may spend at every agent on its held-out records.

    Parameters
    ----------
    epsilon, delta : float
        The budget of all evaluations.
    count : int
        The evaluations that are planned.
    reserve : int
        How many more `events` pays for, in place of those that a secure sum loses.
    event : Event
        Of one evaluation.
    numbers : int
        How many numbers an evaluation has.
    bits : int
        A unit of the measures is 2^bits.
    width : int
        The bits of a number in a secure sum; 0 without one.
    """

    epsilon: float
    delta: float
    count: int
    reserve: int
    event: Event
    numbers: int
    bits: int
    width: int

    @property
    def charges(self) -> int:
        """How many evaluations are paid."""
        return self.count + self.reserve

    @cached_property
    def events(self) -> Counter[Event]:
        """The events of all evaluations that are paid."""
        return Counter({self.event: self.charges})

    @cached_property
    def bound(self) -> EpsilonBound:
        """The cost of all of them to a held-out record."""
        return tightest(self.events, self.delta)

    @property
    def cost(self) -> StudyCost:
        """The cost to a ledger over studies."""
        return cost_of(self.events)


def evaluation_rounds(rounds: int, count: int) -> tuple[int, ...]:
    """Return the rounds after which the model is evaluated: evenly spread, the last after the last round.

    Examples
    --------
    >>> evaluation_rounds(10, 3), evaluation_rounds(10, 0)
    ((4, 7, 10), ())
    """
    return tuple(-(-i * rounds // count) for i in range(1, count + 1))


def measure_layout(facts: Facts, problem: Problem) -> MeasureLayout:
    """Return what the numbers of an evaluation are."""
    return MeasureLayout.of(facts.outputs, facts.classes, problem.loss)


def measure_sensitivity(layout: MeasureLayout, adjacency: str, max_records: int) -> float:
    """Return the L2 sensitivity of the sum of measures over all agents, in units.

    A record's numbers are not negative. So the sums of neighbours that differ in the contents of one unit, at one agent
    or two, differ by at most sqrt(2) times the length of what one unit adds.

    Examples
    --------
    >>> measure_sensitivity(MeasureLayout(2, True), "add-remove", 2) == 2 * math.sqrt(3)
    True
    """
    return layout.length * max_records * math.sqrt(ADJACENCIES[adjacency])


class EvaluationOption(NamedTuple):
    """What the noise of one evaluation does to the measured error, for one way to add it."""

    trust: str
    noise: float  # standard error of the error, as a share; for numbers of the mean absolute error, of the range
    alone: float  # the same if nothing but this error was released
    chosen: bool


class EvaluationForecast(NamedTuple):
    """What private evaluations will show, from public facts alone."""

    evaluations: int
    epsilon: float  # for all of them, for a held-out record
    records: int  # expected to be held out
    sampling: float  # the standard error of an error of 5 % that comes from the choice of so many records
    options: tuple[EvaluationOption, ...]


USUAL_ERROR = 0.05


def forecast_evaluations(settings: Settings, facts: Facts, plan: EvaluationPlan | None) -> EvaluationForecast | None:
    """Return what the evaluations of a run will show; None if there are none, or no noise."""
    if plan is None or not isinstance(plan.event, Discrete):
        return None
    agents, event = facts.agents, plan.event
    records = max(1, round(settings.test_share * facts.total_records))
    own = settings.noise_share(agents)
    shares = {SERVER: noise_share(SERVER, agents, 0), AGENTS: 1.0}
    if agents >= 3:
        shares[SECURE_SUM] = noise_share(SECURE_SUM, agents, COLLUDERS, default_missing(agents))
    shares[settings.trust] = own
    longer = event.l2 / facts.max_records  # than a count of errors, which a unit changes by its records at most
    options = []
    for trust, share in sorted(shares.items(), key=lambda item: item[1]):
        noise = math.sqrt(agents) * share * event.scale / records
        options.append(EvaluationOption(trust, noise, noise / longer, trust == settings.trust))
    sampling = math.sqrt(USUAL_ERROR * (1.0 - USUAL_ERROR) / records)
    return EvaluationForecast(plan.count, plan.epsilon, records, sampling, tuple(options))


def evaluation_budget(settings: Settings, total_epsilon: float) -> float:
    """Return the budget of all evaluations of a run with this total.

    Raises
    ------
    InputError
        If evaluations and training together cannot keep the total.
    """
    if settings.evaluation_epsilon == "auto":
        return total_epsilon if settings.adjacency == "add-remove" else REPLACED_SHARE * total_epsilon
    given = float(settings.evaluation_epsilon)
    adds = settings.adjacency != "add-remove" and given < math.inf
    if given > total_epsilon or (adds and given == total_epsilon):
        why = "adds to that of training" if adds else "of a held-out record is part of what the run may spend"
        rule = "below" if adds else "at most"
        raise InputError(
            f"evaluation-epsilon is {given:g}, but the cost of evaluations {why}: it must be {rule} total-epsilon, "
            f"{total_epsilon:g}"
        )
    return given


def plan_evaluations(settings: Settings, facts: Facts, problem: Problem, total_epsilon: float) -> EvaluationPlan | None:
    """Plan the evaluations of a run: calibrate their noise from public facts.

    Parameters
    ----------
    settings : Settings
        The settings.
    facts : Facts
        The public facts about the data.
    problem : Problem
        The learning problem.
    total_epsilon : float
        The budget of the run.

    Returns
    -------
    EvaluationPlan or None
        None if the settings ask for no evaluation.

    Raises
    ------
    InputError
        If no noise keeps the budget, or the numbers have no room in a secure sum.
    """
    count = settings.evaluations
    if not count:
        return None
    reserve = -(-count // PER_RESERVE) if settings.reserve else 0
    layout, epsilon = measure_layout(facts, problem), evaluation_budget(settings, total_epsilon)
    if math.isinf(epsilon):
        number_format = _number_format(settings, facts, layout, 1.0)
        return EvaluationPlan(
            epsilon, settings.delta, count, reserve, NON_PRIVATE, layout.size, *_fields(number_format)
        )
    charges = count + reserve
    multiplier = calibrate(lambda m: Counter({_event(settings, facts, layout, m): charges}), epsilon, settings.delta)
    event = _event(settings, facts, layout, multiplier)
    number_format = _number_format(settings, facts, layout, event.scale)
    _check_numbers(settings, facts, event, number_format)
    return EvaluationPlan(epsilon, settings.delta, count, reserve, event, layout.size, *_fields(number_format))


def _fields(number_format: NumberFormat) -> tuple[int, int]:
    return number_format.residual_bits, number_format.width


def _event(settings: Settings, facts: Facts, layout: MeasureLayout, multiplier: float) -> Discrete:
    """Return the event of one evaluation with this noise multiplier."""
    l2 = measure_sensitivity(layout, settings.adjacency, facts.max_records)
    scale = multiplier * l2
    try:
        bits = _number_format(settings, facts, layout, scale).residual_bits
    except InputError:  # no width has room for so much noise; calibration tries scales of any size
        bits = 0
    coordinates = layout.size * int(ADJACENCIES[settings.adjacency])
    return Discrete(scale, l2, scale * 2.0**bits, coordinates)


def _number_format(settings: Settings, facts: Facts, layout: MeasureLayout, scale: float) -> NumberFormat:
    """Return how fine the numbers are and, for a secure sum, how wide."""
    fitting = max(0, math.floor(math.log2(NOISE_LIMIT / max(scale, 1.0))))
    if not settings.integer_sums:
        return NumberFormat(0, min(MAX_BITS, fitting))
    honest = settings.honest(facts.agents)
    found = choose_format(facts.records_of_all, layout.length, scale / layout.length, facts.agents, honest)
    return found._replace(residual_bits=min(MAX_BITS, fitting, found.residual_bits))


def _check_numbers(settings: Settings, facts: Facts, event: Discrete, number_format: NumberFormat) -> None:
    """Raise InputError if the numbers are too coarse, or an agent's share of the noise is too small."""
    if number_format.residual_bits < RESIDUAL_BITS[0]:
        raise InputError(
            f"evaluation-epsilon needs noise of {event.scale:.3g} records in every count, which leaves "
            f"{number_format.residual_bits} bits for fractions, and they need {RESIDUAL_BITS[0]}: give a larger "
            "evaluation-epsilon, or fewer evaluations"
        )
    share = settings.noise_share(facts.agents)
    if share * event.sigma < MIN_SHARE:
        raise InputError(
            f"an agent's share of the noise of an evaluation is {share * event.sigma:.3g} whole numbers, and it needs "
            f"{MIN_SHARE:g}: give a smaller evaluation-epsilon"
        )


def measure_release(
    settings: Settings, facts: Facts, problem: Problem, plans: tuple[EvaluationPlan | None, ...]
) -> MeasureRelease | None:
    """Return what agents release in an evaluation of the runs with these plans; None without evaluations."""
    known = [plan for plan in plans if plan is not None]
    if not known:
        return None
    share = settings.noise_share(facts.agents)
    events, bits = tuple(plan.event for plan in known), tuple(plan.bits for plan in known)
    return MeasureRelease(measure_layout(facts, problem), problem.loss, events, bits, share)
