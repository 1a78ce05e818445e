"""A site's main process: it holds records, journal, ledger and identity, and opens no network connection.

Messages arrive over a link from the engine, which is confined and not trusted. Only a question that the coordinator
sealed for this site is considered. A reply is journaled, charged, checked by the release gate, and sealed for the
coordinator before it is handed to the engine.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from taciturn.core.locks import locked
from taciturn.core.storage import make_folder
from taciturn.errors import PrivacyViolation
from taciturn.federation import messages as wire
from taciturn.federation import seal
from taciturn.federation.agent import SiteAgent
from taciturn.federation.agreement import StudyLoader
from taciturn.federation.confinement import shield
from taciturn.federation.engine import Engine, EngineProcess
from taciturn.federation.identity import Identity
from taciturn.federation.journal import KEPT_BACK, Journal
from taciturn.federation.kits import HUB, check_address, read_kit
from taciturn.federation.link import BrokenLink, Frame, Kind
from taciturn.federation.logs import LOG, AuditLog, RateLimit, is_noted, no_audit
from taciturn.federation.messages import CloseRequest, Invitation, Refusal, Reply, upload_round
from taciturn.federation.policy import Site, read_site
from taciturn.federation.release import ReleaseGate
from taciturn.federation.run_folder import store_model_signature
from taciturn.federation.site_session import study_folder
from taciturn.federation.status import AGENT_LOCK, STATUS_FILE, AgentStatus, publish_status
from taciturn.federation.terms import Terms, read_terms
from taciturn.runs.folder import RunFolder

POLL_SECONDS = 0.5  # between two checks for other work
STEADY_SECONDS = 5.0  # an engine that ran this long is restarted at once
LONGEST_WAIT = 30.0  # seconds before an engine that keeps failing is restarted
SILENCE_SECONDS = 15.0  # without a heartbeat, after which an engine is restarted
DISCONNECTED_SECONDS = 600.0  # without a connection, after which an engine is restarted
AUDIT_REASON_LENGTH = 500  # characters of a refusal in the audit log


class StorageUnavailable(Exception):
    """The site cannot write the records that must precede a departure."""


@dataclass
class Vault:
    """What a site does with the bytes that an engine delivers.

    Parameters
    ----------
    path : Path
        site.toml.
    agent : SiteAgent
        Decides and computes the reply.
    identity : Identity
        The site's private identity.
    release : ReleaseGate
        Checks every reply before it leaves.
    audit : AuditLog, optional
        Gets everything that happens.
    """

    path: Path
    agent: SiteAgent
    identity: Identity
    release: ReleaseGate
    audit: AuditLog = no_audit
    status: AgentStatus = field(default_factory=AgentStatus)
    rate_limit: RateLimit = field(default_factory=RateLimit)
    _terms_cache: tuple[bytes, Terms] | None = field(default=None, repr=False)

    def answer(self, sealed: bytes) -> bytes | None:
        """Return the sealed answer to a sealed question, or None if there is nothing to answer.

        Parameters
        ----------
        sealed : bytes
            Untrusted bytes.

        Raises
        ------
        StorageUnavailable
            If the disk is full or broken; nothing leaves.
        """
        site = read_site(self.path)
        terms = self._read_terms(site)
        digest = bytes.fromhex(terms.digest)
        try:
            opened = seal.open_question(
                sealed, self.identity, terms.coordinator, self.agent.message_limit, site=site.name, terms=digest
            )
            self._check_envelope(site, terms, opened)
        except seal.TermsMismatch as error:
            body = self.agent.refuse(seal.reply_header(sealed).experiment.hex(), str(error))
        except seal.InvalidSeal as error:
            self._drop(error)
            return None
        except OSError as error:  # the coordinator asks again
            LOG.info(f"cannot store the signature of the model ({error}); the question is not answered")
            return None
        else:
            self.status.question = time.time()
            if wire.message_kind(opened.body) == wire.KINDS[Invitation]:
                self.audit("invitation", experiment=opened.header.experiment.hex())
            body = self._ask_agent(opened.body)
        header = seal.reply_header(sealed)
        try:
            reply = self.release.check(site, body)
        except PrivacyViolation as violation:
            self.agent.abort_study(header.experiment.hex(), violation)
            self.audit("kept back", experiment=header.experiment.hex(), sha256=wire.digest(body))
            return None
        self.status.answer, self.status.study = time.time(), self.agent.active_study
        self.status.rounds += upload_round(reply) is not None
        self._audit_departure(reply, body)
        return seal.seal_answer(body, header, self.identity, terms.coordinator)

    def set_connected(self, connected: bool) -> None:
        """Record what the engine says about its connection; the information is not trusted."""
        if connected == (self.status.connected is not None):
            return
        self.status.connected = time.time() if connected else None
        if self.rate_limit.allows():
            LOG.info("connected to the coordinator" if connected else "disconnected from the coordinator")
            self.audit("connected" if connected else "disconnected")

    def _check_envelope(self, site: Site, terms: Terms, opened: seal.Opened) -> None:
        """Check that envelope and content agree, and store the coordinator's signature of the final model."""
        try:
            message = wire.decode_question(opened.body, self.agent.message_limit)
        except wire.Malformed:
            return  # the agent refuses it
        if message.experiment != opened.header.experiment.hex():
            raise seal.InvalidSeal("a question names another study than its envelope")
        if isinstance(message, Invitation) != (opened.header.version == seal.HANDSHAKE):
            raise seal.InvalidSeal(
                f"a question has version {opened.header.version}; exactly invitations have {seal.HANDSHAKE}"
            )
        place = study_folder(site, message.experiment)
        if isinstance(message, CloseRequest) and place.exists():
            store_model_signature(RunFolder.open(place), opened, terms.coordinator, self.identity.public)

    def _audit_departure(self, reply: Reply, body: bytes) -> None:
        if isinstance(reply, Refusal):
            self.audit("refusal", experiment=reply.experiment, reason=reply.reason[:AUDIT_REASON_LENGTH])
        facts: dict[str, object] = {"kind": wire.KINDS[type(reply)], "experiment": reply.experiment}
        t = upload_round(reply)
        facts |= {} if t is None else {"round": t}
        self.audit("departure", **facts, bytes=len(body), sha256=wire.digest(body))

    def _ask_agent(self, question: bytes) -> bytes:
        """Return the agent's reply. A refusal because of a full disk would end the site's part, so it stays here."""
        try:
            body = self.agent.answer(question)
        except (OSError, sqlite3.Error) as error:  # not even a refusal could be recorded
            raise StorageUnavailable(str(error)) from error
        if self.agent.disk_error:
            self.agent.journal.settle_departure(wire.digest(body), KEPT_BACK)
            raise StorageUnavailable(self.agent.disk_error)
        return body

    def _read_terms(self, site: Site) -> Terms:
        """Return the site's own copy of the terms, parsed again only if it has changed."""
        content = site.study.read_bytes()
        if self._terms_cache is None or self._terms_cache[0] != content:
            self._terms_cache = content, read_terms(site.study)
        return self._terms_cache[1]

    def _drop(self, error: seal.InvalidSeal) -> None:
        self.status.dropped += 1
        count = self.status.dropped
        if is_noted(count):
            self.audit("dropped", messages=count)
            LOG.info(f"dropped {count} messages that the coordinator did not seal for this site: {error}")


