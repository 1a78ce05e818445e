"""The planner's view of a study: what its budget buys, and what other budgets, rounds and local updates would."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from taciturn.algorithms import ALGORITHMS
from taciturn.data import Facts
from taciturn.errors import InputError
from taciturn.objectives import LOSSES
from taciturn.planning.heuristics import (
    NOISE_STD,
    VERDICTS,
    Hyperparameters,
    agent_noise,
    noise_of_step,
    propose,
    release_noise,
)
from taciturn.planning.plan import StudyPlan, asked, facts_for, noise_meaning, plan_study
from taciturn.planning.study import StudyPart, local_updates, sampling_rate, upload_fields, with_absolute_paths
from taciturn.privacy.events import Nominal
from taciturn.privacy.sensitivity import ADJACENCIES, hidden_factor
from taciturn.privacy.trust import trust_sentence
from taciturn.settings import Settings

BUDGETS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
ROUNDS = (50, 100, 200, 300)
UPDATES = (1, 5, 10)
HIDDEN_CONTRACTION = 0.5  # with the planner's rho = 1 / eta


class Budget(NamedTuple):
    """One total budget, and what its noise does to the model."""

    total_epsilon: float
    noise_to_signal: float  # nu
    verdict: str
    chosen: bool


class RoundsOption(NamedTuple):
    """One way to spend the budget: T rounds of E local updates."""

    rounds: int
    local_updates: int
    noise_multiplier: float  # scale of an update's noise over its L2 sensitivity
    agent_noise: float  # norm of an update's noise over the largest norm of its gradient
    bytes_up: int  # sent by one agent in all rounds
    chosen: bool


class PlanReport(NamedTuple):
    """Everything `taciturn plan` shows; made from public facts alone."""

    study: StudyPlan
    part: StudyPart
    proposal: Hyperparameters
    budgets: list[Budget]
    paces: list[RoundsOption]

    def __repr__(self) -> str:
        """Short: the study holds a whole data set where that is published."""
        return (
            f"PlanView(rounds={self.proposal.rounds}, clip={self.proposal.clip:g}, verdict={self.proposal.verdict!r})"
        )


def plan_report(settings: Settings) -> PlanReport:
    """The plan of the first algorithm and budget, with its alternatives."""
    study = plan_study(settings)
    part, algorithm, epsilon = study.parts[0], settings.algorithm[0], settings.total_epsilon[0]
    if len(settings.total_epsilon) > 1:
        raise InputError("a plan is for one total-epsilon: others are shown beside it")
    if len(settings.algorithm) > 1:
        raise InputError(
            f"a plan is for one algorithm, and there are {len(settings.algorithm)}: --dry-run has them all"
        )
    filled, facts = study.settings, facts_for(study.facts, algorithm)
    question = asked(filled, facts, algorithm, epsilon)
    loss = LOSSES[filled.loss]()

    def at(total: float) -> Budget:
        made = propose(facts, loss, question._replace(total_epsilon=total))
        return Budget(total, made.noise_to_signal, made.verdict, total == epsilon)

    spread, share = release_noise(facts, question), question.share
    per_unit = NOISE_STD[filled.mechanism] * ADJACENCIES[filled.adjacency] * facts.max_records
    noise_on = ALGORITHMS[algorithm].noise_on
    hidden, by_update = noise_on == "hidden", noise_on in ("gradients", "hidden")  # the others do not charge by updates
    chosen = int(filled.rounds), local_updates(filled, algorithm)
    size = facts.features * facts.outputs * upload_fields(algorithm) * (8 if filled.precision == "float64" else 4)
    updates = UPDATES if ALGORITHMS[algorithm].local_updates else (1,)
    pairs = sorted({(t, e) for t in ROUNDS for e in updates} | {chosen})
    return PlanReport(
        study,
        part,
        propose(facts, loss, question),
        [at(total) for total in sorted({*BUDGETS, *settings.total_epsilon}) if math.isfinite(total)],
        [_pace(facts, spread, per_unit, pair, size, pair == chosen, hidden, share) for pair in pairs]
        if by_update
        else [],
    )


def _pace(
    facts: Facts,
    spread: float,
    per_unit: float,
    pair: tuple[int, int],
    size: int,
    chosen: bool,
    hidden: bool,
    share: float,
) -> RoundsOption:
    rounds, updates = pair
    charged = hidden_factor(HIDDEN_CONTRACTION, updates) if hidden else updates
    noise = spread * math.sqrt(rounds * charged)  # standard deviation over C / I
    return RoundsOption(rounds, updates, noise / per_unit, agent_noise(facts, share * noise), rounds * size, chosen)


RHO_STAYS = ("falling", "explicit", "constant", "exact", "central")  # paces that one number says; the others stay auto


def planned_settings(view: PlanReport, given: Iterable[str]) -> dict[str, Any]:
    """A config file's settings: those that were given, and every one the planner chose."""
    settings, part = with_absolute_paths(view.study.settings), view.part
    own = {"mode", "data", "algorithm", "delta", "mechanism", "adjacency", "clip", "rounds", "noise"}
    names = {*own, *given} - {"out", "name"}
    chosen = {name: getattr(settings, name) for name in sorted(names)}
    chosen |= {"total_epsilon": list(settings.total_epsilon[:1]), "algorithm": list(settings.algorithm[:1])}
    method = ALGORITHMS[settings.algorithm[0]]
    if method.local_updates:
        chosen["local_updates"] = local_updates(settings, settings.algorithm[0])
    if method.sampling is not None:
        chosen["sampling_rate"] = sampling_rate(settings, settings.algorithm[0])
    if settings.rho == "auto" and method.pace in RHO_STAYS:
        chosen["rho"] = float(part.algorithm.rho(1)[0, 0])
    if settings.eta == "auto" and method.pace in ("falling", "explicit", "constant"):
        first = float(part.eta(1)[0, 0])
        falls = method.pace != "constant"
        chosen |= {"eta": "level", "eta_scale": first} if falls else {"eta": first, "eta_scale": 1.0}
    if method.bounded:
        chosen["record_bound"] = settings.record_bound
    if settings.mechanism == "laplace":
        chosen["clip_l1"] = settings.clip_l1
    return {name: value for name, value in chosen.items() if value != ""}


