"""A study in certified mode: all but the training itself is decided from public facts, before a record is read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from tacit.algorithms import ALGORITHMS
from tacit.algorithms.hidden import largest_eta
from tacit.algorithms.schedules import Constant, LinearEta, Schedule
from tacit.data import Facts, check_facts, declared_facts, load, source_for
from tacit.errors import InputError
from tacit.problems import LOSSES, Problem
from tacit.settings import Settings
from tacit.study.batches import Batch, batches
from tacit.study.build import Part, Study, build_algorithm, build_problem, local_updates, with_agents
from tacit.study.paper import fill_in_strong_convexity
from tacit.study.propose import Asked, Proposal, propose, wide_l1
from tacit.study.protect import protect
from tacit.study.schedules import checked_smoothness, eta_schedule, rho_schedule
from tacit.types import Dataset

HIDDEN_MARGIN = 1.0 - 1e-6  # so that rounding keeps eta L <= 2


class Outline(NamedTuple):
    """A study of which no record has been read yet."""

    settings: Settings
    facts: Facts
    problem: Problem
    parts: list[Part]
    dataset: Dataset | None  # a published data set, which was read for its sizes

    @property
    def zcdp(self) -> float:
        """What all its runs together cost a ledger over studies."""
        return math.fsum(plan.zcdp for part in self.parts for plan in part.plans)


def outline(settings: Settings) -> Outline:
    """The whole study from its settings and public facts."""
    published = load(settings.data_options()) if source_for(settings.data).published else None
    return outline_of(settings, public_facts(settings, published), published)


def outline_of(settings: Settings, facts: Facts, published: Dataset | None = None) -> Outline:
    """The whole study from its settings and the facts given."""
    loss = settings.loss if settings.loss != "auto" else "softmax" if facts.classes else "squared"
    hidden = any(ALGORITHMS[name].hidden for name in settings.algorithm)
    widest = facts.bound / 4.0 if hidden else facts.bound  # longer records are scaled down to it by hidden
    bound = widest if settings.record_bound == "auto" else float(settings.record_bound)
    settings = replace(settings, loss=loss, record_bound=bound)
    problem = build_problem(settings, facts.name, facts.classes, facts.total_records, facts.agents)
    settings = _fill_in(settings, facts, problem)
    parts = [_part(settings, facts, problem, batch) for batch in batches(settings)]
    return Outline(settings, facts, problem, parts, published)


def complete(plan: Outline, dataset: Dataset | None = None) -> Study:
    """Read the records, or take those at hand, and refuse what contradicts what was declared."""
    dataset = dataset or plan.dataset or load(plan.settings.data_options())
    check_facts(plan.facts, dataset)
    return Study(with_agents(plan.settings, dataset), dataset, plan.problem, plan.parts, plan.facts)


def public_facts(settings: Settings, published: Dataset | None = None) -> Facts:
    """What is public about the data."""
    total, most = settings.total_records, settings.records_max
    declared = None if isinstance(total, str) else total
    return declared_facts(settings.data_options(), declared, None if isinstance(most, str) else most, published)


def proposal(settings: Settings, facts: Facts, algorithm: str, epsilon: float) -> Proposal:
    """The planner's values for one run, with those the settings fix."""
    return propose(facts, LOSSES[settings.loss](), asked(settings, algorithm, epsilon))


def asked(settings: Settings, algorithm: str, epsilon: float) -> Asked:
    """What the settings fix of a run."""
    return Asked(
        epsilon,
        settings.delta,
        local_updates(settings, algorithm),
        settings.mechanism,
        settings.adjacency,
        settings.noise == "hardened",
        None if settings.rounds == "auto" else int(settings.rounds),
        None if settings.clip == "auto" else float(settings.clip),
        None if settings.noise_multiplier == "auto" else float(settings.noise_multiplier),
    )


def _fill_in(settings: Settings, facts: Facts, problem: Problem) -> Settings:
    """Rounds and clip, the same for all runs of a study; rho and eta may differ between budgets and stay auto."""
    made = [
        proposal(settings, facts, name, epsilon) for name in settings.algorithm for epsilon in settings.total_epsilon
    ]
    if settings.rounds == "auto":
        settings = replace(settings, rounds=max(one.rounds for one in made))
    if settings.clip == "auto":
        settings = replace(settings, clip=made[0].clip)
    if settings.clip_l1 == "auto":
        wide = wide_l1(facts) * float(settings.clip)
        settings = replace(settings, clip_l1=wide if settings.mechanism == "laplace" else math.inf)
    if settings.mechanism == "laplace" and math.isinf(float(settings.clip_l1)):
        raise InputError("clip-l1 is inf, but laplace noise is scaled to the L1 sensitivity: it needs a finite bound")
    if settings.eta == "smooth" and settings.smoothness == "auto":
        smoothness = problem.public_smoothness(facts.bound, facts.largest)
        settings = replace(settings, smoothness=checked_smoothness(settings, smoothness))
    return fill_in_strong_convexity(settings, problem)


def _part(settings: Settings, facts: Facts, problem: Problem, batch: Batch) -> Part:
    rho, eta = _steps(settings, facts, problem, batch)
    updates = local_updates(settings, batch.algorithm)
    protection = protect(settings, facts, problem, batch, rho, eta, updates)
    algorithm = build_algorithm(settings, problem, batch, rho, eta, protection.release)
    return Part(batch, algorithm, protection.rounds, eta, protection.plans)


def _steps(settings: Settings, facts: Facts, problem: Problem, batch: Batch) -> tuple[Schedule, Schedule]:
    """rho and eta: the planner's for each run where they are auto.

    Hidden updates need a constant eta within 2 / L, and live by a strong pull: their price falls with rho eta.
    """
    made = {epsilon: proposal(settings, facts, batch.algorithm, epsilon) for epsilon in set(batch.budgets)}
    scale = settings.eta_scale if settings.eta == "auto" else 1.0  # of the planner's eta, not of another
    first = [scale * made[epsilon].eta for epsilon in batch.budgets]
    falling: Schedule = LinearEta(batch.epsilon, int(settings.rounds), first)
    rho = [made[epsilon].rho / scale for epsilon in batch.budgets]
    if ALGORITHMS[batch.algorithm].hidden:
        largest = HIDDEN_MARGIN * largest_eta(problem, float(settings.record_bound), facts.largest)
        first = [min(eta, largest) for eta in first]
        falling, rho = Constant(first, batch.epsilon), [1.0 / eta for eta in first]
    return (
        Constant(rho, batch.epsilon) if settings.rho == "auto" else rho_schedule(settings, batch.epsilon),
        falling if settings.eta == "auto" else eta_schedule(settings, batch.epsilon),
    )
