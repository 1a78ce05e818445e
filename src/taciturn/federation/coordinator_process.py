"""The coordinator's process: it opens a study, starts the hub, and runs the rounds until the study has ended."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

from taciturn.core.storage import make_file, to_json, write_text
from taciturn.data import encode, read_schema, read_table
from taciturn.errors import InputError, unknown_name
from taciturn.federation.agreement import Agreement, derive_agreement
from taciturn.federation.confinement import shield
from taciturn.federation.coordinator import EVALUATED, FINISHED, Coordinator, measured_places, site_events_path
from taciturn.federation.engine import Engine, EngineProcess, hub_address
from taciturn.federation.exchange import SealedExchange
from taciturn.federation.identity import Identity
from taciturn.federation.kits import HUB, check_address, read_issued, read_kit
from taciturn.federation.link import BrokenLink
from taciturn.federation.logs import LOG, AuditLog, no_audit
from taciturn.federation.run_folder import create_study_folder, federated_study, rounds_path
from taciturn.federation.seal import OVERHEAD
from taciturn.federation.status import STATUS_FILE, CoordinatorStatus, publish_status
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.federation.sum_terms import describe_parameters
from taciturn.federation.terms import Terms
from taciturn.federation.upload_coordinator import UploadCoordinator
from taciturn.planning.study import Study
from taciturn.privacy.trust import SECURE_SUM
from taciturn.runs.folder import RunFolder
from taciturn.runs.metrics_log import JsonlTail
from taciturn.training.private_evaluation import EvaluationSchedule
from taciturn.types import Shard

STUDY_FILE = "federation.json"
LISTEN_SECONDS = 60.0
SILENCE_SECONDS = 15.0  # without a heartbeat, after which a hub is restarted
POLL_SECONDS = 0.25


class BegunStudy(NamedTuple):
    """A study with a run folder."""

    agreement: Agreement
    study: Study
    folder: RunFolder

    @property
    def schedule(self) -> EvaluationSchedule:
        """The evaluations that are planned, and how many of them the ledger says are spent."""
        return EvaluationSchedule.of(self.agreement.part, len(measured_places(self.folder.read_ledger())))


def begin_study(terms: Terms, path: Path) -> BegunStudy:
    """Create the run folder of a study, or find it; what is in it is not changed.

    Parameters
    ----------
    terms : Terms
        The study's terms.
    path : Path
        The run folder; it is created if it does not exist.

    Raises
    ------
    InputError
        If the folder belongs to something else or to other terms.
    """
    published = terms.load_published()
    agreement = derive_agreement(terms, published)
    test = published.test if published else _load_test_table(terms)
    study = federated_study(agreement, test=terms.map_features(test) if test else None)
    if not (path / STUDY_FILE).exists():
        if path.exists():
            raise InputError(f"{path} exists and is not the run folder of a federation; choose another --out")
        content = to_json({"experiment": uuid.uuid4().hex, "terms": terms.digest}) + "\n"
        create_study_folder(path, study, files={STUDY_FILE: content})
    folder = RunFolder.open(path)
    folder.check_home_machine()
    if folder.read_json(STUDY_FILE)["terms"] != terms.digest:
        raise InputError(f"{path} was started under other terms than those in {terms.path}; choose another --out")
    return BegunStudy(agreement, study, folder)


def open_study(begun: BegunStudy, without: Sequence[str] = ()) -> Coordinator:
    """Restore a study's state. The caller must hold the folder's lock, because lines are taken back.

    Parameters
    ----------
    begun : BegunStudy
        The study; see `begin_study`.
    without : sequence of str
        Sites to leave out for good: they are not asked again, and their uploads no longer count. The folder remembers
        them.

    Raises
    ------
    InputError
        If too few sites are left.
    """
    agreement, study, folder = begun
    stored = folder.read_json(STUDY_FILE)
    before = stored.get("without", [])
    new = [site for site in dict.fromkeys(without) if site not in before]
    _check_exclusions(agreement.terms, folder, [*before, *new], bool(new))
    kind = UploadCoordinator if agreement.sum_parameters is None else SumCoordinator
    coordinator = kind(agreement, study, folder, stored["experiment"], (*before, *new))
    if new:
        write_text(folder.path / STUDY_FILE, to_json(stored | {"without": coordinator.excluded}) + "\n")
        for site in new:
            coordinator.log_event("left out", site=site, round=coordinator.progress.round)
    return coordinator


def _check_exclusions(terms: Terms, folder: RunFolder, sites: Sequence[str], new: bool) -> None:
    for site in sites:
        if site not in terms.sites:
            raise unknown_name("site", site, terms.sites)
    if new and folder.finished:
        raise InputError(f"{folder.path} has ended; no site can be left out of it")
    left = len(terms.sites) - len(sites)
    if left < terms.quorum:
        summed = terms.settings.trust == SECURE_SUM
        choices = (
            "a smaller sum would have too little noise, so leave fewer sites out or agree on a new study"
            if summed
            else f"lower it in [running] of {terms.path}, or leave fewer sites out"
        )
        raise InputError(f"without {', '.join(sites)} there are {left} sites, but quorum is {terms.quorum}; {choices}")


def _load_test_table(terms: Terms) -> Shard | None:
    if not terms.test or terms.schema is None:
        return None
    s = terms.settings
    x, y = encode(read_table(terms.test), read_schema(terms.schema), s.intercept, s.precision, with_label=True)
    if y is None:
        raise TypeError("a test table has labels")
    return Shard(x, y)


class StudyLine(TypedDict, total=False):
    """A new line of rounds.jsonl, which has no event, or of sites.jsonl."""

    event: str
    site: str
    round: int
    reason: str
    ready: list[str]
    quorum: int
    ms: float
    of: int
    answered: list[str]
    missing: list[str]
    slot: str
    epoch: int
    sites: list[str]
    found: str
    bytes_up: int
    bytes_down: int


@dataclass
class CoordinatorProcess:
    """A study in progress over a hub. The caller of `run` must hold the lock of its folder.

    Parameters
    ----------
    terms, engine, identity, coordinator
        The study, the hub, the coordinator's identity, and its state.
    stop : callable
        Returns whether to stop.
    watch : callable
        Gets the new lines of rounds.jsonl and sites.jsonl.
    certificates : callable, optional
        Returns the hub's current peers, each as `name=SHA-256`; when they change, the hub is restarted.
    """

    terms: Terms
    engine: Engine
    identity: Identity
    coordinator: Coordinator
    stop: Callable[[], bool]
    watch: Callable[[StudyLine], None]
    certificates: Callable[[], list[str]] | None = None
    audit: AuditLog = no_audit
    versions: dict[str, int] = field(default_factory=dict)  # message version of each site
    status: CoordinatorStatus = field(default_factory=CoordinatorStatus)
    _tails: list[JsonlTail] = field(default_factory=list)

    @property
    def folder(self) -> RunFolder:
        """The run folder."""
        return self.coordinator.folder

    @property
    def secrets(self) -> dict[str, list[Path]]:
        """The files, by name, that the engine must not be able to open."""
        return {"run folder": [self.folder.path], "identity": [self.identity.path], "terms": [self.terms.path]}

    def run(self) -> str:
        """Run the study until it ends or is stopped, and return its outcome; a hub that fails is restarted."""
        shield()
        self._skip_old_lines()
        with publish_status(self.status, self.folder.checkpoints / STATUS_FILE):
            update_status(self.status, self.coordinator)
            self.audit("start", study=self.terms.name, experiment=self.coordinator.experiment)
            try:
                return self._supervise_hub()
            finally:
                done, dropped = self.coordinator.progress.round, self.status.dropped
                self.audit("stop", study=self.terms.name, round=done, dropped=dropped)

    def _supervise_hub(self) -> str:
        while True:
            check_port_free(self.engine.address)
            if self.certificates is not None:
                self.engine = replace(self.engine, peers=self.certificates())
            running = self.engine.start(self.secrets)
            try:
                return self._run_rounds(running)
            except BrokenLink as error:
                LOG.info(f"restarting the engine: {error}")
                self.status.restarts += 1
                self.audit("engine restarted", reason=str(error))
                time.sleep(1.0)
            finally:
                self.status.listening = None
                self.status.sites.clear()
                self._show_new_lines()
                update_status(self.status, self.coordinator)
                running.stop()

    def _run_rounds(self, running: EngineProcess) -> str:
        exchange = SealedExchange(
            running.link,
            self.terms,
            self.identity,
            self.coordinator.experiment,
            self.coordinator.agreement.message_limit,
            versions=self.versions,
            status=self.status,
            audit=self.audit,
        )
        end = time.monotonic() + LISTEN_SECONDS
        while not exchange.listening and not self.stop():
            exchange.wait(POLL_SECONDS)
            if time.monotonic() > end:
                raise BrokenLink(f"the engine does not listen on {self.engine.address} after {LISTEN_SECONDS:g} s")
        expected = ", ".join(self.coordinator.expected_sites) or "no site"
        LOG.info(f"listening on {self.engine.address}; waiting for {expected}")

        def stop() -> bool:
            self._show_new_lines()
            update_status(self.status, self.coordinator)
            if time.monotonic() - exchange.last_heartbeat > SILENCE_SECONDS:
                raise BrokenLink(f"no heartbeat for {SILENCE_SECONDS:g} s")
            if self.certificates is not None and self.certificates() != self.engine.peers:
                raise BrokenLink("a kit was renewed, and the engine knows the old one")
            return self.stop()

        return self.coordinator.run(exchange, stop)

    def _skip_old_lines(self) -> None:
        """Start to follow the two line files at their end."""
        paths = (site_events_path(self.folder), rounds_path(self.folder.path))
        self._tails = [JsonlTail(path) for path in paths]
        for tail in self._tails:
            make_file(tail.path)
            tail.more()

    def _show_new_lines(self) -> None:
        """Pass new lines of the two files to the operator and to the audit log."""
        for tail in self._tails:
            for line in tail.more()[0]:
                self.watch(cast(StudyLine, line))
                if "event" not in line:
                    self.audit("round", **line)
                elif line["event"] != "round":
                    facts = {name: value for name, value in line.items() if name not in ("event", "time")}
                    self.audit(line["event"], **facts)


def update_status(status: CoordinatorStatus, coordinator: Coordinator) -> None:
    """Record how far a study is in the status of its command."""
    terms = coordinator.agreement.terms
    status.study, status.quorum, status.wanted = terms.name, terms.quorum, len(coordinator.agents)
    status.round, status.rounds = coordinator.progress.round, coordinator.agreement.part.rounds
    status.bytes_up, status.bytes_down = coordinator.progress.sent
    if (slots := coordinator.slots) is not None:
        status.epoch, status.slots, status.slots_lost, status.slots_planned = slots


def run_coordinator(
    terms: Terms,
    kits: Path,
    identity: Path,
    out: Path,
    stop: Callable[[], bool],
    watch: Callable[[StudyLine], None],
    without: Sequence[str] = (),
    audit: AuditLog = no_audit,
    evaluate: bool = False,
) -> tuple[RunFolder, str]:
    """Run a study to its end, or resume it; or only evaluate its model as it is.

    Parameters
    ----------
    terms : Terms
        The study's terms, with all identities.
    kits : Path
        The folder that `provision` wrote.
    identity : Path
        The coordinator's private identity; the public one is in the terms.
    out : Path
        The run folder.
    stop : callable
        Returns whether to stop.
    watch : callable
        Gets the new lines of rounds.jsonl and sites.jsonl.
    without : sequence of str
        Sites to leave out for good.
    audit : AuditLog, optional
        Gets everything that happens.
    evaluate : bool, default False
        Make one evaluation of the model as it is, and no round.

    Returns
    -------
    RunFolder, str
        The run, and its outcome: FINISHED, STOPPED or EVALUATED.

    Raises
    ------
    InputError
        If the terms are incomplete, the identity, kit or run folder does not match them, or the model cannot be
        evaluated.
    """
    terms.check_complete()
    own = Identity.open(identity)
    if own.public != terms.coordinator:
        raise InputError(f"{identity} is not the coordinator's identity in {terms.path}")
    kit = read_kit(kits / HUB, HUB)
    check_address(kit, terms)
    begun = begin_study(terms, out.resolve())
    if evaluate and begun.folder.finished and not without:
        return begun.folder, FINISHED
    with begun.folder.locked():  # before the state is restored: else lines of a process at work were taken back
        coordinator = open_study(begun, without)
        return begun.folder, _conduct(coordinator, kits, own, stop, watch, audit, evaluate)


def _conduct(
    coordinator: Coordinator,
    kits: Path,
    identity: Identity,
    stop: Callable[[], bool],
    watch: Callable[[StudyLine], None],
    audit: AuditLog,
    evaluate: bool,
) -> str:
    """Start the hub and run a restored study, unless it has nothing left to do; return its outcome."""
    terms, folder = coordinator.agreement.terms, coordinator.folder
    if coordinator.excluded:
        LOG.info(f"left out of this study: {', '.join(coordinator.excluded)}")
    if coordinator.agreement.sum_parameters is not None:
        LOG.info(describe_parameters(coordinator.agreement.sum_parameters))
    if folder.finished and (evaluate or not coordinator.unclosed_sites):
        return FINISHED
    if evaluate and coordinator.is_evaluated:
        return EVALUATED
    if evaluate:
        check_can_evaluate(coordinator)
    coordinator.evaluate_now = evaluate

    def certificates() -> list[str]:
        known = read_issued(kits)
        return [f"{site}={known[site]}" for site in coordinator.agents if site in known]

    limit = coordinator.agreement.message_limit + OVERHEAD
    log = folder.path / "engine.log"
    address = hub_address(terms.host, terms.port)
    engine = Engine(HUB, certificates(), kits / HUB, address, limit, log, terms.engine_user)
    return CoordinatorProcess(terms, engine, identity, coordinator, stop, watch, certificates, audit).run()


def check_can_evaluate(coordinator: Coordinator) -> None:
    """Raise an `InputError` if the model of a study cannot be evaluated now."""
    terms, schedule = coordinator.agreement.terms, coordinator.schedule
    if coordinator.agreement.measure is None:
        raise InputError(
            f"{terms.path} has no evaluations, so no records are held out: a new study can have [study] test_share "
            "and evaluations"
        )
    if coordinator.progress.round == 0:
        raise InputError(f"{coordinator.folder.path} has no finished round yet, so there is no model to evaluate")
    if schedule.left < 1 and not coordinator.evaluation_begun:
        raise InputError(
            f"the terms pay for {schedule.paid} evaluations, and all of them are spent: the sites answer no others"
        )


def check_port_free(address: str) -> None:
    """Raise an `InputError` if another program listens on an address, given as host:port."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            raise InputError(f"cannot listen on {address} ({error.strerror}); is another server running?") from error
