"""The beginning of a run: its plan set aside in the ledger over studies, and the files it starts with."""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.core.arrays import backing_file
from taciturn.core.storage import to_json
from taciturn.data import SOURCES, describe, fingerprint, source_for
from taciturn.data.schema_draft import is_draft
from taciturn.errors import InputError
from taciturn.planning.paper_mode import prepare_paper
from taciturn.planning.plan import StudyPlan, load_data, plan_study, reservation_cost
from taciturn.planning.study import Study, with_absolute_paths
from taciturn.privacy.budget import BudgetLedger, Hold
from taciturn.privacy.trust import SECURE_SUM
from taciturn.runs.folder import PARTITION_KEY, RunFolder
from taciturn.runs.records import MethodFacts, PlanEntry, PublicFacts, SourceFacts, StudyHeader
from taciturn.settings import Settings
from taciturn.settings.resolve import plugin_digests
from taciturn.training.central import is_central
from taciturn.training.process_group import SINGLE_PROCESS, ProcessGroup
from taciturn.training.record_ties import check_tie, table_digest, tie, warn_without_ledger
from taciturn.training.torch_backend import check_device, refuse_files
from taciturn.types import Dataset, Range, Shard
from taciturn.version import VERSION


class InitialFiles(NamedTuple):
    """The content of a new run folder."""

    files: dict[str, str]  # text by file name
    header: StudyHeader  # the first line of the ledger
    plans: list[PlanEntry]  # its next lines; empty in mode paper
    local: dict[str, str]  # files for the owner of the records only; empty where all records are public

    def create(self, path: Path) -> RunFolder:
        """Create the run folder.

        Raises
        ------
        InputError
            If the path exists.
        """
        return RunFolder.create(path, self.files, [self.header, *self.plans], self.local)


def prepare(settings: Settings, group: ProcessGroup = SINGLE_PROCESS, key: int | None = None) -> Study:
    """Everything a run needs, checked; in certified mode all that promises something before a record is read.

    `key`: who holds which private record, the same in all processes of a group.
    """
    if settings.backend == "torch":
        check_device(group.device(settings.device))
    study = load_data(plan_study(settings), key=key) if settings.mode == "certified" else prepare_paper(settings)
    if settings.backend == "torch":
        refuse_files(study.dataset)
    return _divisible(study, group)


def _divisible(study: Study, group: ProcessGroup) -> Study:
    """The study, where the group can share its agents out."""
    if len(group.partition(len(study.dataset.agents))) > 1 and study.settings.server == "full":
        raise InputError("server is full, but ranks tell each other only sums: use --server sums, or one process")
    central = [part.batch.algorithm for part in study.parts if is_central(part)]
    if len(group.partition(len(study.dataset.agents))) > 1 and central:
        names = ", ".join(central)
        raise InputError(f"{names}: a central reference has all records in one place, so use one process")
    return study


def own_part(study: Study, group: ProcessGroup) -> Study:
    """The study with the records of the agents that are worked at here; those of the others are let go."""
    dataset, here = study.dataset, group.partition(len(study.dataset.agents))[group.rank]
    if len(here) == len(dataset.agents):
        return study
    own = tuple(_apart(shard) for shard in dataset.train[here.start : here.stop])
    return study._replace(dataset=replace(dataset, train=own, test=dataset.test if group.is_main else None))


def _apart(shard: Shard) -> Shard:
    """The same records in memory of their own; what lies in a file stays there."""
    return Shard(shard.x.copy(), shard.y.copy()) if backing_file(shard.x) is None else shard


class Reservation:
    """A study's place in the ledger over studies, held by this process until it lets it go or ends."""

    def __init__(self, account: BudgetLedger, name: str) -> None:
        """Hold a reservation that is there already, or is about to be made under this name."""
        self.account, self.name, self.records = account, name, ""
        self._lock = ReservationLock(name)

    def has_records(self, digest: str) -> None:
        """Take note of the digest of the study's records; those of another ledger are refused."""
        check_tie(digest, self.account)
        self.records = digest

    def start(self, folder: Path | None = None) -> None:
        """Say in the ledger, on the disk, that noise is about to be drawn."""
        if self.records:
            tie(self.records, self.account)
        if folder:
            self._lock.write_folder(folder)
        self.account.start(self.name)

    def release(self) -> None:
        """Let others have it."""
        self._lock.close()


