"""The beginning of a run: its plan set aside in the ledger over studies, and the files it starts with."""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from taciturn.algorithms import ALGORITHMS
from taciturn.core.arrays import file_of
from taciturn.core.storage import to_json
from taciturn.data import describe, fingerprint, source_for
from taciturn.data.schema_draft import is_draft
from taciturn.errors import InputError
from taciturn.planning.paper_mode import prepare_paper
from taciturn.planning.plan import StudyPlan, load_data, plan_study, reservation_cost
from taciturn.planning.study import Study, with_absolute_paths
from taciturn.privacy.budget import BudgetLedger, Hold
from taciturn.privacy.trust import SECURE_SUM
from taciturn.runs.folder import PARTITION_KEY
from taciturn.settings import Settings
from taciturn.settings.resolve import digests
from taciturn.training.central import is_central
from taciturn.training.process_group import SINGLE_PROCESS, ProcessGroup
from taciturn.training.record_ties import check_tie, table_digest, tie, warn_without_ledger
from taciturn.training.torch_backend import check_device, refuse_files
from taciturn.types import Dataset, Range, Shard
from taciturn.version import VERSION


class Beginning(TypedDict):
    """What a run folder is created with."""

    files: dict[str, str]
    ledger: list[dict[str, Any]]
    local: dict[str, str]


def prepare(settings: Settings, team: ProcessGroup = SINGLE_PROCESS, key: int | None = None) -> Study:
    """Everything a run needs, checked; in certified mode all that promises something before a record is read.

    `key`: who holds which private record, the same in all processes of a team.
    """
    if settings.backend == "torch":
        check_device(team.device(settings.device))
    study = load_data(plan_study(settings), key=key) if settings.mode == "certified" else prepare_paper(settings)
    if settings.backend == "torch":
        refuse_files(study.dataset)
    return _divisible(study, team)


def _divisible(study: Study, team: ProcessGroup) -> Study:
    """The study, where the team can share its agents out."""
    if len(team.parts(len(study.dataset.agents))) > 1 and study.settings.server == "full":
        raise InputError("server is full, but ranks tell each other only sums: use --server sums, or one process")
    central = [part.batch.algorithm for part in study.parts if is_central(part)]
    if len(team.parts(len(study.dataset.agents))) > 1 and central:
        names = ", ".join(central)
        raise InputError(f"{names}: a central reference has all records in one place, so use one process")
    return study


def own_part(study: Study, team: ProcessGroup) -> Study:
    """The study with the records of the agents that are worked at here; those of the others are let go."""
    dataset, here = study.dataset, team.parts(len(study.dataset.agents))[team.rank]
    if len(here) == len(dataset.agents):
        return study
    own = tuple(_apart(shard) for shard in dataset.train[here.start : here.stop])
    return study._replace(dataset=replace(dataset, train=own, test=dataset.test if team.leads else None))


def _apart(shard: Shard) -> Shard:
    """The same records in memory of their own; what lies in a file stays there."""
    return Shard(shard.x.copy(), shard.y.copy()) if file_of(shard.x) is None else shard


class Reservation:
    """A study's place in the ledger over studies, held by this process until it lets it go or ends."""

    def __init__(self, account: BudgetLedger, name: str) -> None:
        """Hold a reservation that is there already, or is about to be made under this name."""
        self.account, self.name, self.records = account, name, ""
        self._hold = Hold(name)

    def has_records(self, digest: str) -> None:
        """Take note of the digest of the study's records; those of another ledger are refused."""
        check_tie(digest, self.account)
        self.records = digest

    def start(self, folder: Path | None = None) -> None:
        """Say in the ledger, on the disk, that noise is about to be drawn."""
        if self.records:
            tie(self.records, self.account)
        if folder:
            self._hold.note(folder)
        self.account.start(self.name)

    def release(self) -> None:
        """Let others have it."""
        self._hold.release()


@contextmanager
def reserved(
    settings: Settings, team: ProcessGroup = SINGLE_PROCESS, key: int | None = None
) -> Iterator[tuple[Study, Reservation | None]]:
    """The study with its whole plan set aside in the ledger it names; what fails before it begins gives it back.

    Who takes the reservation has to release it.
    """
    if not (settings.ledger and team.leads):
        study = prepare(settings, team, key)
        if team.leads and settings.noise == "hardened":
            warn_without_ledger(lambda: _own_records(settings))
        yield study, None
        return
    plan = plan_study(settings)
    with set_aside(plan) as reservation:
        study = _divisible(load_data(plan, key=key), team)
        if digest := _own_records(settings):
            reservation.has_records(digest)
        yield study, reservation


