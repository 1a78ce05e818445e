"""Studies in certified mode: everything but the training is decided from public facts, before any record is read."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from taciturn.algorithms import ALGORITHMS
from taciturn.algorithms.schedules import HiddenSteps
from taciturn.data import (
    Facts,
    apply_feature_map,
    check_facts,
    check_partition_sizes,
    check_total,
    declared_facts,
    load,
    load_unmapped,
    note_sizes,
    record_split,
    source_for,
)
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.planning.heuristics import Hyperparameters, PlanRequest, default_clip, propose, propose_rounds, wide_l1
from taciturn.planning.noise_plan import (
    calibrate_noise,
    check_contraction,
    check_guarantee,
    gradient_bound,
    hessian_trace,
)
from taciturn.planning.step_sizes import (
    StepSizeInputs,
    StepSizes,
    eta_schedule,
    fill_in_eta_constants,
    rho_schedule,
    step_rule,
)
from taciturn.planning.study import (
    Batch,
    Study,
    StudyPart,
    batches,
    build_algorithm,
    build_problem,
    local_updates,
    loss_name,
    sampling_rate,
    with_agents,
)
from taciturn.privacy.calibration import delta_condition
from taciturn.privacy.composition import StudyCost, total_cost
from taciturn.settings import Settings
from taciturn.types import Dataset


class StudyPlan(NamedTuple):
    """A planned study, before any private record is read.

    Parameters
    ----------
    settings : Settings
        With rounds, clip and record bound filled in; rho and eta may differ between budgets and stay "auto".
    facts : Facts
        The public facts about the data.
    problem : Problem
        The learning problem.
    parts : list of StudyPart
        One for each batch.
    dataset : Dataset, optional
        A published data set, which was read for its sizes; before the feature map.
    """

    settings: Settings
    facts: Facts
    problem: Problem
    parts: list[StudyPart]
    dataset: Dataset | None

    @property
    def cost(self) -> StudyCost:
        """The cost of all runs together for training records, to a ledger over studies."""
        return total_cost(plan.cost for part in self.parts for plan in part.plans)

    @property
    def held_out_cost(self) -> StudyCost:
        """The cost of all runs together for held-out records, to a ledger over studies."""
        return total_cost(plan.held_out_cost for part in self.parts for plan in part.plans)


def plan_study(settings: Settings) -> StudyPlan:
    """Plan a study from its settings and the public facts about its data.

    Parameters
    ----------
    settings : Settings
        The settings.

    Returns
    -------
    StudyPlan

    Raises
    ------
    InputError
        If a method's guarantee does not cover the settings, or if no noise keeps a budget.
    """
    published = load_unmapped(settings.data_options()) if source_for(settings.data).published else None
    return plan_from_facts(settings, public_facts(settings, published), published)


def plan_from_facts(settings: Settings, facts: Facts, published: Dataset | None = None) -> StudyPlan:
    """Plan a study from its settings and the given facts; see `plan_study`."""
    _check_delta(settings, facts)
    scaled = any(ALGORITHMS[name].scales_records for name in settings.algorithm)
    widest = 0.75 * facts.typical if scaled else facts.bound  # longer records are scaled down to it
    bound = widest if settings.record_bound == "auto" else float(settings.record_bound)
    given = replace(settings, loss=loss_name(settings, facts.classes), record_bound=bound)
    problem = build_problem(given, facts.name, facts.classes, facts.total_records, facts.agents)
    settings = _fill_in(given, facts, problem)
    parts = [plan_batch(settings, facts, problem, batch) for batch in batches(settings)]
    while (fewest := min(map(_affordable, parts), default=math.inf)) < int(settings.rounds):
        if given.rounds != "auto":
            raise _too_many_rounds(settings, int(fewest))
        settings = replace(settings, rounds=int(fewest))  # planned again, because steps depend on the rounds
        parts = [plan_batch(settings, facts, problem, batch) for batch in batches(settings)]
    for part in parts:
        least = ALGORITHMS[part.batch.algorithm].min_rounds
        if part.rounds < least:
            raise InputError(f"rounds is {part.rounds}; {part.batch.algorithm} needs at least {least} to give a model")
    return StudyPlan(settings, facts, problem, parts, published)


def _check_delta(settings: Settings, facts: Facts) -> None:
    """Refuse a delta at which publishing a random record would keep every budget."""
    least = 1.0 / facts.total_records
    if settings.delta >= least and min(settings.total_epsilon) < math.inf:
        condition = delta_condition(settings.delta, facts.total_records)
        raise InputError(f"{condition}; choose one far below {least:.2g}, such as {0.01 * least:.0e}")


def _affordable(part: StudyPart) -> float:
    """Return the rounds that a batch's budget allows; unlimited if the method has a fixed number."""
    return math.inf if ALGORITHMS[part.batch.algorithm].rounds else part.rounds


