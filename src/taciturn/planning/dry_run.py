"""Dry runs: what a run would do and spend. Everything is decided and checked, and nothing is written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from taciturn.algorithms import ALGORITHMS
from taciturn.planning.heuristics import NOISE_STD, noise_of_step
from taciturn.planning.paper_mode import prepare_paper
from taciturn.planning.plan import StudyPlan, drawn_key, noise_meaning, plan_study, reservation_cost, study_split
from taciturn.planning.study import StudyPart, local_updates, upload_bytes
from taciturn.privacy.accountants import tightest
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.events import Event
from taciturn.privacy.trust import PAPER_HEADLINE, trust_sentence
from taciturn.runs.records import RunLabel
from taciturn.settings import Settings

PUBLIC_FACTS = ("name", "agents", "features", "features_by", "outputs", "published", "unit", "classes")


@dataclass(frozen=True)
class DataForecast:
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


@dataclass(frozen=True)
class NoiseForecast:
    """The noise that a run would add; certified mode has a mechanism, and a clip, a record bound, or both."""

    source: str
    meaning: str
    mechanism: str | None = None
    clip: float | str | None = None
    record_bound: float | str | None = None


@dataclass(frozen=True)
class RunForecast:
    """What one run would do and spend."""

    label: RunLabel
    rounds: int
    local_updates: int
    spends: float
    accountant: str | None
    noise_std: float | None

    def to_json(self) -> dict[str, object]:
        """Return the run as a JSON object."""
        return {**self.label, **{name: value for name, value in vars(self).items() if name != "label"}}


@dataclass(frozen=True)
class LedgerForecast:
    """A ledger over studies before and after the run."""

    file: str
    total_epsilon: float
    delta: float
    used: float
    used_after: float


@dataclass(frozen=True)
class DryRunReport:
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

    def to_json(self) -> dict[str, object]:
        """Return the report as a JSON object."""
        return vars(self) | {
            "data": _known(self.data),
            "noise": _known(self.noise),
            "runs": [run.to_json() for run in self.runs],
            "ledger": asdict(self.ledger) if self.ledger else None,
        }


def _known(record: DataForecast | NoiseForecast) -> dict[str, object]:
    return {name: value for name, value in asdict(record).items() if value is not None}


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
    return replace(_certified(settings) if settings.mode == "certified" else _paper(settings), run=folder)


def _certified(given: Settings) -> DryRunReport:
    study = plan_study(given)
    settings, facts = study.settings, study.facts
    public = {name: getattr(facts, name) for name in PUBLIC_FACTS}
    scaled = {ALGORITHMS[name].scales_records for name in settings.algorithm}
    noise = NoiseForecast(
        settings.noise,
        noise_meaning(settings),
        settings.mechanism,
        clip=settings.clip if False in scaled else None,
        record_bound=settings.record_bound if True in scaled else None,
    )
    report = _report(settings, study.parts, DataForecast(records=facts.total_records, **public), noise)
    events = sum((plan.events for part in study.parts for plan in part.plans), Counter[Event]())
    return replace(
        report,
        reads_records=facts.published,
        trust=trust_sentence(settings.trust, settings.colluders),
        all_runs_epsilon=tightest(events, settings.delta).epsilon,
        ledger=_ledger(study) if settings.ledger else None,
    )


def _paper(given: Settings) -> DryRunReport:
    study = prepare_paper(given)  # which reads the records, because the paper's settings depend on them
    dataset = study.dataset
    data = DataForecast(
        dataset.name,
        agents=len(dataset.agents),
        features=len(dataset.features),
        features_by=dataset.features_by,
        outputs=dataset.target.width,
        published=True,
        unit="record",
        records=dataset.records,
    )
    return _report(study.settings, study.parts, data, NoiseForecast("seeded", PAPER_HEADLINE))


def _report(settings: Settings, parts: list[StudyPart], data: DataForecast, noise: NoiseForecast) -> DryRunReport:
    """Return the report of mode paper; certified mode replaces what differs."""
    runs = tuple(run for part in parts for run in _runs(settings, part))
    federated = (name for name in settings.algorithm if not ALGORITHMS[name].central)
    sizes = (upload_bytes(settings, name, data.features * data.outputs) for name in federated)
    return DryRunReport(
        "", settings.mode, True, data, noise, None, settings.delta, runs, math.inf, max(sizes, default=0), None
    )


def _runs(settings: Settings, part: StudyPart) -> Iterator[RunForecast]:
    updates = local_updates(settings, part.batch.algorithm)
    for r, label in enumerate(part.batch.labels()):
        if not part.plans:
            yield RunForecast(label, part.rounds, updates, math.inf, None, None)
            continue
        plan = part.plans[r]
        std = NOISE_STD[settings.mechanism] * noise_of_step(plan.event)
        yield RunForecast(label, part.rounds, updates, plan.bound.epsilon, plan.bound.accountant, std)


def _ledger(study: StudyPlan) -> LedgerForecast:
    """Return the ledger before and after the run; a plan that does not fit raises."""
    ledger = BudgetLedger.open(Path(study.settings.ledger))
    state = ledger.state()
    settings, unit = study.settings, study.facts.unit
    split = study_split(settings, drawn_key(settings))
    after = ledger.epsilon_after(state, reservation_cost(study), settings.adjacency, unit, study.held_out_cost, split)
    file = study.settings.ledger
    return LedgerForecast(file, state.total_epsilon, state.delta, state.epsilon_used, after)