@contextmanager
def set_aside(plan: StudyPlan) -> Iterator[Reservation]:
    """The reservation of a whole plan in the ledger it names; where what follows fails, it is given back.

    It is held before it is made, so that nobody gives it back meanwhile; who takes it has to release it.
    """
    settings, cost = plan.settings, reservation_cost(plan)
    account, study = BudgetLedger.open(Path(settings.ledger)), settings.called
    reservation = Reservation(account, uuid.uuid4().hex)
    try:
        account.reserve(study, cost, settings.adjacency, plan.facts.unit, name=reservation.name)
        try:
            yield reservation
        except BaseException:
            account.give_back_held(reservation.name)
            raise
    except BaseException:
        reservation.release()
        raise


def _own_records(settings: Settings) -> str:
    """The digest of a table's records; a published data set is nobody's own."""
    return table_digest(settings.data) if source_for(settings.data).name == "table" else ""


def beginning(study: Study, reservation: str = "") -> Beginning:
    """The first files and ledger lines of a run."""
    config = with_absolute_paths(study.settings).to_toml()
    files = {"config.toml": config}
    if study.settings.schema:
        files["schema.toml"] = Path(study.settings.schema).read_text(encoding="utf-8")
    facts: dict[str, Any] = {"config": digest(config)}
    if study.facts is None:
        return {
            "files": files | {"start.json": _json(facts | _private(study))},
            "ledger": first_lines(study),
            "local": {},
        }
    facts |= {"data": public_description(study), "reservation": reservation}
    identity = {"id": uuid.uuid4().hex} if study.settings.noise == "hardened" else {}
    facts |= identity
    files["start.json"] = _json(facts)
    local = {"start.json": _json(_private(study))} if study.dataset.train else {}  # who has no records has no secrets
    if study.partition_key is not None:
        local[PARTITION_KEY] = f"{study.partition_key}\n"
    opening, *plans = first_lines(study)
    return {"files": files, "ledger": [opening | identity, *plans], "local": local}


def first_lines(study: Study) -> list[dict[str, Any]]:
    """What a study's ledger begins with: what its events mean, and what every run plans to spend, if it plans."""
    plans = [
        {"kind": "plan", **label, **plan.entry()}
        for part in study.parts
        if part.plans
        for label, plan in zip(part.batch.labels(), part.plans, strict=True)
    ]
    return [_opening(study), *plans]


def _private(study: Study) -> dict[str, Any]:
    """What the records themselves say: for their owner alone."""
    return {"records": fingerprint(study.dataset), "data": describe(study.dataset) | _target(study.dataset)}


def public_description(study: Study) -> dict[str, Any]:
    """The data in public facts: declared numbers in the place of counted ones."""
    facts, dataset = study.facts, study.dataset
    if facts is None:
        raise TypeError("a study in mode paper has no public facts")
    bounds = {"bounds": [dataset.target.low, dataset.target.high]} if isinstance(dataset.target, Range) else {}
    tested = 0 if dataset.test is None else len(dataset.test.x)
    return {
        "test_records": None if facts.test == "held-out" else tested,
        "name": dataset.name,
        "features": len(dataset.features),
        **bounds,
        **_target(dataset),
        "agents": dict.fromkeys(dataset.agents),
        "records": facts.total_records,
        "declared": facts._asdict() | {"bound": facts.bound},
        "notes": [],
    }


def _target(dataset: Dataset) -> dict[str, Any]:
    return {"target": dataclasses.asdict(dataset.target)}


def _opening(study: Study) -> dict[str, Any]:
    """The ledger's first line: what its events mean."""
    s, facts = study.settings, study.facts
    opening = {"kind": "study", "taciturn": VERSION, "mode": s.mode, "noise": s.noise, "delta": s.delta}
    if s.plugins:
        opening["plugins"] = digests(s.plugins)
    doubts = ["drafted"] if s.schema and is_draft(Path(s.schema)) else []
    if doubts := doubts + (BudgetLedger.open(Path(s.ledger)).doubts() if s.ledger else []):
        opening["doubts"] = doubts
    if facts is None:
        return opening
    terms = {name: getattr(s, name) for name in ("mechanism", "adjacency", "clip", "clip_l1", "record_bound")}
    terms |= {"trust": s.trust} | ({"colluders": s.colluders} if s.trust == SECURE_SUM else {})
    steps = {"algorithm": s.algorithm, "local_updates": s.local_updates, "rounds": s.rounds}
    return opening | terms | steps | {"methods": _methods(s), "public": facts._asdict()}


def _methods(settings: Settings) -> dict[str, dict[str, Any]]:
    """What a statement of privacy must know of each method, so that the ledger says it without the method."""
    found = {name: ALGORITHMS[name] for name in settings.algorithm}
    return {
        name: {"noise_on": m.noise_on, "bounded": m.scales_records, "central": m.central} for name, m in found.items()
    }


def digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _json(value: Any) -> str:
    return to_json(value) + "\n"
