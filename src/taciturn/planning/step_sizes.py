"""Step sizes: rho and eta of every run, from the settings or from the planner's rule for the method's kind of step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.algorithms.additive import MOMENTUM, count_rounds
from taciturn.algorithms.hidden_updates import largest_eta
from taciturn.algorithms.schedules import (
    CentralSolution,
    Constant,
    DynamicRho,
    ExactStep,
    GradientStep,
    HiddenSteps,
    LevelEta,
    LinearisedStep,
    MomentumStep,
    NoiseFreeStep,
    NonsmoothEta,
    PrimalDualSteps,
    Schedule,
    SmoothEta,
    StepKind,
    StrongEta,
    falling_share,
)
from taciturn.data import Facts
from taciturn.errors import InputError
from taciturn.objectives import Loss, Problem
from taciturn.planning.heuristics import TABLE_ROUNDS, Hyperparameters, PlanRequest, momentum_step
from taciturn.planning.study import Batch
from taciturn.settings import Settings
from taciturn.types import Array

SUMMED_ROUNDS = 10_000  # enough to sum the shape of any number of steps
MARGIN = 1.0 - 1e-6  # keeps eta L <= 2 in spite of rounding
L_OVER_RHO = 1000.0  # of methods without noise
NOISE_FREE_STEP = 50.0  # over L: bounds are worst cases, so steps well above 1 / L pay (see planning.paper_mode)
OUTPUT_CONVEXITY = 10.0  # times the convexity that noise within the objective needs
DETERMINANT_SHARE = 0.1  # the largest share of a budget that the Hessians of perturbed objectives may cost


def fill_in_eta_constants(settings: Settings, problem: Problem, smoothness: Callable[[], float]) -> Settings:
    """Fill in L of eta smooth, which `smoothness` computes, and alpha of eta strong, where they are auto.

    Raises
    ------
    InputError
        If L is not finite, or alpha is 0.
    """
    if settings.eta == "smooth" and settings.smoothness == "auto":
        if not math.isfinite(value := smoothness()):
            raise InputError(f"eta smooth needs a smooth f: {settings.loss} with {settings.regulariser} is not")
        return replace(settings, smoothness=value)
    if settings.eta == "strong" and settings.strong_convexity == "auto":
        if problem.strong_convexity <= 0.0:
            raise InputError("eta strong needs a strongly convex f: use regulariser l2 with beta > 0")
        return replace(settings, strong_convexity=problem.strong_convexity)
    return settings


def rho_schedule(settings: Settings, epsilon: Array) -> Schedule:
    """Return the penalty that the settings give to every run, epsilon being [R]."""
    s = settings
    if s.rho != "dynamic":
        return Constant(float(s.rho), epsilon)
    rho = DynamicRho(epsilon, s.rho_c1, s.rho_c2, s.rho_tc, s.rho_growth, s.rho_max)
    if not (rho(1) > 0.0).all():
        raise InputError("rho-c1 is 0 and epsilon is inf, so then rho is 0; it must be positive")
    return rho


def eta_schedule(settings: Settings, epsilon: Array) -> Schedule:
    """Return the proximity that the settings give to every run, epsilon being [R]."""
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


class StepSizes(NamedTuple):
    """Penalty and proximity of every run."""

    rho: Schedule
    eta: Schedule


class StepSizeInputs(NamedTuple):
    """The inputs of a step rule.

    Parameters
    ----------
    settings : Settings
        The settings.
    facts : Facts
        Of the agents that the method has; a curator is one agent.
    problem : Problem
        The learning problem.
    batch : Batch
        The runs that share passes over the data.
    proposals : tuple of Hyperparameters, [R]
        The planner's values for every run.
    trace : float
        The most that one unit changes the trace of an agent's Hessian.
    rounds : int
        The number of rounds T.
    requests : tuple of PlanRequest, [R]
        What the settings fix of every run.
    """

    settings: Settings
    facts: Facts
    problem: Problem
    batch: Batch
    proposals: tuple[Hyperparameters, ...]
    trace: float
    rounds: int
    requests: tuple[PlanRequest, ...]

    @property
    def spec(self) -> AlgorithmSpec:
        """The method."""
        return ALGORITHMS[self.batch.algorithm]

    @property
    def eta_scale(self) -> float:
        """The factor on the planner's eta; 1 if the settings fix eta."""
        return self.settings.eta_scale if self.settings.eta == "auto" else 1.0

    @property
    def first_eta(self) -> list[float]:
        """The planner's eta of the first round, [R], within what the method's guarantee allows."""
        etas = [self.eta_scale * proposal.eta for proposal in self.proposals]
        if not self.spec.requires_contraction:
            return etas
        bound, most = float(self.settings.record_bound), self.facts.largest
        return [min(eta, MARGIN * largest_eta(self.batch.algorithm, self.problem, bound, most)) for eta in etas]

    def constant(self, values: float | list[float]) -> Schedule:
        """Return a schedule of one value for all runs or for each run."""
        return Constant(np.broadcast_to(values, self.batch.size).tolist(), self.batch.epsilon)

    def level(self, first: list[float]) -> Schedule:
        """Return a schedule that falls to nearly 0 in the last rounds."""
        return LevelEta(self.batch.epsilon, self.rounds, first)


