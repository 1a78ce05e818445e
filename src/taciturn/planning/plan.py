"""A study in certified mode: all but the training itself is decided from public facts, before a record is read."""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from typing import NamedTuple

from taciturn.algorithms import ALGORITHMS
from taciturn.data import (
    Facts,
    check_dealt_sizes,
    check_facts,
    declared_facts,
    load,
    load_unmapped,
    mapped,
    source_for,
    within_sizes,
)
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, Problem
from taciturn.planning.heuristics import Hyperparameters, PlanRequest, default_clip, propose, wide_l1
from taciturn.planning.noise_plan import calibrate_noise, check_method, gradient_bound, hessian_trace
from taciturn.planning.paper_mode import fill_in_strong_convexity
from taciturn.planning.step_sizes import (
    LARGEST_STEP,
    OWN_ROUNDS,
    STEP_RULES,
    StepSizeInputs,
    StepSizes,
    checked_smoothness,
    eta_schedule,
    rho_schedule,
)
from taciturn.planning.study import (
    Batch,
    Study,
    StudyPart,
    batches,
    build_algorithm,
    build_problem,
    local_updates,
    sampling_rate,
    with_agents,
)
from taciturn.privacy.composition import StudyCost, total_cost
from taciturn.privacy.noise import HARDENED
from taciturn.privacy.trust import noise_share
from taciturn.settings import Settings
from taciturn.types import Dataset


class StudyPlan(NamedTuple):
    """A study of which no record has been read yet."""

    settings: Settings
    facts: Facts
    problem: Problem
    parts: list[StudyPart]
    dataset: Dataset | None  # a published data set, which was read for its sizes; before the feature map

    @property
    def cost(self) -> StudyCost:
        """What all its runs together cost a ledger over studies."""
        return total_cost(plan.cost for part in self.parts for plan in part.plans)


def plan_study(settings: Settings) -> StudyPlan:
    """The whole study from its settings and public facts."""
    published = load_unmapped(settings.data_options()) if source_for(settings.data).published else None
    return plan_from_facts(settings, public_facts(settings, published), published)


def plan_from_facts(settings: Settings, facts: Facts, published: Dataset | None = None) -> StudyPlan:
    """The whole study from its settings and the facts given."""
    loss = settings.loss if settings.loss != "auto" else "softmax" if facts.classes else "squared"
    scaled = any(ALGORITHMS[name].bounded for name in settings.algorithm)
    widest = 0.75 * facts.typical if scaled else facts.bound  # longer records are scaled down to it
    bound = widest if settings.record_bound == "auto" else float(settings.record_bound)
    given = replace(settings, loss=loss, record_bound=bound)
    problem = build_problem(given, facts.name, facts.classes, facts.total_records, facts.agents)
    settings = _fill_in(given, facts, problem)
    parts = [_part(settings, facts, problem, batch) for batch in batches(settings)]
    while (fewest := min(map(_fitting, parts), default=math.inf)) < int(settings.rounds):
        if given.rounds != "auto":
            raise _too_many(settings, int(fewest))
        settings = replace(settings, rounds=int(fewest))  # planned again: steps go by the number of rounds
        parts = [_part(settings, facts, problem, batch) for batch in batches(settings)]
    return StudyPlan(settings, facts, problem, parts, published)


def _fitting(part: StudyPart) -> float:
    """How many of the rounds asked for its budget has room for; a method may have a number of its own."""
    return math.inf if ALGORITHMS[part.batch.algorithm].rounds else part.rounds


def _too_many(settings: Settings, fewest: int) -> InputError:
    """More rounds are asked for than a given noise leaves room for."""
    budget, multiplier = settings.total_epsilon[0], float(settings.noise_multiplier)
    fit = f"{fewest} round{' fits' if fewest == 1 else 's fit'}"
    return InputError(
        f"rounds is {settings.rounds}, but with noise-multiplier {multiplier:g} only {fit} total-epsilon {budget:g}: "
        f"give rounds {fewest} or auto, a larger noise-multiplier or total-epsilon, or noise-multiplier auto"
    )


def load_data(plan: StudyPlan, dataset: Dataset | None = None, key: int | None = None) -> Study:
    """Read the records, or take those given, and refuse what contradicts what was declared.

    Of a table, an agent's records beyond what was declared are left out.

    `key`: of who holds which private record (`drawn_key`). It goes with the study and not with its settings, which
    anybody may see.
    """
    options = plan.settings.data_options(key)
    if dataset is None and plan.dataset is not None:
        dataset = mapped(plan.dataset, options)
    elif dataset is None:
        check_dealt_sizes(plan.facts, options)
        dataset = within_sizes(plan.facts, load(options))
    check_facts(plan.facts, dataset)
    settings = with_agents(plan.settings, dataset)
    settings = replace(settings, partition_key="auto") if settings.private else settings
    return Study(settings, dataset, plan.problem, plan.parts, plan.facts, key)


def drawn_key(settings: Settings) -> int | None:
    """The partition's key of a study of private records: the one that was given, else one that nobody knows."""
    if not settings.private:
        return None
    return secrets.randbits(128) if settings.partition_key == "auto" else int(settings.partition_key)