@contextmanager
def reserved(
    settings: Settings, group: ProcessGroup = SINGLE_PROCESS, key: int | None = None
) -> Iterator[tuple[Study, Reservation | None]]:
    """The study with its whole plan set aside in the ledger it names; what fails before it begins gives it back.

    Who takes the reservation has to release it.
    """
    if not (settings.ledger and group.is_main):
        study = prepare(settings, group, key)
        if group.is_main and settings.noise == "hardened":
            warn_without_ledger(lambda: _own_records(settings))
        yield study, None
        return
    plan = plan_study(settings)
    with set_aside(plan) as reservation:
        study = _divisible(load_data(plan, key=key), group)
        if digest := _own_records(settings):
            reservation.has_records(digest)
        yield study, reservation


@contextmanager
def set_aside(plan: StudyPlan) -> Iterator[Reservation]:
    """The reservation of a whole plan in the ledger it names; where what follows fails, it is given back.

    It is held before it is made, so that nobody gives it back meanwhile; who takes it has to release it.
    """
    settings, cost = plan.settings, reservation_cost(plan)
    account, study = BudgetLedger.open(Path(settings.ledger)), settings.display_name
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


def initial_files(study: Study, reservation: str = "") -> InitialFiles:
    """Return the files and ledger lines that a run begins with; `reservation` is its name in the budget ledger."""
    config = with_absolute_paths(study.settings).to_toml()
    files = {"config.toml": config}
    if study.settings.schema:
        files["schema.toml"] = Path(study.settings.schema).read_text(encoding="utf-8")
    facts: dict[str, Any] = {"config": digest(config)}
    if study.facts is None:
        files["start.json"] = _json(facts | _private(study))
        return InitialFiles(files, study_header(study), plan_entries(study), {})
    facts |= {"data": public_description(study), "reservation": reservation}
    identity = uuid.uuid4().hex if study.settings.noise == "hardened" else None
    facts |= {"id": identity} if identity else {}
    files["start.json"] = _json(facts)
    local = {"start.json": _json(_private(study))} if study.dataset.train else {}  # who has no records has no secrets
    if study.partition_key is not None:
        local[PARTITION_KEY] = f"{study.partition_key}\n"
    return InitialFiles(files, replace(study_header(study), id=identity), plan_entries(study), local)


def plan_entries(study: Study) -> list[PlanEntry]:
    """Return the ledger lines with the plan of every run; mode paper has none."""
    return [
        plan.entry(label)
        for part in study.parts
        if part.plans
        for label, plan in zip(part.batch.labels(), part.plans, strict=True)
    ]


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


def study_header(study: Study) -> StudyHeader:
    """Return the first line of the ledger: the settings and facts that give its events their meaning."""
    s, facts = study.settings, study.facts
    doubts = ["drafted"] if s.schema and is_draft(Path(s.schema)) else []
    doubts += BudgetLedger.open(Path(s.ledger)).doubts() if s.ledger else []
    header = StudyHeader(
        taciturn=VERSION,
        mode=s.mode,
        noise=s.noise,
        delta=s.delta,
        plugins=plugin_digests(s.plugins) if s.plugins else None,
        doubts=tuple(doubts) or None,
        methods={name: _method_facts(ALGORITHMS[name]) for name in s.algorithm},
        source=_source_facts(s.data),
    )
    if facts is None:
        return header
    return replace(
        header,
        mechanism=s.mechanism,
        adjacency=s.adjacency,
        clip=s.clip,
        clip_l1=s.clip_l1,
        record_bound=s.record_bound,
        trust=s.trust,
        colluders=s.colluders if s.trust == SECURE_SUM else None,
        algorithm=s.algorithm,
        local_updates=s.local_updates,
        rounds=s.rounds,
        public=PublicFacts(**facts._asdict()),
    )


def _method_facts(method: AlgorithmSpec) -> MethodFacts:
    return MethodFacts(
        noise_on=method.noise_on,
        scales_records=method.scales_records,
        central=method.central,
        promise=method.promise,
        rounds=method.rounds,
    )


def _source_facts(data: str) -> SourceFacts:
    if data not in SOURCES:
        return SourceFacts(built_in=False, draws_split=False)
    source = SOURCES[data]
    return SourceFacts(built_in=True, draws_split="train_share" in source.takes, unprotected=source.unprotected)


def digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _json(value: Any) -> str:
    return to_json(value) + "\n"