def run_vault(
    site: Site,
    loader: StudyLoader,
    seed: int | None,
    stop: Callable[[], bool],
    audit: AuditLog = no_audit,
) -> None:
    """Run a site's agent until `stop()` is true; an engine that fails is restarted.

    Parameters
    ----------
    site : Site
        The site.
    loader : StudyLoader
        Cache of the site's study and records.
    seed : int or None
        A seed for the noise, for tests: it gives no protection.
    stop : callable
        Returns whether the agent should stop.
    audit : AuditLog, optional
        Gets everything that happens.

    Raises
    ------
    InputError
        If an agent of this site is running already.
    """
    shield()
    identity = Identity.open(site.identity)
    make_folder(site.state, exist_ok=True, private=True)
    with (
        locked(site.state / AGENT_LOCK, f"an agent is running in {site.state} already", f"{os.getpid()}\n"),
        Journal.open(site.state) as journal,
    ):
        agent = SiteAgent(site.path, journal, seed, loader=loader)
        vault = Vault(site.path, agent, identity, ReleaseGate(journal), audit)
        audit("start", pid=os.getpid())
        try:
            with publish_status(vault.status, site.state / STATUS_FILE):
                _supervise_engine(vault, site, loader, stop)
        finally:
            audit("stop", dropped=vault.status.dropped)


