"""A site's own process: it holds records, journal, ledger and identity, and opens no connection.

Messages come over a link from the engine, which is confined and trusted with nothing. Only a question that the
coordinator sealed for this site is considered; what leaves was journaled, charged, checked once more, and is sealed for
the coordinator.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taciturn.errors import InputError, PrivacyViolation
from taciturn.federation import messages as wire
from taciturn.federation.agent import SiteAgent
from taciturn.federation.agreement import Prepared
from taciturn.federation.confinement import shield
from taciturn.federation.departures import KEPT_BACK
from taciturn.federation.engine import Engine, EngineProcess
from taciturn.federation.final_model import keep_evidence
from taciturn.federation.identity import Identity
from taciturn.federation.journal import Journal
from taciturn.federation.kits import HUB, check_address, read_kit
from taciturn.federation.link import BrokenLink, Frame, Kind
from taciturn.federation.logs import AuditLog, RateLimit, no_audit
from taciturn.federation.messages import Answer, CloseRequest, Invitation, Refusal, Reply
from taciturn.federation.policy import Site, read_site
from taciturn.federation.release import ReleaseGate
from taciturn.federation.seal import (
    HANDSHAKE,
    OVERHEAD,
    Opened,
    OtherTerms,
    Unsealed,
    open_question,
    reply_header,
    seal_answer,
)
from taciturn.federation.site_session import study_folder
from taciturn.federation.status import LOCK, STATUS, SiteLife, shown
from taciturn.federation.terms import Terms, read_terms
from taciturn.runs.folder import RunFolder

LOOK = 0.5  # seconds between two looks at what else there is to do
STEADY = 5.0  # seconds that an engine must have run to be started again at once
LONGEST = 30.0  # seconds to wait before an engine that keeps falling is started again
SILENT = 15.0  # seconds without a sign of life, after which an engine is started again
LONGEST_REASON = 500  # characters of a refusal in the audit
ALONE = 600.0  # seconds without a connection, after which it is started again
PATIENCE = 1.0  # seconds for a command that looks whether an agent is at work


class OutOfOrder(Exception):
    """The site cannot write what it would have to before anything leaves."""


@dataclass
class Vault:
    """What a site does with the bytes an engine brings."""

    path: Path  # site.toml
    agent: SiteAgent
    identity: Identity
    release: ReleaseGate
    say: Callable[[str], None] = lambda line: None
    audit: AuditLog = no_audit
    life: SiteLife = field(default_factory=SiteLife)
    dropped: int = 0
    seldom: RateLimit = field(default_factory=RateLimit)
    _read: tuple[bytes, Terms] | None = field(default=None, repr=False)

    def answer(self, sealed: bytes) -> bytes | None:
        """The sealed answer to a sealed question; None where the coordinator did not ask this site that.

        Parameters
        ----------
        sealed
            Bytes from anywhere.

        Raises
        ------
        OutOfOrder
            Where the disk is full or broken; nothing leaves.
        """
        site = read_site(self.path)
        terms = self._terms(site)
        try:
            opened = open_question(
                sealed,
                self.identity,
                terms.coordinator,
                self.agent.limit,
                site=site.name,
                terms=bytes.fromhex(terms.digest),
            )
            self._look_inside(site, terms, opened)
        except OtherTerms as other:
            body = self.agent.refuse(reply_header(sealed).experiment.hex(), str(other))
        except Unsealed as error:
            self._drop(error)
            return None
        except OSError as error:  # the coordinator asks again
            self.say(f"the signature under the model cannot be kept ({error}): nothing is answered")
            return None
        else:
            self.life.question = time.time()
            kind = wire.kind_of(opened.body)
            if kind == wire.KINDS[Invitation]:
                self.audit("invitation", experiment=reply_header(sealed).experiment.hex())
            body = self._considered(opened.body)
        try:
            leaves = self.release.check(site, body)
        except PrivacyViolation as violation:
            self.agent.break_off(reply_header(sealed).experiment.hex(), violation)
            self.audit("kept back", experiment=reply_header(sealed).experiment.hex(), sha256=wire.digest(body))
            return None
        self.life.answer, self.life.study = time.time(), self.agent.study
        self.life.rounds += isinstance(leaves, Answer)
        self._tell(leaves, body)
        return seal_answer(body, reply_header(sealed), self.identity, terms.coordinator)

    def connection(self, up: bool) -> None:
        """Take note of what the engine says of its connection; nobody has to believe it."""
        if up == (self.life.connected is not None):
            return
        self.life.connected = time.time() if up else None
        if self.seldom():
            self.say("connected to the coordinator" if up else "no longer connected to the coordinator")
            self.audit("connected" if up else "disconnected")

    def _look_inside(self, site: Site, terms: Terms, opened: Opened) -> None:
        """Inside and outside of an envelope agree, and what the coordinator signs as the final model is kept."""
        try:
            message = wire.question(opened.body, self.agent.limit)
        except wire.Malformed:
            return  # which the agent refuses
        if message.experiment != opened.header.experiment.hex():
            raise Unsealed("a question is about another study than its envelope")
        if isinstance(message, Invitation) != (opened.header.version == HANDSHAKE):
            raise Unsealed(f"a question is of version {opened.header.version}: only invitations are of {HANDSHAKE}")
        place = study_folder(site, message.experiment)
        if isinstance(message, CloseRequest) and place.exists():
            keep_evidence(RunFolder.open(place), opened, terms.coordinator, self.identity.public)

    def _tell(self, leaves: Reply, body: bytes) -> None:
        """A line of the audit for what leaves."""
        facts: dict[str, Any] = {"kind": wire.KINDS[type(leaves)], "experiment": leaves.experiment}
        if isinstance(leaves, Answer):
            facts["round"] = leaves.round
        if isinstance(leaves, Refusal):
            self.audit("refusal", experiment=leaves.experiment, reason=leaves.reason[:LONGEST_REASON])
        self.audit("departure", **facts, bytes=len(body), sha256=wire.digest(body))

    def _considered(self, question: bytes) -> bytes:
        """What the agent says; a refusal for a full disk would end the site's part in a study, and is kept back."""
        try:
            body = self.agent.answer(question)
        except (OSError, sqlite3.Error) as error:  # not even a refusal could be written down
            raise OutOfOrder(str(error)) from error
        if self.agent.trouble:
            self.agent.journal.departed(wire.digest(body), KEPT_BACK)
            raise OutOfOrder(self.agent.trouble)
        return body

    def _terms(self, site: Site) -> Terms:
        """The site's own copy of the terms, read again where it has changed."""
        content = site.study.read_bytes()
        if self._read is None or self._read[0] != content:
            self._read = content, read_terms(site.study)
        return self._read[1]

    def _drop(self, error: Unsealed) -> None:
        self.dropped += 1
        self.life.dropped = self.dropped
        if self.dropped & (self.dropped - 1) == 0:  # the 1st, 2nd, 4th, 8th...
            self.audit("dropped", messages=self.dropped)
            self.say(f"dropped {self.dropped} messages that the coordinator did not seal for this site: {error}")


