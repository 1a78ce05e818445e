"""The beginning of a run: its reservation in the budget ledger, its records, and the first files of its folder."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.core.arrays import backing_file
from taciturn.core.storage import text_hash, to_json
from taciturn.data import SOURCES, Facts, describe, fingerprint, source_for
from taciturn.data.schema_draft import is_draft
from taciturn.data.schema_parser import read_schema, schema_text
from taciturn.errors import InputError
from taciturn.planning.paper_mode import prepare_paper
from taciturn.planning.plan import StudyPlan, load_data, plan_study, reservation_cost, study_split
from taciturn.planning.study import Study, with_absolute_paths
from taciturn.privacy.budget import BudgetLedger, ReservationLock
from taciturn.privacy.trust import SECURE_SUM, Caveat
from taciturn.runs.folder import PARTITION_KEY, RunFolder
from taciturn.runs.records import (
    DataDescription,
    DeclaredFacts,
    MethodFacts,
    PlanEntry,
    PublicFacts,
    SourceFacts,
    StartRecord,
    StudyHeader,
    TargetDescription,
)
from taciturn.settings import Settings, resolve
from taciturn.settings.resolve import plugin_digests
from taciturn.training.central import is_central
from taciturn.training.process_group import SINGLE_PROCESS, ProcessGroup
from taciturn.training.record_ties import check_link, link_ledger, table_digest, warn_without_ledger
from taciturn.training.torch_backend import check_device, check_in_memory
from taciturn.types import Dataset, Range
from taciturn.version import VERSION

logger = logging.getLogger(__name__)


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
    """Check the settings, plan the study, and load its records.

    In certified mode the whole plan is made before a record is read.

    Parameters
    ----------
    settings
        Resolved settings.
    group
        The processes of the run.
    key
        The key by which private records are partitioned, equal in all processes; None draws one.

    Raises
    ------
    InputError
        If the settings do not fit each other, the records or the processes.
    """
    if settings.backend == "torch":
        check_device(group.device(settings.device))
    study = load_data(plan_study(settings), key=key) if settings.mode == "certified" else prepare_paper(settings)
    if settings.backend == "torch":
        check_in_memory(study.dataset)
    return _checked_for(study, group)


def _checked_for(study: Study, group: ProcessGroup) -> Study:
    """Return the study, after checking that the processes can divide its agents."""
    logger.debug("study: %d agents, %d batches", len(study.dataset.agents), len(study.parts))
    if study.settings.pooled_sums and any(backing_file(shard.x) is not None for shard in study.dataset.train):
        raise InputError(
            f"simulate is sums, which pools all records in memory, and memory is {study.settings.memory}, which they "
            "exceed: raise --memory, or use --simulate agents"
        )
    if len(group.partition(len(study.dataset.agents))) == 1:
        return study
    if study.settings.server == "full":
        raise InputError("--server is full, but ranks exchange sums only; use --server sums, or one process")
    if study.settings.integer_sums:
        raise InputError("trust is secure-sum with hardened noise, which is simulated in one process; use one process")
    if study.settings.pooled_sums:
        raise InputError("simulate is sums, which pools all records in one process; use one process")
    central = [part.batch.algorithm for part in study.parts if is_central(part)]
    if central:
        raise InputError(f"{', '.join(central)}: a central reference has all records in one place; use one process")
    return study


def select_own_agents(study: Study, group: ProcessGroup) -> Study:
    """Return the study with the records of this process's agents only, so that the others can be freed."""
    dataset, own = study.dataset, group.partition(len(study.dataset.agents))[group.rank]
    if len(own) == len(dataset.agents):
        return study
    mine = dataset.train[own.start : own.stop]  # of which memory-mapped records stay in their file
    shards = tuple(shard.copy() if backing_file(shard.x) is None else shard for shard in mine)
    return study._replace(dataset=replace(dataset, train=shards, test=dataset.test if group.is_main else None))


