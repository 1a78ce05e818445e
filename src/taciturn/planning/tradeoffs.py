"""The report of `taciturn plan`: what a budget buys, and what other budgets, rounds and local updates would."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NotRequired, TypedDict, cast

from taciturn.algorithms import ALGORITHMS
from taciturn.data import Facts
from taciturn.errors import InputError
from taciturn.planning.evaluation_plan import EvaluationForecast, forecast_evaluations
from taciturn.planning.heuristics import (
    VERDICT_WORDS,
    Hyperparameters,
    PlanRequest,
    agent_noise,
    noise_of_step,
    noise_to_signal,
    propose,
    rare_shares,
    verdict,
    verdict_limits,
)
from taciturn.planning.plan import StudyPlan, facts_for, noise_meaning, plan_request, plan_study
from taciturn.planning.step_sizes import step_rule
from taciturn.planning.study import StudyPart, local_updates, sampling_rate, upload_bytes, with_absolute_paths
from taciturn.privacy.events import Nominal
from taciturn.privacy.mechanisms import DEVIATION
from taciturn.privacy.sensitivity import ADJACENCIES, hidden_factor
from taciturn.privacy.trust import AGENTS, SECURE_SUM, SERVER, noise_share, trust_sentence
from taciturn.secure_sum.parameters import default_missing
from taciturn.settings import Settings
from taciturn.settings.checks import COLLUDERS

BUDGETS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
ROUNDS = (50, 100, 200, 300)
UPDATES = (1, 5, 10)
SPARES = (1, 2, 3, 5, 10, 20, 50, 100)  # colluders and missing agents of a secure sum
HIDDEN_CONTRACTION = 0.5  # with the planner's rho = 1 / eta


class BudgetOption(NamedTuple):
    """One total budget, and what its noise does to the model."""

    total_epsilon: float
    noise_to_signal: float  # nu
    verdict: str
    if_rare: dict[str, str]  # the verdicts where the rarest class has the given share of the records
    chosen: bool


class RoundsOption(NamedTuple):
    """One way to spend the budget: T rounds of E local updates."""

    rounds: int
    local_updates: int
    noise_multiplier: float  # scale of an update's noise over its L2 sensitivity
    agent_noise: float  # norm of an update's noise over the largest norm of its gradient
    bytes_up: int  # sent by one agent in all rounds
    chosen: bool


class TrustOption(NamedTuple):
    """One way to add the noise, and what it does to the model."""

    trust: str
    spare: int  # c + d, the colluders and missing agents that a secure sum allows for; 0 for other trust models
    noise: float  # in a sum over all agents, relative to what a trusted server adds
    noise_to_signal: float  # nu
    verdict: str
    chosen: bool


class PlanReport(NamedTuple):
    """Everything that `taciturn plan` shows, from public facts alone.

    Parameters
    ----------
    study : StudyPlan
        The planned study.
    part : StudyPart
        The only batch of the study.
    proposal : Hyperparameters
        The planner's values for its run.
    budgets : list of BudgetOption
        The chosen budget and others.
    rounds_options : list of RoundsOption
        The chosen rounds and local updates, and others; empty if the method's cost does not depend on updates.
    evaluations : EvaluationForecast or None
        What private evaluations will show; None if there are none.
    trust_options : list of TrustOption
        The chosen trust model and others, by their noise: all of them for a secure sum; for noise at every agent that
        and one secure sum; empty where a secure sum is not possible.
    """

    study: StudyPlan
    part: StudyPart
    proposal: Hyperparameters
    budgets: list[BudgetOption]
    rounds_options: list[RoundsOption]
    trust_options: list[TrustOption]
    evaluations: EvaluationForecast | None

    @property
    def verdict_bands(self) -> list[tuple[float, str]]:
        """The noise to signal up to which each verdict holds, with its words."""
        return list(zip(verdict_limits(self.study.facts), VERDICT_WORDS, strict=True))

    def __repr__(self) -> str:
        """Return a short form; the study holds a whole data set if that is published."""
        rounds, clip = self.part.rounds, self.study.settings.clip
        return f"PlanReport(rounds={rounds}, clip={clip:g}, verdict={self.proposal.verdict!r})"


def plan_report(settings: Settings) -> PlanReport:
    """Return the plan of one algorithm and one budget, with its alternatives.

    Parameters
    ----------
    settings : Settings
        The settings.

    Returns
    -------
    PlanReport

    Raises
    ------
    InputError
        If the settings have several algorithms or budgets, or cannot be planned.
    """
    study = plan_study(settings)
    if len(settings.total_epsilon) > 1:
        raise InputError("a plan needs exactly one total-epsilon; it shows other values for comparison")
    if len(settings.algorithm) > 1:
        raise InputError(
            f"a plan is for one algorithm, and there are {len(settings.algorithm)}; use --dry-run for all of them"
        )
    part, algorithm, epsilon = study.parts[0], settings.algorithm[0], settings.total_epsilon[0]
    facts = facts_for(study.facts, algorithm, study.settings.adjacency)
    request = plan_request(study.settings, facts, algorithm, epsilon)
    proposal = part.proposals[0] if part.proposals else propose(facts, study.problem.loss, request)

    def budget(total: float) -> BudgetOption:
        nu = noise_to_signal(facts, request._replace(total_epsilon=total))
        if_rare = {f"{share:g}": verdict(nu, verdict_limits(facts, share)) for share in rare_shares(facts)}
        return BudgetOption(total, nu, verdict(nu, verdict_limits(facts)), if_rare, total == epsilon)

    totals = [total for total in sorted({*BUDGETS, epsilon}) if math.isfinite(total)]
    options = _rounds_options(study.settings, facts, request, algorithm, proposal.release_noise)
    trusts = _trust_options(study.settings, facts, request, algorithm)
    evaluations = forecast_evaluations(study.settings, facts, part.plans[0].evaluation)
    return PlanReport(study, part, proposal, [budget(total) for total in totals], options, trusts, evaluations)


def _rounds_options(
    settings: Settings, facts: Facts, request: PlanRequest, algorithm: str, release_noise: float
) -> list[RoundsOption]:
    """Return the alternatives of methods that are charged for every update, with the same total noise."""
    spec = ALGORITHMS[algorithm]
    if spec.noise_on not in ("gradients", "hidden"):
        return []
    per_unit = DEVIATION[settings.mechanism] * ADJACENCIES[settings.adjacency] * facts.max_records
    size = upload_bytes(settings, algorithm, facts.features * facts.outputs)
    chosen = int(settings.rounds), local_updates(settings, algorithm)
    options = []
    for rounds, updates in sorted(
        {(t, e) for t in ROUNDS for e in (UPDATES if spec.local_updates else (1,))} | {chosen}
    ):
        charged = hidden_factor(HIDDEN_CONTRACTION, updates) if spec.noise_on == "hidden" else updates
        noise = release_noise * math.sqrt(rounds * charged)  # standard deviation over C / I
        share = agent_noise(facts, request.noise_share * noise)
        options.append(
            RoundsOption(rounds, updates, noise / per_unit, share, rounds * size, (rounds, updates) == chosen)
        )
    return options


def _trust_options(settings: Settings, facts: Facts, request: PlanRequest, algorithm: str) -> list[TrustOption]:
    """Return what a secure sum costs or would buy, beside noise at every agent and at a trusted server."""
    agents, chosen = facts.agents, settings.colluders + settings.missing
    possible = agents >= 3 and settings.mechanism == "gaussian" and settings.set == "all"
    if not possible or math.isinf(request.total_epsilon) or ALGORITHMS[algorithm].central:
        return []

    def option(trust: str, spare: int, reserve: int) -> TrustOption:
        share = noise_share(trust, agents, spare)
        nu = noise_to_signal(facts, request._replace(noise_share=share, reserve=reserve))
        least = noise_to_signal(facts, request._replace(noise_share=noise_share(SERVER, agents, 0), reserve=0))
        own = trust == settings.trust and spare in (0, chosen)
        return TrustOption(trust, spare, nu / least, nu, verdict(nu, verdict_limits(facts)), own)

    alone = option(AGENTS, 0, 0)
    if settings.trust == SECURE_SUM:
        spares = sorted({*(spare for spare in SPARES if 2 * spare <= agents), chosen})
        sums = [option(SECURE_SUM, spare, settings.reserve) for spare in spares]
        return [option(SERVER, 0, 0), *sums, alone]
    spare = COLLUDERS + default_missing(agents)
    return [option(SECURE_SUM, spare, 0), alone] if settings.trust == AGENTS else []


def planned_settings(report: PlanReport, given: Iterable[str]) -> dict[str, object]:
    """Return the settings of a config file: those that were given, and every one that the planner chose.

    Parameters
    ----------
    report : PlanReport
        The report of the plan.
    given : iterable of str
        The names of the settings that the user gave.

    Returns
    -------
    dict
        Values for TOML, by name.
    """
    settings, part = with_absolute_paths(report.study.settings), report.part
    algorithm = settings.algorithm[0]
    spec, rule = ALGORITHMS[algorithm], step_rule(algorithm)
    always = {"mode", "data", "algorithm", "delta", "mechanism", "adjacency", "clip", "rounds", "noise"}
    chosen = {name: getattr(settings, name) for name in sorted({*always, *given} - {"out", "name"})}
    chosen |= {"total_epsilon": list(settings.total_epsilon[:1]), "algorithm": [algorithm]}
    if spec.local_updates:
        chosen["local_updates"] = local_updates(settings, algorithm)
    if spec.sampling is not None:
        chosen["sampling_rate"] = sampling_rate(settings, algorithm)
    if settings.rho == "auto" and rule.constant_rho:
        chosen["rho"] = float(part.algorithm.rho(1)[0, 0])
    if settings.eta == "auto" and rule.eta_setting != "auto":
        first = float(part.eta(1)[0, 0])
        level = rule.eta_setting == "level"
        chosen |= {"eta": "level", "eta_scale": first} if level else {"eta": first, "eta_scale": 1.0}
    if spec.scales_records:
        chosen["record_bound"] = settings.record_bound
    if settings.mechanism == "laplace":
        chosen["clip_l1"] = settings.clip_l1
    return {name: value for name, value in chosen.items() if value != ""}


class PlannedNoise(TypedDict):
    """The noise of a plan, as JSON."""

    scale: float
    l2_sensitivity: NotRequired[float]  # missing without noise
    std: float
    source: str
    meaning: str


class PlanFacts(TypedDict):
    """What `taciturn plan --json` prints."""

    total_epsilon: float
    delta: float
    planned_epsilon: float
    accountant: str
    algorithm: str
    rounds: int
    local_updates: int
    clip: float | str
    record_bound: float | str
    rho: float
    eta: float
    eta_last: float
    noise: PlannedNoise
    trust: str
    noise_to_signal: float
    verdict: str
    public: Mapping[str, object]
    verdicts: list[dict[str, float | str]]
    budgets: list[dict[str, float | str]]
    paces: list[dict[str, float]]
    trust_options: list[dict[str, float | str]]
    evaluations: dict[str, object] | None


def plan_facts(report: PlanReport) -> PlanFacts:
    """Return the report as a JSON object.

    Parameters
    ----------
    report : PlanReport
        The report of the plan.

    Returns
    -------
    PlanFacts
    """
    part, settings = report.part, report.study.settings
    plan, event = part.plans[0], part.plans[0].event
    noise: dict[str, object] = (
        {"scale": 0.0} if isinstance(event, Nominal) else {"scale": event.scale, "l2_sensitivity": event.l2}
    )
    std = DEVIATION[settings.mechanism] * noise_of_step(event)
    return {
        "total_epsilon": plan.total_epsilon,
        "delta": plan.delta,
        "planned_epsilon": plan.bound.epsilon,
        "accountant": plan.bound.accountant,
        "algorithm": settings.algorithm[0],
        "rounds": part.rounds,
        "local_updates": local_updates(settings, settings.algorithm[0]),
        "clip": settings.clip,
        "record_bound": settings.record_bound,
        "rho": float(part.algorithm.rho(1)[0, 0]),
        "eta": float(part.eta(1)[0, 0]),
        "eta_last": float(part.eta(part.rounds)[0, 0]),
        "noise": cast(PlannedNoise, noise | {"std": std, "source": settings.noise, "meaning": noise_meaning(settings)}),
        "trust": trust_sentence(settings.trust, settings.colluders),
        "noise_to_signal": report.proposal.noise_to_signal,
        "verdict": report.proposal.verdict,
        "public": report.study.facts.recorded(),
        "verdicts": [{"noise_to_signal": limit, "verdict": words} for limit, words in report.verdict_bands],
        "budgets": [option._asdict() for option in report.budgets],
        "paces": [option._asdict() for option in report.rounds_options],
        "trust_options": [option._asdict() for option in report.trust_options],
        "evaluations": _evaluation_facts(report.evaluations),
    }


def _evaluation_facts(forecast: EvaluationForecast | None) -> dict[str, object] | None:
    if forecast is None:
        return None
    return forecast._asdict() | {"options": [option._asdict() for option in forecast.options]}
