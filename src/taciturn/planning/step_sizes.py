"""Step sizes: rho and eta of every run, from the settings or from the planner."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taciturn.algorithms import ALGORITHMS
from taciturn.algorithms.hidden_updates import largest_eta
from taciturn.algorithms.schedules import (
    Constant,
    DynamicRho,
    LevelEta,
    NonsmoothEta,
    Schedule,
    SmoothEta,
    StrongEta,
    falling_share,
)
from taciturn.data import Facts
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.planning.heuristics import Hyperparameters
from taciturn.planning.study import Batch
from taciturn.settings import Settings
from taciturn.types import Array


def checked_smoothness(settings: Settings, smoothness: float) -> float:
    """L of eta smooth, which must exist."""
    if not math.isfinite(smoothness):
        raise InputError(f"eta smooth needs a smooth f: {settings.loss} with {settings.regulariser} is not")
    return smoothness


def rho_schedule(settings: Settings, epsilon: Array) -> Schedule:
    """The penalty of every run of a batch, epsilon [R]."""
    if settings.rho == "dynamic":
        s = settings
        rho = DynamicRho(epsilon, s.rho_c1, s.rho_c2, s.rho_tc, s.rho_growth, s.rho_max)
        if not (rho(1) > 0.0).all():
            raise InputError("rho-c1 is 0 and epsilon is inf: then rho is 0, and it must be above 0")
        return rho
    return Constant(float(settings.rho), epsilon)


def eta_schedule(settings: Settings, epsilon: Array) -> Schedule:
    """The proximity of every run of a batch, epsilon [R]."""
    scale = settings.eta_scale
    match settings.eta:
        case "smooth":
            return SmoothEta(epsilon, float(settings.smoothness), scale)
        case "nonsmooth":
            return NonsmoothEta(epsilon, scale)
        case "level":
            return LevelEta(epsilon, int(settings.rounds), scale)
        case "strong":
            return StrongEta(epsilon, float(settings.strong_convexity), scale)
    return Constant(scale * float(settings.eta), epsilon)


ENOUGH = 10_000  # rounds, to add up the shape of the steps of however many there are
MARGIN = 1.0 - 1e-6  # so that rounding keeps eta L <= 2
PLAIN_STEP = 50.0  # over L: bounds are worst cases, so that steps well above 1 / L pay (see study.paper)
OUTPUT_CARE = 10.0  # times the convexity that noise within the objective takes
DETERMINANT_SHARE = 0.1  # of a budget, at most, for what perturbed objectives cost by their Hessians


class StepSizeInputs(NamedTuple):
    """What a pace is made for."""

    settings: Settings
    facts: Facts  # of the agents this method has
    problem: Problem
    batch: Batch
    made: tuple[Hyperparameters, ...]  # [R]  the planner's for every run
    trace: float  # how far one unit moves the trace of an agent's Hessian
    rounds: int

    @property
    def scale(self) -> float:
        """Of the planner's eta, not of another."""
        return self.settings.eta_scale if self.settings.eta == "auto" else 1.0

    @property
    def first(self) -> list[float]:
        """The planner's eta of the first round, within what the method's guarantee allows."""
        etas = [self.scale * one.eta for one in self.made]
        if not ALGORITHMS[self.batch.algorithm].contracts:
            return etas
        bound, most = float(self.settings.record_bound), self.facts.largest
        return [min(eta, MARGIN * largest_eta(self.batch.algorithm, self.problem, bound, most)) for eta in etas]


class StepSizes(NamedTuple):
    """Penalty and proximity of every run."""

    rho: Schedule
    eta: Schedule


def falling(terms: StepSizeInputs) -> StepSizes:
    """eta falls to nearly 0 in the last rounds; rho pulls as strongly as all local updates of the first round push."""
    first, updates = terms.first, [one.eta * one.rho for one in terms.made]  # 1 / E
    rho = [share / eta for share, eta in zip(updates, first, strict=True)]
    return StepSizes(_constant(terms, rho), _falls(terms, first))