class Reservation:
    """A study's reservation in a budget ledger, held by this process until it is released or the process ends."""

    def __init__(self, budget: BudgetLedger, name: str) -> None:
        """Lock the reservation with this name, which exists or is about to be made."""
        self.budget, self.name, self.records = budget, name, ""
        self._lock = ReservationLock(name)

    def note_records(self, digest: str) -> None:
        """Note the digest of the study's records; raise InputError if they belong to another budget ledger."""
        check_link(digest, self.budget)
        self.records = digest

    def start(self, folder: Path | None = None) -> None:
        """Write to the budget ledger that noise is about to be drawn."""
        if self.records:
            link_ledger(self.records, self.budget)
        if folder:
            self._lock.write_folder(folder)
        self.budget.start(self.name)

    def release(self) -> None:
        """Release the lock on the reservation."""
        self._lock.close()


@contextmanager
def reserve_study(
    settings: Settings, group: ProcessGroup, key: int | None
) -> Iterator[tuple[Study, Reservation | None]]:
    """Prepare a study with its whole plan reserved in the budget ledger that the settings name.

    The reservation is returned if the block fails. After the block the caller must release it.

    Yields
    ------
    (Study, Reservation or None)
        None where the settings name no ledger, and in all processes but the first.

    Raises
    ------
    BudgetExhausted
        If the plan does not fit into the ledger.
    InputError
        As `prepare`, or if the records belong to another ledger.
    """
    if not (settings.ledger and group.is_main):
        study = prepare(settings, group, key)
        if group.is_main and settings.hardened:
            warn_without_ledger(lambda: _table_digest(settings))
        yield study, None
        return
    plan = plan_study(settings)
    with reserve_plan(plan, study_split(settings, key)) as reservation:
        study = _checked_for(load_data(plan, key=key), group)
        if digest := _table_digest(settings):
            reservation.note_records(digest)
        yield study, reservation


@contextmanager
def reserve_plan(plan: StudyPlan, split: str = "") -> Iterator[Reservation]:
    """Reserve a whole plan in the budget ledger it names; return the reservation to the ledger if the block fails.

    The reservation is held before it is made, so that no other process can return it meanwhile. After the block the
    caller must release it.

    Parameters
    ----------
    plan
        The plan.
    split
        The rule by which its records train or are held out; see `study_split`.
    """
    settings, cost = plan.settings, reservation_cost(plan)
    budget = BudgetLedger.open(Path(settings.ledger))
    reservation = Reservation(budget, uuid.uuid4().hex)
    with ExitStack() as undo:  # in reverse order, if the block fails
        undo.callback(reservation.release)
        given = (settings.display_name, cost, settings.adjacency, plan.facts.unit)
        budget.reserve(*given, name=reservation.name, held_out=plan.held_out_cost, split=split)
        logger.info("reserved the plan in %s", budget.path)
        undo.callback(budget.give_back_held, reservation.name)
        yield reservation
        undo.pop_all()


def _table_digest(settings: Settings) -> str:
    """Return the digest of a table's records; empty for a published data set."""
    return table_digest(settings.data) if source_for(settings.data).is_table else ""


def initial_files(study: Study, reservation: str) -> InitialFiles:
    """Return the files and ledger lines that a run begins with; `reservation` is its name in the budget ledger."""
    config = with_absolute_paths(study.settings).to_toml()
    files = {"config.toml": config}
    if study.settings.schema:
        files["schema.toml"] = schema_text(study.settings.schema)
    if study.facts is None:
        files["start.json"] = to_json({"config": text_hash(config)} | _private(study.dataset)) + "\n"
        return InitialFiles(files, study_header(study), plan_entries(study), {})
    identity = uuid.uuid4().hex if study.settings.hardened else None
    data = public_description(study.dataset, study.facts)
    start = StartRecord(config=text_hash(config), data=data, reservation=reservation, id=identity)
    files["start.json"] = to_json(start) + "\n"
    local = {}
    if study.dataset.train:  # a coordinator has no records
        local["start.json"] = to_json(_private(study.dataset)) + "\n"
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