def _too_many_rounds(settings: Settings, fewest: int) -> InputError:
    budget, multiplier = settings.total_epsilon[0], float(settings.noise_multiplier)
    fit = f"{fewest} round{' fits' if fewest == 1 else 's fit'}"
    return InputError(
        f"rounds is {settings.rounds}, but with noise-multiplier {multiplier:g} only {fit} total-epsilon {budget:g}: "
        f"give rounds {fewest} or auto, a larger noise-multiplier or total-epsilon, or noise-multiplier auto"
    )


def load_data(plan: StudyPlan, dataset: Dataset | None = None, key: int | None = None) -> Study:
    """Read the records, or take those given, and check them against the declared facts.

    Parameters
    ----------
    plan : StudyPlan
        The plan.
    dataset : Dataset, optional
        The records, if the caller has them.
    key : int, optional
        The key by which private records are partitioned (`drawn_key`); not a setting, because settings are public.

    Returns
    -------
    Study
        Without the records of a table's agents beyond the declared sizes.

    Raises
    ------
    InputError
        If the records contradict the facts.
    """
    options = plan.settings.data_options(key)
    if dataset is None and plan.dataset is not None:
        dataset = apply_feature_map(plan.dataset, options)
    elif dataset is None:
        check_partition_sizes(plan.facts, options)
        dataset = check_total(plan.facts, note_sizes(plan.facts, load(options)))
    check_facts(plan.facts, dataset)
    settings = with_agents(plan.settings, dataset)
    settings = replace(settings, partition_key="auto") if settings.private else settings
    return Study(settings, dataset, plan.problem, plan.parts, plan.facts, key)


def drawn_key(settings: Settings) -> int | None:
    """Return the partition key of a study of private records: the given one, or a random one."""
    if not settings.private:
        return None
    return secrets.randbits(128) if settings.partition_key == "auto" else int(settings.partition_key)


def study_split(settings: Settings, key: int | None) -> str:
    """Return a name for the rule by which a study's records train or are held out; see `record_split`.

    Parameters
    ----------
    settings
        The settings.
    key
        The key that was drawn for a study of private records.
    """
    return record_split(settings.data_options(key))


def noise_meaning(settings: Settings) -> str:
    """Return where the noise comes from and whether it protects, as a phrase."""
    if min(settings.total_epsilon) == math.inf:
        return "no noise: it protects nobody"
    if settings.hardened:
        return "noise from the operating system (hardened): it protects, and cannot be drawn again"
    return f"noise from seed {settings.seed} (seeded): a simulation, which protects nobody"


def public_facts(settings: Settings, published: Dataset | None = None) -> Facts:
    """Return the public facts about the data: declared in the settings, or read from a published data set."""
    total, most = settings.total_records, settings.records_max
    declared = None if isinstance(total, str) else total
    return declared_facts(settings.data_options(), declared, None if isinstance(most, str) else most, published)


def plan_request(settings: Settings, facts: Facts, algorithm: str, epsilon: float) -> PlanRequest:
    """Return what the settings fix of one run with the total budget `epsilon`."""
    spec, rule = ALGORITHMS[algorithm], step_rule(algorithm)
    return PlanRequest(
        total_epsilon=epsilon,
        delta=settings.delta,
        updates=local_updates(settings, algorithm),
        mechanism=settings.mechanism,
        adjacency=settings.adjacency,
        hardened=settings.hardened,
        rounds=spec.rounds or (rule.rounds if settings.rounds == "auto" else int(settings.rounds)),
        clip=None if settings.clip == "auto" else float(settings.clip),
        noise_multiplier=None if settings.noise_multiplier == "auto" else float(settings.noise_multiplier),
        sampling=sampling_rate(settings, algorithm) if spec.noise_on == "samples" else 1.0,
        max_step=rule.max_step,
        noise_share=settings.noise_share(facts.agents),
        reserve=settings.reserve,
    )


def _fill_in(settings: Settings, facts: Facts, problem: Problem) -> Settings:
    """Fill in rounds, clip and the constants of eta, which all runs of a study share."""
    if settings.rounds == "auto":
        free = [name for name in settings.algorithm if ALGORITHMS[name].rounds is None]
        rounds = [propose_rounds(*request) for request in _requests(settings, facts, free)]
        settings = replace(settings, rounds=max(rounds, default=1))
    if settings.clip == "auto":
        requests = _requests(settings, facts, settings.algorithm)
        clips = [default_clip(seen, problem.loss, request) for seen, request in requests]
        settings = replace(settings, clip=min(clips))  # for the smallest budget, which has the most noise
    if settings.clip_l1 == "auto":
        wide = wide_l1(facts) * float(settings.clip)
        settings = replace(settings, clip_l1=wide if settings.mechanism == "laplace" else math.inf)
    if settings.mechanism == "laplace" and math.isinf(float(settings.clip_l1)):
        raise InputError("clip-l1 is inf, but laplace noise is scaled to the L1 sensitivity; it must be finite")
    return fill_in_eta_constants(settings, problem, lambda: problem.public_smoothness(facts.bound, facts.largest))


