"""A run's privacy for the page: budget meters, the ledger, and the settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from taciturn.privacy.accountants import EpsilonBound, describe_accountant, tightest
from taciturn.privacy.events import Event
from taciturn.reporting.curves import run_label
from taciturn.reporting.statements import PAPER_HEADLINE, headline, holds, paper_statement
from taciturn.reporting.tables import format_epsilon, format_setting
from taciturn.runs.folder import RunFolder, public_config
from taciturn.runs.ledger import RunLedger
from taciturn.runs.records import LedgerEntry, NonPrivateEntry, PlanEntry, ReleaseEntry, RunTotals, StudyHeader

SHOWN = 300  # newest lines of a ledger; a hardened run has one per agent and round


@dataclass(frozen=True)
class BudgetMeter:
    """The privacy budget of one or more agents in one run, as text and as shares of the plan (0 to 1)."""

    spent: str
    left: str
    next: str  # cost of the next round; empty if the plan has no round left
    share: float
    next_share: float
    accountant: str
    names: tuple[str, ...] = ()  # of the agents that have spent this


@dataclass(frozen=True)
class RunMeter:
    """The meters of one run, or of several seeds that have spent the same."""

    label: str
    planned: str
    finite: bool
    rounds: int
    waiting: int  # rounds done that the next checkpoint charges
    agents: tuple[BudgetMeter, ...]
    seeds: int = 1


@dataclass(frozen=True)
class PrivacyReply:
    """The guarantee in one sentence and the meters; `reasons` says why a run in paper mode has none."""

    headline: str
    good: bool
    reasons: Sequence[str]
    runs: list[RunMeter]
    delta: float


@dataclass(frozen=True)
class LedgerTotal:
    """Totals of the agents of a run that have spent the same."""

    run: int
    agents: list[str]
    spent: str
    left: str
    pure: str  # epsilon at delta = 0


@dataclass(frozen=True)
class LedgerLine:
    """One line of a ledger."""

    line: int
    kind: str
    run: int | None
    agent: str
    rounds: str
    what: str
    count: int | None


@dataclass(frozen=True)
class LedgerReply:
    """A verified ledger: its totals and its newest lines."""

    lines: int
    delta: float
    together: str
    totals: list[LedgerTotal]
    entries: list[LedgerLine]


@dataclass(frozen=True)
class ShownSetting:
    """A setting of a run and, if there is a second run, of that one."""

    name: str
    value: str
    other: str | None = None
    differs: bool = False


@dataclass(frozen=True)
class SettingsReply:
    """Every setting of a run."""

    settings: list[ShownSetting]


def privacy_reply(ledger: RunLedger, rounds_done: Mapping[int, int]) -> PrivacyReply:
    """Return a budget meter for every algorithm and budget.

    Parameters
    ----------
    ledger : RunLedger
        The ledger of the run folder.
    rounds_done : mapping
        The last round of every run, charged or not yet.
    """
    study, totals = ledger.study, ledger.totals
    if study.mode == "paper":
        return PrivacyReply(PAPER_HEADLINE, False, paper_statement(ledger).reasons, [], study.delta)
    meters = Counter(_run_meter(plan, ledger, rounds_done.get(run, 0)) for run, plan in ledger.plans.items())
    runs = [replace(meter, seeds=seeds) for meter, seeds in meters.items()]
    return PrivacyReply(headline(totals), holds(totals), (), runs, study.delta)


def _run_meter(plan: PlanEntry, ledger: RunLedger, done: int) -> RunMeter:
    study = ledger.study
    charged = max((entry.last for entry in ledger.releases if entry.run == plan.run), default=0)
    waiting = max(0, done - charged) if study.noise == "seeded" else 0
    events = ledger.events.get(plan.run, {})
    groups: dict[BudgetMeter, list[str]] = {}
    for agent in dict.fromkeys(entry.agent for entry in ledger.releases) or ["every agent"]:
        meter = read_meter(plan, events.get(agent, Counter()), waiting, study.delta)
        groups.setdefault(meter, []).append(agent)
    return RunMeter(
        label=run_label(plan.algorithm, plan.epsilon),
        planned=format_epsilon(plan.planned_epsilon),
        finite=math.isfinite(plan.total_epsilon),
        rounds=plan.rounds,
        waiting=waiting,
        agents=tuple(replace(meter, names=tuple(names)) for meter, names in groups.items()),
    )


def read_meter(plan: PlanEntry, charged: Counter[Event], waiting: int, delta: float) -> BudgetMeter:
    """Return one agent's meter.

    Parameters
    ----------
    plan : PlanEntry
        The ledger's plan of the run.
    charged : Counter of events
        What the ledger has charged the agent with.
    waiting : int
        Rounds that are done and not charged yet.
    delta : float
        The delta at which epsilon is stated.
    """
    per_round = max(1, round(sum(planned.count for planned in plan.events) / plan.charges))
    spent = charged + _next_events(plan, charged, waiting * per_round)
    following = _next_events(plan, spent, per_round)
    now, planned = _bound(frozenset(spent.items()), delta), plan.planned_epsilon
    later = _bound(frozenset((spent + following).items()), delta)
    cost = later.epsilon - now.epsilon if following else math.nan
    return BudgetMeter(
        spent=format_epsilon(now.epsilon),
        left=format_epsilon(max(0.0, planned - now.epsilon)) if math.isfinite(now.epsilon) else "0",
        next="" if math.isnan(cost) else format_epsilon(cost),
        share=_share(now.epsilon, planned),
        next_share=0.0 if math.isnan(cost) else _share(cost, planned),
        accountant=describe_accountant(now.accountant),
    )


def _share(epsilon: float, planned: float) -> float:
    return round(min(1.0, epsilon / planned), 4) if 0.0 < planned < math.inf else 0.0


def _next_events(plan: PlanEntry, spent: Mapping[Event, int], count: int) -> Counter[Event]:
    """Return the next `count` events of the plan, in its order, after those that were spent."""
    following: Counter[Event] = Counter()
    for planned in plan.events:
        taken = min(max(0, planned.count - spent.get(planned.event, 0)), count - following.total())
        if taken > 0:
            following[planned.event] += taken
    return following


@lru_cache(maxsize=1024)
def _bound(events: frozenset[tuple[Event, int]], delta: float) -> EpsilonBound:
    return tightest(dict(events), delta)


def settings_reply(folder: RunFolder, other: RunFolder | None, local: bool) -> SettingsReply:
    """Return every setting of a run, next to another run's if there is one.

    Parameters
    ----------
    folder, other : RunFolder
        The runs.
    local : bool
        Whether to show paths in full; otherwise only their last part.
    """

    def read(run: RunFolder) -> Mapping[str, object]:
        return run.read_config() if local else public_config(run.read_config())

    def text(config: Mapping[str, object], name: str) -> str:
        return format_setting(config[name]) if name in config else "–"

    first, second = read(folder), read(other) if other else {}
    return SettingsReply(
        [
            ShownSetting(
                name.replace("_", "-"),
                text(first, name),
                text(second, name) if other else None,
                other is not None and first.get(name) != second.get(name),
            )
            for name in dict.fromkeys([*first, *second])
        ]
    )


def ledger_reply(ledger: RunLedger) -> LedgerReply:
    """Return the totals of every run and the newest lines of a ledger whose hash chain was verified."""
    totals = ledger.totals
    count = sum(1 for run in totals.runs if run.agents)
    everything = format_epsilon(totals.all_runs_epsilon)
    return LedgerReply(
        lines=len(ledger),
        delta=totals.delta,
        together=f"Total ε for an observer who sees all {count} runs: {everything}." if count > 1 else "",
        totals=[total for run in totals.runs for total in _run_totals(run)],
        entries=[_ledger_line(number, entry) for number, entry in list(enumerate(ledger, 1))[: -SHOWN - 1 : -1]],
    )


def _run_totals(run: RunTotals) -> list[LedgerTotal]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for agent in run.agents:
        figures = tuple(map(format_epsilon, (agent.epsilon, agent.left, agent.pure_epsilon)))
        groups.setdefault(figures, []).append(agent.agent)
    return [LedgerTotal(run.run, names, *figures) for figures, names in groups.items()]


def _ledger_line(number: int, entry: LedgerEntry) -> LedgerLine:
    release = entry if isinstance(entry, ReleaseEntry) else None
    first, last = (release.first, release.last) if release else (None, None)
    return LedgerLine(
        line=number,
        kind=entry.kind,
        run=entry.run if isinstance(entry, PlanEntry | ReleaseEntry) else None,
        agent=entry.agent if isinstance(entry, ReleaseEntry | NonPrivateEntry) else "",
        rounds="" if first is None else str(first) if first == last else f"{first}–{last}",
        what=_description(entry),
        count=release.count if release else None,
    )


def _description(entry: LedgerEntry) -> str:
    match entry:
        case StudyHeader():
            return f"mode {entry.mode}, noise {entry.noise}, δ {entry.delta:g}"
        case PlanEntry():
            seed = "" if entry.seed is None else f", seed {entry.seed}"
            reserve = f" and {entry.reserve} uploads in reserve" if entry.reserve else ""
            return f"total ε {format_epsilon(entry.total_epsilon)} over {entry.rounds} rounds{reserve}{seed}"
        case ReleaseEntry(event=event):
            names, drawn = {"scale": "scale", "l2": "sensitivity", "epsilon": "nominal ε"}, asdict(event)
            figures = {word: float(drawn[name]) for name, word in names.items() if name in drawn}
            shown = [f"{word} {value:.4g}" for word, value in figures.items() if math.isfinite(value)]
            return ", ".join([event.mechanism, *shown, *([f"slot {entry.slot}"] if entry.slot else [])])
        case _:
            return entry.reason
