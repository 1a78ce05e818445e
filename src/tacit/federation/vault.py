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

from tacit.errors import InputError, PrivacyViolation
from tacit.federation import wire
from tacit.federation.agent import SiteAgent
from tacit.federation.agreement import Prepared
from tacit.federation.confinement import shield
from tacit.federation.departures import KEPT_BACK
from tacit.federation.engine import Engine, Running
from tacit.federation.identity import Identity
from tacit.federation.journal import Journal
from tacit.federation.kits import HUB, check_address, read_kit
from tacit.federation.link import BrokenLink, Frame, Kind
from tacit.federation.policy import Site, read_site
from tacit.federation.release import Release
from tacit.federation.seal import OVERHEAD, OtherTerms, Unsealed, open_question, reply_header, seal_answer
from tacit.federation.terms import Terms, read_terms

LOOK = 0.5  # seconds between two looks at what else there is to do
STEADY = 5.0  # seconds that an engine must have run to be started again at once
LONGEST = 30.0  # seconds to wait before an engine that keeps falling is started again
SILENT = 15.0  # seconds without a sign of life, after which an engine is started again


class OutOfOrder(Exception):
    """The site cannot write what it would have to before anything leaves."""


@dataclass
class Vault:
    """What a site does with the bytes an engine brings."""

    path: Path  # site.toml
    agent: SiteAgent
    identity: Identity
    release: Release
    say: Callable[[str], None] = lambda line: None
    dropped: int = 0
    answered: float = 0.0  # when something last left
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
        except OtherTerms as other:
            body = self.agent.refuse(reply_header(sealed).experiment.hex(), str(other))
        except Unsealed as error:
            self._drop(error)
            return None
        else:
            body = self._considered(opened.body)
        try:
            self.release.check(site, body)
        except PrivacyViolation as violation:
            self.agent.break_off(reply_header(sealed).experiment.hex(), violation)
            return None
        self.answered = time.time()
        return seal_answer(body, reply_header(sealed), self.identity, terms.coordinator)

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
        if self.dropped & (self.dropped - 1) == 0:  # the 1st, 2nd, 4th, 8th...
            self.say(f"dropped {self.dropped} messages that the coordinator did not seal for this site: {error}")


def run_vault(
    site: Site, prepared: Prepared, seed: int | None, say: Callable[[str], None], stop: Callable[[], bool]
) -> None:
    """Work until somebody asks to stop; an engine that falls is started again.

    The records are read while the first engine starts: a site that was killed is back the sooner.
    """
    shield()
    identity = Identity.open(site.identity)
    with _alone(site.state), Journal.open(site.state) as journal:
        agent = SiteAgent(site.path, journal, seed, say, prepared=prepared)
        vault = Vault(site.path, agent, identity, Release(journal), say)
        wait, told = 0.0, False
        while not stop():
            running = engine_of(site, prepared).start(secrets_of(site))
            began = time.monotonic()
            try:
                if not told:
                    prepared.records(site)
                    say(f"{site.name}: the agent is up; Ctrl-C stops it")
                    told = True
                _serve(vault, running, say, stop)
            except BrokenLink as error:
                say(f"the engine is gone ({error})")
            except OutOfOrder as error:
                say(f"hung up, and will try again: this site cannot write ({error})")
            finally:
                running.stop()
            wait = 0.0 if time.monotonic() - began > STEADY else min(max(1.0, 2.0 * wait), LONGEST)
            end = time.monotonic() + wait
            while time.monotonic() < end and not stop():
                time.sleep(min(LOOK, wait))


def _serve(vault: Vault, running: Running, say: Callable[[str], None], stop: Callable[[], bool]) -> None:
    """Answer what comes over one link, until it breaks."""
    heard = time.monotonic()
    while not stop():
        frame = running.link.receive(LOOK)
        if frame is None:
            if time.monotonic() - heard > SILENT:
                raise BrokenLink(f"no sign of life for {SILENT:g} s")
            continue
        heard = time.monotonic()
        if frame.kind is Kind.MESSAGE:
            sealed = vault.answer(frame.data)
            if sealed is not None:
                running.link.send(Frame(Kind.MESSAGE, HUB, sealed))
        elif frame.kind in (Kind.UP, Kind.DOWN):
            say("connected to the coordinator" if frame.kind is Kind.UP else "no longer connected to the coordinator")


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
    return Engine(site.name, [HUB], kit.path, kit.address, limit, site.state / "engine.log")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One agent for a site."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "agent.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"an agent is at work in {folder} already") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