def explicit(terms: StepSizeInputs) -> StepSizes:
    """Steps of eta itself: it is such that all of them together come to the path of 1 / (rho + 1 / eta)."""
    count = min(terms.rounds, ENOUGH)
    left = np.minimum(1.0, (1.0 - np.arange(count) / count) / falling_share(terms.rounds))
    share = float((left / (1.0 + left)).sum() / left.sum())  # with rho = 1 / eta_1; a little over a half
    return falling(terms)._replace(eta=_falls(terms, [share * first for first in terms.first]))


def constant(terms: StepSizeInputs) -> StepSizes:
    """Hidden updates need a constant eta, and live by a strong pull: their price falls with rho eta."""
    first = terms.first
    return StepSizes(_constant(terms, [1.0 / eta for eta in first]), Constant(first, terms.batch.epsilon))


def eager(terms: StepSizeInputs) -> StepSizes:
    """A dual that moves with every local update settles at the gradient, so that a round is one step of 1 / rho.

    With rho eta = 1 it settles within a few updates; where rho eta is small, dual and z swing about each other. Of E
    gradients only the last few are in it, whose noise is sqrt(E) times that of one: the step is as much shorter.
    """
    updates = [1.0 / (one.eta * one.rho) for one in terms.made]  # E
    steps = [math.sqrt(count) * eta for count, eta in zip(updates, terms.first, strict=True)]  # E eta / sqrt(E)
    falls = _falls(terms, steps)
    return StepSizes(lambda t: 1.0 / falls(t), falls)


def plain(terms: StepSizeInputs) -> StepSizes:
    """Without noise: steps by the loss's curvature, as mode paper takes them."""
    loss, bound = terms.problem.loss, terms.facts.bound
    curvature = loss.curvature if math.isfinite(loss.curvature) else 1.0
    smoothness = curvature * bound**2 * terms.facts.largest / terms.facts.total_records
    eta = terms.scale * (PLAIN_STEP if math.isfinite(loss.residual_bound) else 1.0) / smoothness
    return StepSizes(_constant(terms, smoothness / 1000.0), NonsmoothEta(terms.batch.epsilon, eta))


def exact(terms: StepSizeInputs) -> StepSizes:
    """A solved subproblem moves z by 1/rho of a gradient, where a linearised one moves it by 1/(rho + 1/eta)."""
    rho = [2.0 / eta for eta in terms.first]
    if ALGORITHMS[terms.batch.algorithm].noise_on == "objectives":
        cost = terms.trace * terms.rounds / DETERMINANT_SHARE
        rho = [max(one, cost / budget) for one, budget in zip(rho, terms.batch.budgets, strict=True)]
    return StepSizes(_constant(terms, rho), Constant(1.0, terms.batch.epsilon))


def central(terms: StepSizeInputs) -> StepSizes:
    """One solution. Noise that is added to it lands in all directions alike, and nothing damps it any more."""
    pace = exact(terms)
    if ALGORITHMS[terms.batch.algorithm].noise_on == "objectives":
        return pace
    return pace._replace(rho=_constant(terms, [OUTPUT_CARE * float(one) for one in pace.rho(1)[:, 0]]))


OWN_ROUNDS = {"exact": 30}
"""Rounds where they are open: a subproblem that is solved takes long, and a path may be gone in fewer, longer steps."""

LARGEST_STEP = {"central": 1e6}
"""The dimensionless steps of the planner at most, where they are not explicit ones: a solution may go any way."""

STEP_RULES: dict[str, Callable[[StepSizeInputs], StepSizes]] = {
    "falling": falling,
    "explicit": explicit,
    "constant": constant,
    "eager": eager,
    "plain": plain,
    "exact": exact,
    "central": central,
}


def _falls(terms: StepSizeInputs, first: list[float]) -> Schedule:
    return LevelEta(terms.batch.epsilon, terms.rounds, first)


def _constant(terms: StepSizeInputs, values: float | list[float]) -> Schedule:
    return Constant(np.broadcast_to(values, terms.batch.size).tolist(), terms.batch.epsilon)