def plan_facts(view: PlanReport) -> dict[str, Any]:
    """The plan as one JSON object."""
    plan, settings = view.part.plans[0], view.study.settings
    event = plan.event
    noise = {"scale": 0.0} if isinstance(event, Nominal) else {"scale": event.scale, "l2_sensitivity": event.l2}
    std = NOISE_STD[settings.mechanism] * noise_of_step(event)
    return {
        "total_epsilon": plan.total_epsilon,
        "delta": plan.delta,
        "planned_epsilon": plan.bound.epsilon,
        "accountant": plan.bound.accountant,
        "algorithm": settings.algorithm[0],
        "rounds": view.part.rounds,
        "local_updates": local_updates(settings, settings.algorithm[0]),
        "clip": settings.clip,
        "record_bound": settings.record_bound,
        "rho": float(view.part.algorithm.rho(1)[0, 0]),
        "eta": float(view.part.eta(1)[0, 0]),
        "eta_last": float(view.part.eta(view.part.rounds)[0, 0]),
        "noise": noise | {"std": std, "source": settings.noise, "meaning": noise_meaning(settings)},
        "trust": trust_sentence(settings.trust, settings.colluders),
        "noise_to_signal": view.proposal.noise_to_signal,
        "verdict": view.proposal.verdict,
        "public": view.study.facts._asdict(),
        "verdicts": [{"noise_to_signal": limit, "verdict": words} for limit, words in VERDICTS],
        "budgets": [budget._asdict() for budget in view.budgets],
        "paces": [pace._asdict() for pace in view.paces],
    }