def falling_steps(inputs: StepSizeInputs) -> StepSizes:
    """Let eta fall to nearly 0 in the last rounds; rho pulls as strongly as all local updates of round 1 push."""
    first, shares = inputs.first_eta, [p.eta * p.rho for p in inputs.proposals]  # 1 / E
    rho = [share / eta for share, eta in zip(shares, first, strict=True)]
    return StepSizes(inputs.constant(rho), inputs.level(first))


def gradient_steps(inputs: StepSizeInputs) -> StepSizes:
    """Choose eta so that steps of eta itself add up to the path of 1 / (rho + 1 / eta)."""
    count = min(inputs.rounds, SUMMED_ROUNDS)
    left = np.minimum(1.0, (1.0 - np.arange(count) / count) / falling_share(inputs.rounds))
    share = float((left / (1.0 + left)).sum() / left.sum())  # with rho = 1 / eta_1; a little over a half
    return falling_steps(inputs)._replace(eta=inputs.level([share * eta for eta in inputs.first_eta]))


def momentum_steps(inputs: StepSizeInputs) -> StepSizes:
    """Choose eta of an additive model; rho has no meaning, as there are no duals."""
    counting = count_rounds(inputs.rounds, numbers=not inputs.problem.is_bounded)
    clip, training = float(inputs.settings.clip), max(1, inputs.rounds - counting)
    steps = [
        inputs.eta_scale
        * inputs.facts.agents
        * momentum_step(inputs.facts, inputs.problem.loss, request, clip, training, MOMENTUM)
        for request in inputs.requests
    ]
    return StepSizes(inputs.constant(1.0), inputs.level(steps))


def hidden_steps(inputs: StepSizeInputs) -> StepSizes:
    """Choose a constant eta, which hidden updates need, and a strong pull: their cost falls with rho eta."""
    first = inputs.first_eta
    return StepSizes(inputs.constant([1.0 / eta for eta in first]), Constant(first, inputs.batch.epsilon))


def primal_dual_steps(inputs: StepSizeInputs) -> StepSizes:
    """Choose rho eta = 1, with which a dual that moves at every local update settles at the gradient.

    A round is then one step of 1 / rho; with a small rho eta, dual and z would oscillate. Only the last few of the E
    gradients remain in it, whose noise is sqrt(E) times that of one, so the step is shorter by that factor.
    """
    updates = [1.0 / (p.eta * p.rho) for p in inputs.proposals]  # E
    steps = [math.sqrt(count) * eta for count, eta in zip(updates, inputs.first_eta, strict=True)]  # E eta / sqrt(E)
    eta = inputs.level(steps)
    return StepSizes(lambda t: 1.0 / eta(t), eta)