def public_description(dataset: Dataset, facts: Facts) -> DataDescription:
    """Return the data of a certified study in public facts: declared numbers instead of counted ones."""
    tested = 0 if dataset.test is None else len(dataset.test.x)
    return DataDescription(
        name=dataset.name,
        agents=dict.fromkeys(dataset.agents),
        records=facts.total_records,
        test_records=None if facts.test == "held-out" else tested,
        features=len(dataset.features),
        target=TargetDescription(**dataclasses.asdict(dataset.target)),
        bounds=(dataset.target.low, dataset.target.high) if isinstance(dataset.target, Range) else None,
        declared=DeclaredFacts(**facts.recorded(), bound=facts.bound),
    )


def _private(dataset: Dataset) -> dict[str, object]:
    """Return what is computed from the records themselves, for their owner only."""
    target = {"target": dataclasses.asdict(dataset.target)}
    return {"records": fingerprint(dataset), "data": describe(dataset) | target}


def study_header(study: Study) -> StudyHeader:
    """Return the first line of the ledger: the settings and facts that give its events their meaning."""
    s, facts = study.settings, study.facts
    caveats = [Caveat.DRAFTED] if s.schema and is_draft(s.schema) else []
    caveats += BudgetLedger.open(Path(s.ledger)).caveats() if s.ledger else []
    header = StudyHeader(
        taciturn=VERSION,
        mode=s.mode,
        noise=s.noise,
        delta=s.delta,
        plugins=plugin_digests(s.plugins) if s.plugins else None,
        doubts=tuple(caveats) or None,
        methods={name: _method_facts(ALGORITHMS[name]) for name in (part.batch.algorithm for part in study.parts)},
        source=_source_facts(s.data, s.schema),
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
        missing=s.missing if s.trust == SECURE_SUM else None,
        pooled_sums=s.pooled_sums or None,
        algorithm=s.algorithm,
        local_updates=s.local_updates,
        rounds=s.rounds,
        public=PublicFacts(**facts.recorded()),
    )


def _method_facts(method: AlgorithmSpec) -> MethodFacts:
    return MethodFacts(
        noise_on=method.noise_on,
        scales_records=method.scales_records,
        central=method.central,
        promise=method.promise,
        rounds=method.rounds,
        counts_first=method.counts_first,
        summary=method.summary,
    )


def _source_facts(data: str, schema: str) -> SourceFacts:
    if data not in SOURCES:
        weights = read_schema(schema).weights_in_words if schema else ""
        return SourceFacts(built_in=False, draws_split=False, weights=weights or None)
    source = SOURCES[data]
    return SourceFacts(built_in=True, draws_split="train_share" in source.takes, unprotected=source.unprotected)


class ResumeState(NamedTuple):
    """What an interrupted run continues with."""

    config: Mapping[str, object]
    records: str  # digest
    key: int | None  # of the partition of private records
    reservation: str  # empty: none


def check_config(folder: RunFolder, start: StartRecord) -> None:
    """Raise InputError if the settings in a run folder are not those it began with."""
    if text_hash(folder.config.read_text(encoding="utf-8")) != start.config:
        raise InputError(f"{folder.config} was changed after the run began: start a new run with it instead")


def rebuild(folder: RunFolder, begun: ResumeState, group: ProcessGroup) -> Study:
    """Return the study as it began.

    Raises
    ------
    InputError
        If the records are not those it began with.
    """
    settings = resolve(begun.config)
    if settings.schema and folder.schema.is_file():  # another machine may see the table's own schema only
        settings = replace(settings, schema=str(folder.schema))
    study = prepare(settings, group, begun.key)
    if fingerprint(study.dataset) != begun.records:
        raise InputError(f"the records of {settings.data} are not those the run began with: start a new run")
    return study


def rebuild_study(folder: RunFolder) -> Study:
    """Return the study of a run folder as it began, from the same settings and records.

    Raises
    ------
    InputError
        If the settings or the records were changed, or the records are not on this machine.
    """
    start = folder.read_start()
    if start.records is None:
        raise InputError(
            f"the records of {folder.path} are not here: they are at the sites of a federation, or its local-only "
            "folder is missing"
        )
    check_config(folder, start)
    begun = ResumeState(folder.read_config(), start.records, folder.read_key(), start.reservation or "")
    return rebuild(folder, begun, SINGLE_PROCESS)