def _requests(settings: Settings, facts: Facts, names: Sequence[str]) -> Iterator[tuple[Facts, PlanRequest]]:
    """Yield the request of every algorithm and budget, with the facts that it is planned from."""
    for name in names:
        seen = _with_displaced_rows(facts, name, settings.adjacency)
        for epsilon in settings.total_epsilon:
            yield seen, plan_request(settings, facts, name, epsilon)


def plan_batch(settings: Settings, facts: Facts, problem: Problem, batch: Batch) -> StudyPart:
    """Plan one batch: check its guarantee, choose its step sizes, calibrate its noise and build its algorithm.

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

    Returns
    -------
    StudyPart
    """
    facts = facts_for(facts, batch.algorithm, settings.adjacency)
    problem = replace(problem, agents=facts.agents)
    check_guarantee(settings, facts, problem, batch.algorithm)
    proposals: tuple[Hyperparameters, ...] = ()
    if "auto" in (settings.rho, settings.eta):
        proposals = _proposals(settings, facts, problem, batch)
    steps = _step_sizes(settings, facts, problem, batch, proposals)
    check_contraction(settings, facts, problem, batch.algorithm, steps.eta)
    noise = calibrate_noise(settings, facts, problem, batch, steps)
    algorithm = build_algorithm(settings, problem, batch, *steps, noise.release, noise)
    return StudyPart(batch, algorithm, noise.rounds, steps.eta, noise.plans, proposals, noise.measure)


def facts_for(facts: Facts, algorithm: str, adjacency: str) -> Facts:
    """Return the facts as a method sees them: a curator is one agent with all records. `dataset_for` does the same."""
    facts = _with_displaced_rows(facts, algorithm, adjacency)
    return facts._replace(agents=1, records_max=facts.records_of_all) if ALGORITHMS[algorithm].central else facts


def _with_displaced_rows(facts: Facts, algorithm: str, adjacency: str) -> Facts:
    """Return the facts with twice the rows of a unit if adding one can push as many rows of others out.

    A method that must contract uses the declared number of an agent's records. Replacing a unit counts twice already.
    """
    displaces = ALGORITHMS[algorithm].requires_contraction and not facts.published
    return facts._replace(max_records=2 * facts.max_records) if displaces and adjacency == "add-remove" else facts


def _proposals(settings: Settings, facts: Facts, problem: Problem, batch: Batch) -> tuple[Hyperparameters, ...]:
    """Return the planner's values for every run; scaled records act as a clip, except for hidden steps."""
    spec = ALGORITHMS[batch.algorithm]
    if spec.scales_records and spec.step_kind is not HiddenSteps:
        settings = replace(settings, clip=gradient_bound(settings, problem, spec))
    by_budget = {
        epsilon: propose(facts, problem.loss, plan_request(settings, facts, batch.algorithm, epsilon))
        for epsilon in set(batch.budgets)
    }
    return tuple(by_budget[epsilon] for epsilon in batch.budgets)


def _step_sizes(
    settings: Settings, facts: Facts, problem: Problem, batch: Batch, proposals: tuple[Hyperparameters, ...]
) -> StepSizes:
    """Return rho and eta of every run: those of the settings, or the planner's where they are auto."""
    planned = None
    if proposals:
        rounds = ALGORITHMS[batch.algorithm].rounds or int(settings.rounds)
        trace = hessian_trace(settings, facts, problem)
        requests = tuple(plan_request(settings, facts, batch.algorithm, epsilon) for epsilon in batch.budgets)
        inputs = StepSizeInputs(settings, facts, problem, batch, proposals, trace, rounds, requests)
        planned = step_rule(batch.algorithm).step_sizes(inputs)
    return StepSizes(
        planned.rho if planned and settings.rho == "auto" else rho_schedule(settings, batch.epsilon),
        planned.eta if planned and settings.eta == "auto" else eta_schedule(settings, batch.epsilon),
    )


def reservation_cost(plan: StudyPlan) -> StudyCost:
    """Return what the whole study reserves in a budget ledger.

    Raises
    ------
    InputError
        If the noise has a known seed, or the events have neither a Gaussian DP nor a zCDP cost.
    """
    if not plan.settings.hardened:
        raise InputError("a budget ledger needs --noise hardened: noise from a known seed can be removed")
    if not (plan.cost.finite and plan.held_out_cost.finite):
        raise InputError(
            "this run cannot be reserved in a budget ledger: such a ledger adds up Gaussian DP or zCDP costs, which "
            "runs without noise, of random samples or of objectives with Gaussian noise do not have"
        )
    return plan.cost