def noise_free_steps(inputs: StepSizeInputs) -> StepSizes:
    """Choose steps by the loss's curvature, as mode paper does."""
    facts, problem = inputs.facts, inputs.problem
    smoothness = finite_curvature(problem.loss) * facts.bound**2 * facts.largest / facts.total_records
    eta = inputs.eta_scale * (NOISE_FREE_STEP if problem.is_bounded else 1.0) / smoothness
    return StepSizes(inputs.constant(smoothness / L_OVER_RHO), NonsmoothEta(inputs.batch.epsilon, eta))


def finite_curvature(loss: Loss) -> float:
    """Return the curvature of a loss by which steps without noise are chosen, where the theory has none also."""
    return loss.curvature if math.isfinite(loss.curvature) else 1.0


def exact_steps(inputs: StepSizeInputs) -> StepSizes:
    """Choose rho for solved subproblems: one moves z by 1/rho of a gradient, not by 1/(rho + 1/eta)."""
    rho = [2.0 / eta for eta in inputs.first_eta]
    if inputs.spec.noise_on == "objectives":
        cost = inputs.trace * inputs.rounds / DETERMINANT_SHARE
        rho = [max(value, cost / budget) for value, budget in zip(rho, inputs.batch.budgets, strict=True)]
    return StepSizes(inputs.constant(rho), Constant(1.0, inputs.batch.epsilon))


def central_steps(inputs: StepSizeInputs) -> StepSizes:
    """Choose rho for one solution; noise on it is spread over all directions, and no later round damps it."""
    steps = exact_steps(inputs)
    if inputs.spec.noise_on == "objectives":
        return steps
    return steps._replace(rho=inputs.constant([OUTPUT_CONVEXITY * float(rho) for rho in steps.rho(1)[:, 0]]))


class StepRule(NamedTuple):
    """How the planner sets rho and eta for one kind of step.

    Parameters
    ----------
    step_sizes : callable
        The rule.
    rounds : int, optional
        The planner's rounds, if not the usual ones: solving subproblems is slow, and needs fewer, longer steps.
    max_step : float, optional
        The largest dimensionless step, if it is not that of gradient steps.
    constant_rho : bool
        Whether one number describes rho in a config file.
    eta_setting : str
        How a config file describes eta: "level", "constant", or "auto" for the planner's.
    """

    step_sizes: Callable[[StepSizeInputs], StepSizes]
    rounds: int | None = None
    max_step: float | None = None
    constant_rho: bool = True
    eta_setting: str = "auto"


STEP_RULES: dict[type[StepKind], StepRule] = {
    LinearisedStep: StepRule(falling_steps, eta_setting="level"),
    GradientStep: StepRule(gradient_steps, eta_setting="level"),
    MomentumStep: StepRule(momentum_steps, rounds=TABLE_ROUNDS, eta_setting="level"),
    HiddenSteps: StepRule(hidden_steps, eta_setting="constant"),
    PrimalDualSteps: StepRule(primal_dual_steps, constant_rho=False),
    NoiseFreeStep: StepRule(noise_free_steps, constant_rho=False),
    ExactStep: StepRule(exact_steps, rounds=30),
    CentralSolution: StepRule(central_steps, max_step=1e6),
}
"""The rule of every kind of step; a plugin with a new `StepKind` adds its rule here."""


def step_rule(algorithm: str) -> StepRule:
    """Return the rule for a method's kind of step.

    Raises
    ------
    InputError
        If the kind has no rule.

    Examples
    --------
    >>> step_rule("admm-outp").rounds
    30
    """
    kind = ALGORITHMS[algorithm].step_kind
    if kind not in STEP_RULES:
        raise InputError(f"{algorithm} has the step kind {kind.__name__}, for which STEP_RULES has no rule")
    return STEP_RULES[kind]