def run_vault(
    site: Site,
    prepared: Prepared,
    seed: int | None,
    say: Callable[[str], None],
    stop: Callable[[], bool],
    audit: AuditLog = no_audit,
) -> None:
    """Work until somebody asks to stop; an engine that falls is started again."""
    shield()
    identity = Identity.open(site.identity)
    with _alone(site.state), Journal.open(site.state) as journal:
        agent = SiteAgent(site.path, journal, seed, say, prepared=prepared)
        vault = Vault(site.path, agent, identity, ReleaseGate(journal), say, audit)
        audit("start", pid=os.getpid())
        try:
            with shown(vault.life, site.state / STATUS):
                _keep_up(vault, site, prepared, stop)
        finally:
            audit("stop", dropped=vault.dropped)


def _keep_up(vault: Vault, site: Site, prepared: Prepared, stop: Callable[[], bool]) -> None:
    """One engine after the other.

    The records are read while the first one starts: a site that was killed is back the sooner.
    """
    wait, told = 0.0, False
    while not stop():
        running = engine_of(site, prepared).start(secrets_of(site))
        began = time.monotonic()
        try:
            if not told:
                prepared.dataset(site)
                vault.say(f"{site.name}: the agent is up; Ctrl-C stops it")
                told = True
            _serve(vault, running, stop)
        except BrokenLink as error:
            vault.say(f"the engine is gone ({error}): starting it again")
            vault.life.restarts += 1
            vault.audit("engine restarted", reason=str(error))
        except OutOfOrder as error:
            vault.say(f"hung up, and will try again: this site cannot write ({error})")
            vault.audit("out of order", reason=str(error))
        finally:
            vault.life.connected = None
            running.stop()
        wait = 0.0 if time.monotonic() - began > STEADY else min(max(1.0, 2.0 * wait), LONGEST)
        end = time.monotonic() + wait
        while time.monotonic() < end and not stop():
            time.sleep(min(LOOK, wait))


def _serve(vault: Vault, running: EngineProcess, stop: Callable[[], bool]) -> None:
    """Answer what comes over one link, until it breaks."""
    heard = alone = time.monotonic()
    while not stop():
        frame = running.link.receive(LOOK)
        if vault.life.connected is None and time.monotonic() - alone > ALONE:
            raise BrokenLink(f"not connected to the coordinator for {ALONE:g} s")
        if frame is None:
            if time.monotonic() - heard > SILENT:
                raise BrokenLink(f"no sign of life for {SILENT:g} s")
            continue
        heard, vault.life.heartbeat = time.monotonic(), time.time()
        if frame.kind is Kind.MESSAGE:
            sealed = vault.answer(frame.data)
            if sealed is not None:
                running.link.send(Frame(Kind.MESSAGE, HUB, sealed))
            heard = time.monotonic()  # what came in the meantime waits in the link
        elif frame.kind in (Kind.UP, Kind.DOWN):
            alone = time.monotonic()
            vault.connection(frame.kind is Kind.UP)


def secrets_of(site: Site) -> dict[str, list[Path]]:
    """What the engine must not be able to open, by name."""
    records = {"records": [Path(site.table)]} if site.table else {}
    own = {"journal": [site.state], "ledger": [site.ledger], "identity": [site.identity]}
    return records | own | {"policy": [site.path], "terms": [site.study]}


def engine_of(site: Site, prepared: Prepared) -> Engine:
    """The engine for this site's terms as they are now."""
    agreement = prepared.agreement(site)
    kit = read_kit(site.kit, site.name)
    check_address(kit, agreement.terms)
    limit = wire.HEADER_LIMIT + 1024 + agreement.zero.nbytes + OVERHEAD
    return Engine(site.name, [HUB], kit.path, kit.address, limit, site.state / "engine.log", site.engine_user)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One agent for a site."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > end:
                    raise InputError(f"an agent is at work in {folder} already") from None
                time.sleep(0.05)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
