"""What a run would do and what it would spend: everything is decided and checked, and nothing is written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from taciturn.algorithms import ALGORITHMS
from taciturn.planning.heuristics import NOISE_STD, noise_of_step
from taciturn.planning.paper_mode import prepare_paper
from taciturn.planning.plan import StudyPlan, noise_meaning, plan_study
from taciturn.planning.study import StudyPart, local_updates, upload_fields
from taciturn.privacy.accountants import tightest
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.events import Event
from taciturn.privacy.trust import trust_sentence
from taciturn.reporting.statements import PAPER_HEADLINE
from taciturn.settings import Settings
from taciturn.training.setup import reservation_cost
from taciturn.training.torch_backend import check_device

OF_THE_DATA = ("name", "agents", "features", "features_by", "outputs", "published", "unit")


def dry_run_report(settings: Settings) -> dict[str, Any]:
    """The study as one JSON object; what would stop it stops it here too."""
    if settings.backend == "torch":
        check_device(settings.device)
    return _certified(settings) if settings.mode == "certified" else _paper(settings)


def _certified(asked: Settings) -> dict[str, Any]:
    study = plan_study(asked)
    settings, facts = study.settings, study.facts
    together = Counter[Event]()
    for part in study.parts:
        for plan in part.plans:
            together.update(plan.events)
    return {
        "mode": "certified",
        "reads_records": facts.published,
        "data": {name: getattr(facts, name) for name in OF_THE_DATA}
        | {"records": facts.total_records, "classes": facts.classes},
        "noise": {"source": settings.noise, "mechanism": settings.mechanism, **_limits(settings)}
        | {"meaning": noise_meaning(settings)},
        "trust": trust_sentence(settings.trust, settings.colluders),
        "delta": settings.delta,
        "runs": [run for part in study.parts for run in _runs(settings, part)],
        "all_runs_epsilon": tightest(together, settings.delta).epsilon,
        "bytes_up": _bytes(settings, facts.features * facts.outputs),
        "ledger": _ledger(study) if settings.ledger else None,
    }


def _limits(settings: Settings) -> dict[str, Any]:
    """What bounds one record: a clip of its gradient, a bound on its length, or both where methods differ."""
    bounded = {ALGORITHMS[name].bounded for name in settings.algorithm}
    clip = {"clip": settings.clip} if False in bounded else {}
    return clip | ({"record_bound": settings.record_bound} if True in bounded else {})


def _paper(asked: Settings) -> dict[str, Any]:
    """The paper fills its settings in from the records, so they are read."""
    study = prepare_paper(asked)
    settings, dataset = study.settings, study.dataset
    sizes = {"features": len(dataset.features), "outputs": dataset.target.width, "records": dataset.records}
    return {
        "mode": "paper",
        "reads_records": True,
        "data": {"name": dataset.name, "agents": len(dataset.agents), "published": True, "unit": "record"}
        | {"features_by": dataset.features_by, **sizes},
        "noise": {"source": "seeded", "meaning": PAPER_HEADLINE},
        "trust": None,
        "delta": settings.delta,
        "runs": [run for part in study.parts for run in _runs(settings, part)],
        "all_runs_epsilon": math.inf,
        "bytes_up": _bytes(settings, sizes["features"] * sizes["outputs"]),
        "ledger": None,
    }


def _runs(settings: Settings, part: StudyPart) -> Iterator[dict[str, Any]]:
    """One entry for each run of a batch."""
    updates = local_updates(settings, part.batch.algorithm)
    for r, label in enumerate(part.batch.labels()):
        run = {**label, "rounds": part.rounds, "local_updates": updates}
        if not part.plans:
            yield run | {"spends": math.inf, "accountant": None, "noise_std": None}
            continue
        plan = part.plans[r]
        spread = NOISE_STD[settings.mechanism] * noise_of_step(plan.event)
        yield run | {"spends": plan.bound.epsilon, "accountant": plan.bound.accountant, "noise_std": spread}


def _bytes(settings: Settings, parameters: int) -> int:
    """What one agent sends in a round of one run, at most."""
    fields = [upload_fields(name) for name in settings.algorithm if not ALGORITHMS[name].central]
    return parameters * max(fields, default=0) * (8 if settings.precision == "float64" else 4)


def _ledger(study: StudyPlan) -> dict[str, Any]:
    """The ledger over studies as it is and as it would be; a plan that does not fit is refused."""
    account = BudgetLedger.open(Path(study.settings.ledger))
    before = account.state()
    after = account.epsilon_after(before, reservation_cost(study), study.settings.adjacency, study.facts.unit)
    return {"file": study.settings.ledger, "total_epsilon": before.total_epsilon, "delta": before.delta} | {
        "used": before.epsilon_used,
        "used_after": after,
    }