def _supervise_engine(vault: Vault, site: Site, loader: StudyLoader, stop: Callable[[], bool]) -> None:
    """Run one engine after another. The records are loaded while the first one starts, so that a restart is fast."""
    wait, loaded = 0.0, False
    while not stop():
        running = site_engine(site, loader).start(engine_secrets(site))
        began = time.monotonic()
        try:
            if not loaded:
                loader.dataset(site)
                LOG.info(f"{site.name}: the agent is up; Ctrl-C stops it")
                loaded = True
            _serve(vault, running, stop)
        except BrokenLink as error:
            LOG.info(f"restarting the engine: {error}")
            vault.status.restarts += 1
            vault.audit("engine restarted", reason=str(error))
        except StorageUnavailable as error:
            LOG.info(f"disconnected, will try again: this site cannot write ({error})")
            vault.audit("out of order", reason=str(error))
        finally:
            vault.status.connected = None
            running.stop()
        wait = 0.0 if time.monotonic() - began > STEADY_SECONDS else min(max(1.0, 2.0 * wait), LONGEST_WAIT)
        end = time.monotonic() + wait
        while time.monotonic() < end and not stop():
            time.sleep(min(POLL_SECONDS, wait))


def _serve(vault: Vault, running: EngineProcess, stop: Callable[[], bool]) -> None:
    """Answer the messages of one link until it breaks."""
    last_heartbeat = disconnected = time.monotonic()
    while not stop():
        frame = running.link.receive(POLL_SECONDS)
        if vault.status.connected is None and time.monotonic() - disconnected > DISCONNECTED_SECONDS:
            raise BrokenLink(f"not connected to the coordinator for {DISCONNECTED_SECONDS:g} s")
        if frame is None:
            if time.monotonic() - last_heartbeat > SILENCE_SECONDS:
                raise BrokenLink(f"no heartbeat for {SILENCE_SECONDS:g} s")
            continue
        last_heartbeat, vault.status.heartbeat = time.monotonic(), time.time()
        if frame.kind is Kind.MESSAGE:
            sealed = vault.answer(frame.data)
            if sealed is not None:
                running.link.send(Frame(Kind.MESSAGE, HUB, sealed))
            last_heartbeat = time.monotonic()  # heartbeats that arrived in the meantime wait in the link
        elif frame.kind in (Kind.UP, Kind.DOWN):
            disconnected = time.monotonic()
            vault.set_connected(frame.kind is Kind.UP)


def engine_secrets(site: Site) -> dict[str, list[Path]]:
    """Return the files that the engine must not be able to open.

    Returns
    -------
    dict
        Lists of files and folders, by a name for error messages.
    """
    records = {"records": [Path(site.table)]} if site.table else {}
    own = {"journal": [site.state], "ledger": [site.ledger], "identity": [site.identity]}
    return records | own | {"policy": [site.path], "terms": [site.study]}


def site_engine(site: Site, loader: StudyLoader) -> Engine:
    """Return the engine for the current terms of a site.

    Raises
    ------
    InputError
        If the kit is not this site's, or is for another address than that in the terms.
    """
    agreement = loader.agreement(site)
    kit = read_kit(site.kit, site.name)
    check_address(kit, agreement.terms)
    limit = agreement.message_limit + seal.OVERHEAD
    return Engine(site.name, [HUB], kit.path, kit.address, limit, site.state / "engine.log", site.engine_user)
