"""Dry runs: what a run would do and spend. Everything is decided and checked, and nothing is written."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from taciturn.algorithms import ALGORITHMS
from taciturn.planning.heuristics import noise_of_step
from taciturn.planning.paper_mode import prepare_paper
from taciturn.planning.plan import StudyPlan, drawn_key, noise_meaning, plan_study, reservation_cost, study_split
from taciturn.planning.study import StudyPart, local_updates, upload_bytes
from taciturn.privacy.accountants import tightest
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.events import Event
from taciturn.privacy.mechanisms import DEVIATION
from taciturn.privacy.trust import PAPER_HEADLINE, trust_sentence
from taciturn.runs.json_record import Record
from taciturn.runs.records import RunLabel
from taciturn.settings import Settings

PUBLIC_FACTS = ("name", "agents", "features", "features_by", "outputs", "published", "unit", "classes")


@dataclass(frozen=True, kw_only=True)
class DataForecast(Record):
    """The data that a run would train on."""

    name: str
    agents: int
    features: int
    features_by: str
    outputs: int
    published: bool
    unit: str
    records: int
    classes: bool | None = None  # not known in mode paper


@dataclass(frozen=True, kw_only=True)
class NoiseForecast(Record):
    """The noise that a run would add; certified mode has a mechanism, and a clip, a record bound, or both."""

    source: str
    meaning: str
    mechanism: str | None = None
    clip: float | str | None = None
    record_bound: float | str | None = None


@dataclass(frozen=True, kw_only=True)
class RunForecast(RunLabel):
    """What one run would do and spend."""

    rounds: int
    local_updates: int
    spends: float
    accountant: str | None
    noise_std: float | None


@dataclass(frozen=True, kw_only=True)
class LedgerForecast(Record):
    """A ledger over studies before and after the run."""

    file: str
    total_epsilon: float
    delta: float
    used: float
    used_after: float


@dataclass(frozen=True, kw_only=True)
class DryRunReport(Record):
    """What a run would do and spend.

    Parameters
    ----------
    run : str
        The folder that the run would write.
    mode : str
        "certified" or "paper".
    reads_records : bool
        Whether the dry run itself read records: those of a published data set, or in mode paper.
    data : DataForecast
        The data.
    noise : NoiseForecast
        The noise.
    trust : str or None
        The trust model as a sentence; None in mode paper.
    delta : float
        The delta of (epsilon, delta).
    runs : tuple of RunForecast
        One for each run.
    all_runs_epsilon : float
        The total for an observer of all runs.
    bytes_up : int
        The most that one agent sends in a round of one run.
    ledger : LedgerForecast or None
        The ledger over studies, if the settings name one.
    """

    run: str
    mode: str
    reads_records: bool
    data: DataForecast
    noise: NoiseForecast
    trust: str | None
    delta: float
    runs: tuple[RunForecast, ...]
    all_runs_epsilon: float
    bytes_up: int
    ledger: LedgerForecast | None


def dry_run_report(settings: Settings, folder: str = "") -> DryRunReport:
    """Return what a run with these settings would do and spend.

    Parameters
    ----------
    settings : Settings
        The settings.
    folder : str
        The folder that the run would write.

    Returns
    -------
    DryRunReport

    Raises
    ------
    TaciturnError
        Whatever would stop the run.
    """
    return _certified(settings, folder) if settings.mode == "certified" else _paper(settings, folder)


def _certified(given: Settings, folder: str) -> DryRunReport:
    study = plan_study(given)
    settings, facts = study.settings, study.facts
    scaled = {ALGORITHMS[name].scales_records for name in settings.algorithm}
    data = DataForecast(records=facts.total_records, **{name: getattr(facts, name) for name in PUBLIC_FACTS})
    noise = NoiseForecast(
        source=settings.noise,
        meaning=noise_meaning(settings),
        mechanism=settings.mechanism,
        clip=settings.clip if False in scaled else None,
        record_bound=settings.record_bound if True in scaled else None,
    )
    events = sum((plan.events for part in study.parts for plan in part.plans), Counter[Event]())
    return DryRunReport(
        run=folder,
        mode=settings.mode,
        reads_records=facts.published,
        data=data,
        noise=noise,
        trust=trust_sentence(settings.trust, settings.colluders),
        delta=settings.delta,
        runs=_runs(settings, study.parts),
        all_runs_epsilon=tightest(events, settings.delta).epsilon,
        bytes_up=_bytes_up(settings, data),
        ledger=_ledger(study) if settings.ledger else None,
    )


def _paper(given: Settings, folder: str) -> DryRunReport:
    study = prepare_paper(given)  # which reads the records, because the paper's settings depend on them
    settings, dataset = study.settings, study.dataset
    data = DataForecast(
        name=dataset.name,
        agents=len(dataset.agents),
        features=len(dataset.features),
        features_by=dataset.features_by,
        outputs=dataset.target.width,
        published=True,
        unit="record",
        records=dataset.records,
    )
    return DryRunReport(
        run=folder,
        mode=settings.mode,
        reads_records=True,
        data=data,
        noise=NoiseForecast(source="seeded", meaning=PAPER_HEADLINE),
        trust=None,
        delta=settings.delta,
        runs=_runs(settings, study.parts),
        all_runs_epsilon=math.inf,
        bytes_up=_bytes_up(settings, data),
        ledger=None,
    )


def _bytes_up(settings: Settings, data: DataForecast) -> int:
    federated = (name for name in settings.algorithm if not ALGORITHMS[name].central)
    return max((upload_bytes(settings, name, data.features * data.outputs) for name in federated), default=0)


def _runs(settings: Settings, parts: list[StudyPart]) -> tuple[RunForecast, ...]:
    return tuple(
        RunForecast(
            **vars(label),
            rounds=part.rounds,
            local_updates=local_updates(settings, part.batch.algorithm),
            spends=plan.bound.epsilon if plan else math.inf,
            accountant=plan.bound.accountant if plan else None,
            noise_std=DEVIATION[settings.mechanism] * noise_of_step(plan.event) if plan else None,
        )
        for part in parts
        for label, plan in zip(part.batch.labels(), part.plans or [None] * part.batch.size, strict=True)
    )


def _ledger(study: StudyPlan) -> LedgerForecast:
    """Return the ledger before and after the run; a plan that does not fit raises."""
    ledger = BudgetLedger.open(Path(study.settings.ledger))
    state = ledger.state()
    settings, unit = study.settings, study.facts.unit
    split = study_split(settings, drawn_key(settings))
    after = ledger.epsilon_after(state, reservation_cost(study), settings.adjacency, unit, study.held_out_cost, split)
    return LedgerForecast(
        file=settings.ledger,
        total_epsilon=state.total_epsilon,
        delta=state.delta,
        used=state.epsilon_used,
        used_after=after,
    )
