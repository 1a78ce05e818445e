"""From a total budget to the release that keeps it: limits, sensitivity, scale of the noise, every run's plan."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.algorithms import ALGORITHMS, Method
from tacit.algorithms.hidden import check_eta, largest_eta
from tacit.algorithms.releases import Release
from tacit.algorithms.releases.certified import CertifiedRelease
from tacit.algorithms.releases.hardened import HardenedRelease
from tacit.algorithms.schedules import Schedule
from tacit.data import Facts
from tacit.errors import InputError
from tacit.privacy.accountants.zcdp import zcdp_sum
from tacit.privacy.accounting import Bound, tightest
from tacit.privacy.calibration import affordable_rounds, calibrate
from tacit.privacy.events import NON_PRIVATE, Event, Hidden, Noise
from tacit.privacy.hidden import contraction
from tacit.privacy.mechanisms.calibrated import Calibrated
from tacit.privacy.sensitivity import Sensitivity, sensitivity
from tacit.problems import Problem
from tacit.problems.limits import BoundRecords, ClipGradients, rounding_slack
from tacit.settings import Settings
from tacit.study.batches import Batch

MOST_HIDDEN_ROUNDS = 100_000


@dataclass(frozen=True, eq=False)
class Plan:
    """What one run means to spend at every agent."""

    total_epsilon: float
    delta: float
    event: Event  # of one noise draw
    events: Counter[Event]  # of the whole run
    rounds: int  # that the budget allows, at most those asked for
    bound: Bound  # of all events

    @property
    def zcdp(self) -> float:
        """What it costs a ledger over studies."""
        cost = zcdp_sum(self.events)
        return math.inf if cost is None else cost

    def entry(self) -> dict[str, Any]:
        """Its line in the ledger."""
        return {
            "total_epsilon": self.total_epsilon,
            "delta": self.delta,
            "planned_epsilon": self.bound.epsilon,
            "accountant": self.bound.accountant,
            "rounds": self.rounds,
            "events": [{**asdict(event), "count": count} for event, count in self.events.items()],
        }


@dataclass(frozen=True, eq=False)
class Protection:
    """The release of a batch, and the plan of each of its runs."""

    release: Release
    plans: tuple[Plan, ...]  # [R]

    @property
    def rounds(self) -> int:
        """The rounds that every run of the batch can afford."""
        return min(plan.rounds for plan in self.plans)


def protect(
    settings: Settings, facts: Facts, problem: Problem, batch: Batch, rho: Schedule, eta: Schedule, updates: int
) -> Protection:
    """Everything from public facts: this runs before any record is read."""
    method = ALGORITHMS[batch.algorithm]
    if method.hidden:
        _check_hidden(settings, facts, problem, eta)
    delta_of = _sensitivity(settings, facts, problem, method)
    by_budget = {  # seeds of one budget share its plan, and its rho and eta
        epsilon: _plan(settings, delta_of, method, epsilon, _rates(settings, method, rho, eta, r), updates)
        for epsilon, r in {epsilon: r for r, epsilon in enumerate(batch.budgets)}.items()
    }
    plans = tuple(by_budget[epsilon] for epsilon in batch.budgets)
    return Protection(_release(settings, facts, problem, method, batch, plans), plans)


def _sensitivity(settings: Settings, facts: Facts, problem: Problem, method: Method) -> Sensitivity:
    clip_l1, clip_l2 = float(settings.clip_l1), float(settings.clip)
    if method.hidden:
        clip_l2 = problem.loss.residual_bound * float(settings.record_bound)
        clip_l1 = math.inf
    return sensitivity(clip_l1, clip_l2, facts.total_records, settings.adjacency, facts.max_records)


def _rates(settings: Settings, method: Method, rho: Schedule, eta: Schedule, run: int) -> list[float]:
    """The contraction of every round of one run, where its updates are hidden."""
    times = range(1, int(settings.rounds) + 1) if method.hidden else ()
    return [contraction(float(rho(t)[run, 0]), float(eta(t)[run, 0])) for t in times]


def _plan(
    settings: Settings, moved: Sensitivity, method: Method, epsilon: float, rates: list[float], updates: int
) -> Plan:
    rounds = int(settings.rounds)
    kind = f"discrete-{settings.mechanism}" if settings.noise == "hardened" else settings.mechanism
    if math.isinf(epsilon):
        planned: Counter[Event] = Counter({NON_PRIVATE: rounds * (1 if method.hidden else updates)})
        return Plan(epsilon, settings.delta, NON_PRIVATE, planned, rounds, tightest(planned, settings.delta))

    def events(scale: float) -> Callable[[int], Counter[Event]]:
        """The events of the first rounds, at this scale."""
        if method.hidden:
            return lambda n: Counter(Hidden(scale, moved.l2, updates, c) for c in rates[:n])
        return lambda n: Counter({Noise(kind, scale, moved.l1, moved.l2): n * updates})

    if settings.noise_multiplier == "auto":
        unit = moved.l2  # the search is in units of the sensitivity
        scale = unit * calibrate(lambda s: events(s * unit)(rounds), epsilon, settings.delta)
        affordable = rounds
    else:
        scale = float(settings.noise_multiplier) * moved.l2
        affordable = affordable_rounds(events(scale), epsilon, settings.delta, rounds)
        if affordable == 0:
            cost = tightest(events(scale)(1), settings.delta).epsilon
            raise InputError(
                f"the budget is exhausted before the first round: with noise-multiplier {settings.noise_multiplier:g} "
                f"one round costs epsilon {cost:.4g}, and total-epsilon is {epsilon:g}"
            )
    planned = events(scale)(affordable)
    bound = tightest(planned, settings.delta)
    return Plan(epsilon, settings.delta, Noise(kind, scale, moved.l1, moved.l2), planned, affordable, bound)


def _release(
    settings: Settings, facts: Facts, problem: Problem, method: Method, batch: Batch, plans: tuple[Plan, ...]
) -> Release:
    mechanism = Calibrated(settings.mechanism, tuple(plan.event for plan in plans))
    slack = rounding_slack(facts.features, facts.outputs, batch.precision, settings.tf32)
    if method.hidden:
        return CertifiedRelease(BoundRecords(float(settings.record_bound) * slack), mechanism)
    bounds = [np.full(batch.size, float(clip) * slack, batch.precision) for clip in (settings.clip, settings.clip_l1)]
    limit = ClipGradients(*bounds)
    if settings.noise == "hardened":
        release = HardenedRelease(limit, mechanism, facts.largest)
        release.bits(problem)  # what does not fit its integers is refused now
        return release
    return CertifiedRelease(limit, mechanism)


def _check_hidden(settings: Settings, facts: Facts, problem: Problem, eta: Schedule) -> None:
    if int(settings.rounds) > MOST_HIDDEN_ROUNDS:
        raise InputError(f"rounds is {settings.rounds}: hidden plans at most {MOST_HIDDEN_ROUNDS:,}, one by one")
    if settings.noise == "hardened":
        raise InputError("hidden needs noise seeded: its proof does not cover the rounding between hidden updates")
    if settings.mechanism != "gaussian":
        raise InputError(f"hidden needs mechanism gaussian: its proof does not cover {settings.mechanism} noise")
    used = max(float(eta(t).max()) for t in range(1, int(settings.rounds) + 1))
    check_eta(used, largest_eta(problem, float(settings.record_bound), facts.largest))