def noise_meaning(settings: Settings) -> str:
    """Where the noise comes from, and whether it protects anybody."""
    if min(settings.total_epsilon) == math.inf:
        return "no noise: it protects nobody"
    if settings.noise == HARDENED:
        return "noise from the operating system (hardened): it protects, and nobody can draw it again"
    return f"noise from seed {settings.seed} (seeded): a simulation, which protects nobody"


def public_facts(settings: Settings, published: Dataset | None = None) -> Facts:
    """What is public about the data."""
    total, most = settings.total_records, settings.records_max
    declared = None if isinstance(total, str) else total
    return declared_facts(settings.data_options(), declared, None if isinstance(most, str) else most, published)


def proposal(settings: Settings, facts: Facts, algorithm: str, epsilon: float) -> Hyperparameters:
    """The planner's values for one run, with those the settings fix."""
    return propose(facts, LOSSES[settings.loss](), asked(settings, facts, algorithm, epsilon))


def asked(settings: Settings, facts: Facts, algorithm: str, epsilon: float) -> PlanRequest:
    """What the settings fix of a run."""
    method = ALGORITHMS[algorithm]
    rounds = method.rounds or (OWN_ROUNDS.get(method.pace) if settings.rounds == "auto" else int(settings.rounds))
    return PlanRequest(
        epsilon,
        settings.delta,
        local_updates(settings, algorithm),
        settings.mechanism,
        settings.adjacency,
        settings.noise == "hardened",
        rounds,
        None if settings.clip == "auto" else float(settings.clip),
        None if settings.noise_multiplier == "auto" else float(settings.noise_multiplier),
        sampling_rate(settings, algorithm) if method.noise_on == "samples" else 1.0,
        LARGEST_STEP.get(method.pace),
        noise_share(settings.trust, facts.agents, settings.colluders),
    )


def _fill_in(settings: Settings, facts: Facts, problem: Problem) -> Settings:
    """Rounds and clip, the same for all runs of a study; rho and eta may differ between budgets and stay auto."""
    open_ended = [name for name in settings.algorithm if ALGORITHMS[name].rounds is None]
    made = [proposal(settings, facts, name, epsilon) for name in open_ended for epsilon in settings.total_epsilon]
    if settings.rounds == "auto":
        settings = replace(settings, rounds=max((one.rounds for one in made), default=1))
    if settings.clip == "auto":
        settings = replace(settings, clip=default_clip(facts))
    if settings.clip_l1 == "auto":
        wide = wide_l1(facts) * float(settings.clip)
        settings = replace(settings, clip_l1=wide if settings.mechanism == "laplace" else math.inf)
    if settings.mechanism == "laplace" and math.isinf(float(settings.clip_l1)):
        raise InputError("clip-l1 is inf, but laplace noise is scaled to the L1 sensitivity: it needs a finite bound")
    if settings.eta == "smooth" and settings.smoothness == "auto":
        smoothness = problem.public_smoothness(facts.bound, facts.largest)
        settings = replace(settings, smoothness=checked_smoothness(settings, smoothness))
    return fill_in_strong_convexity(settings, problem)


def _part(settings: Settings, facts: Facts, problem: Problem, batch: Batch) -> StudyPart:
    facts = facts_for(facts, batch.algorithm)
    problem = replace(problem, agents=facts.agents)
    check_method(settings, facts, problem, batch.algorithm)
    pace = _pace(settings, facts, problem, batch)
    protection = calibrate_noise(settings, facts, problem, batch, pace)
    algorithm = build_algorithm(settings, problem, batch, *pace, protection.release, **protection.cover)
    return StudyPart(batch, algorithm, protection.rounds, pace.eta, protection.plans)


def facts_for(facts: Facts, algorithm: str) -> Facts:
    """The facts as a method has them: a curator is one agent with all records."""
    if not ALGORITHMS[algorithm].central:
        return facts
    most = facts.records_max
    everybody = facts.agents * most if isinstance(most, int) else sum(most.values())
    return facts._replace(agents=1, records_max=everybody)


def _pace(settings: Settings, facts: Facts, problem: Problem, batch: Batch) -> StepSizes:
    """rho and eta: the planner's for each run where they are auto."""
    rounds = ALGORITHMS[batch.algorithm].rounds or int(settings.rounds)
    planned = None
    if "auto" in (settings.rho, settings.eta):
        bounded = _with_bound(settings, problem, batch.algorithm)
        made = {epsilon: proposal(bounded, facts, batch.algorithm, epsilon) for epsilon in set(batch.budgets)}
        trace = hessian_trace(settings, facts, problem)
        runs = tuple(made[epsilon] for epsilon in batch.budgets)
        planned = STEP_RULES[ALGORITHMS[batch.algorithm].pace](
            StepSizeInputs(settings, facts, problem, batch, runs, trace, rounds)
        )
    return StepSizes(
        planned.rho if planned and settings.rho == "auto" else rho_schedule(settings, batch.epsilon),
        planned.eta if planned and settings.eta == "auto" else eta_schedule(settings, batch.epsilon),
    )


def _with_bound(settings: Settings, problem: Problem, algorithm: str) -> Settings:
    """The settings with the clip that bounded records amount to, where steps fall as those of clipped gradients do."""
    method = ALGORITHMS[algorithm]
    if not method.bounded or method.pace == "constant":
        return settings
    return replace(settings, clip=gradient_bound(settings, problem, method))
