"""Conducting a study: the hub beside the coordinator, and the rounds over it until the study has ended."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from taciturn.errors import InputError
from taciturn.federation import messages as wire
from taciturn.federation.confinement import shield
from taciturn.federation.coordinator import FINISHED, Coordinator, sites_file
from taciturn.federation.coordinator_setup import open_study
from taciturn.federation.engine import Engine, EngineProcess, hub_address
from taciturn.federation.exchange import SealedExchange
from taciturn.federation.identity import Identity
from taciturn.federation.kits import HUB, check_address, read_issued, read_kit
from taciturn.federation.link import BrokenLink
from taciturn.federation.logs import AuditLog, no_audit
from taciturn.federation.seal import OVERHEAD
from taciturn.federation.status import STATUS, RunLife, shown
from taciturn.federation.terms import Terms
from taciturn.runs.folder import RunFolder

LISTEN_SECONDS = 60.0
SILENT = 15.0  # seconds without a sign of life, after which a hub is started again
LOOK = 0.25

Say = Callable[[str], None]


@dataclass
class Conductor:
    """A study on its way; `run` comes back when it has ended or somebody asked to stop."""

    terms: Terms
    engine: Engine
    identity: Identity
    coordinator: Coordinator
    say: Say
    stop: Callable[[], bool]
    watch: Callable[[dict[str, Any]], None]  # a line of rounds.jsonl or sites.jsonl
    read: dict[Path, int] = field(default_factory=dict)  # how far those files were shown
    versions: dict[str, int] = field(default_factory=dict)
    certificates: Callable[[], list[str]] | None = None  # the hub's peers, as they are now
    audit: AuditLog = no_audit
    life: RunLife = field(default_factory=RunLife)

    @property
    def folder(self) -> RunFolder:
        """The run folder."""
        return self.coordinator.folder

    @property
    def secrets(self) -> dict[str, list[Path]]:
        """What the engine must not be able to open, by name."""
        return {"run folder": [self.folder.path], "identity": [self.identity.place], "terms": [self.terms.path]}

    def run(self) -> str:
        """Conduct the study; a hub that falls is started again."""
        shield()
        self.read = {path: path.stat().st_size for path in self._files() if path.exists()}
        with self.folder.locked(), shown(self.life, self.folder.checkpoints / STATUS):
            self._note_rounds()
            self.audit("start", study=self.terms.name, experiment=self.coordinator.experiment)
            try:
                return self._keep_up()
            finally:
                self.audit("stop", study=self.terms.name, round=self.coordinator.state.round, dropped=self.life.dropped)

    def _keep_up(self) -> str:
        """One hub after the other, until the study has ended."""
        while True:
            check_free(self.engine.address)
            if self.certificates is not None:
                self.engine = replace(self.engine, peers=self.certificates())
            running = self.engine.start(self.secrets)
            try:
                return self._conduct(running)
            except BrokenLink as error:
                self.say(f"the engine is gone ({error}): starting it again")
                self.life.restarts += 1
                self.audit("engine restarted", reason=str(error))
                time.sleep(1.0)
            finally:
                self.life.listening = None
                self.life.sites.clear()
                self._show()
                self._note_rounds()
                running.stop()

    def _note_rounds(self) -> None:
        """How far the study is, for the status."""
        coordinator, life = self.coordinator, self.life
        life.study, life.quorum = self.terms.name, self.terms.quorum
        life.round, life.rounds = coordinator.state.round, coordinator.agreement.part.rounds
        life.wanted = len(coordinator.agents)
        life.bytes_up, life.bytes_down = coordinator.state.sent

    def _conduct(self, running: EngineProcess) -> str:
        limit = wire.HEADER_LIMIT + 1024 + self.coordinator.agreement.zero.nbytes
        exchange = SealedExchange(
            running.link, self.terms, self.identity, self.coordinator.experiment, limit, self.say, self.versions
        )
        exchange.life, exchange.audit = self.life, self.audit
        end = time.monotonic() + LISTEN_SECONDS
        while not exchange.listening and not self.stop():
            exchange.wait(LOOK)
            if time.monotonic() > end:
                raise BrokenLink(f"it does not listen on {self.engine.address} after {LISTEN_SECONDS:g} s")
        self.say(f"listening on {self.engine.address}; waiting for {', '.join(self.coordinator.wanted) or 'no site'}")

        def stop() -> bool:
            self._show()
            self._note_rounds()
            if time.monotonic() - exchange.heard > SILENT:
                raise BrokenLink(f"no sign of life for {SILENT:g} s")
            if self.certificates is not None and self.certificates() != self.engine.peers:
                raise BrokenLink("a kit was renewed, and it knows the old one")
            return self.stop()

        return self.coordinator.conduct(exchange, stop)

    def _tell(self, line: dict[str, Any]) -> None:
        """A line of the audit for what happened with a site, or for a round."""
        if "event" not in line:
            self.audit("round", **line)
        elif line["event"] != "round":
            facts = {name: value for name, value in line.items() if name not in ("event", "time")}
            self.audit(line["event"], **facts)

    def _files(self) -> tuple[Path, Path]:
        return sites_file(self.folder), self.folder.path / "rounds.jsonl"

    def _show(self) -> None:
        """New lines of the two files, to the person who watches."""
        for path in self._files():
            if not path.exists():
                continue
            begin = min(self.read.get(path, 0), path.stat().st_size)  # a restored checkpoint cuts lines off
            with path.open("rb") as file:
                file.seek(begin)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    begin += len(line)
                    found = json.loads(line)
                    self.watch(found)
                    self._tell(found)
            self.read[path] = begin


def conduct(
    terms: Terms,
    kits: Path,
    identity: Path,
    out: Path,
    say: Say,
    stop: Callable[[], bool],
    watch: Callable[[dict[str, Any]], None],
    without: Sequence[str] = (),
    audit: AuditLog = no_audit,
) -> tuple[RunFolder, str]:
    """Run a study to its end, or take it up where it was left; some sites may be left out of it for good.

    Parameters
    ----------
    terms
        The study's terms, with everybody's identity.
    kits
        The folder that `provision` wrote.
    identity
        The coordinator's own, of which the public half stands in the terms.
    out
        The run folder.
    say, watch
        Get sentences, and the lines of rounds.jsonl and sites.jsonl.
    stop
        Whether somebody has asked to stop.
    without
        Sites that the study goes on without.
    audit
        Gets everything that happens, for a log that others keep.
    """
    terms.check_complete()
    own = Identity.open(identity)
    if own.public != terms.coordinator:
        raise InputError(f"{identity} is not the identity that {terms.path} names as the coordinator's")
    kit = read_kit(kits / HUB, HUB)
    check_address(kit, terms)
    coordinator = open_study(terms, out.resolve(), without)
    if coordinator.without:
        say(f"left out of this study: {', '.join(coordinator.without)}")
    if coordinator.folder.finished and not coordinator.untold:
        return coordinator.folder, FINISHED

    def certificates() -> list[str]:
        known = read_issued(kits)
        return [f"{site}={known[site]}" for site in coordinator.agents if site in known]

    limit = wire.HEADER_LIMIT + 1024 + coordinator.agreement.zero.nbytes + OVERHEAD
    log = coordinator.folder.path / "engine.log"
    address = hub_address(terms.host, terms.port)
    engine = Engine(HUB, certificates(), kit.path, address, limit, log, terms.engine_user)
    conductor = Conductor(terms, engine, own, coordinator, say, stop, watch, audit=audit, certificates=certificates)
    return coordinator.folder, conductor.run()


def check_free(address: str) -> None:
    """Refuse an address that another program listens on."""
    host, _, port = address.rpartition(":")
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, int(port)))
        except OSError as error:
            raise InputError(f"cannot listen on {address} ({error.strerror}): is another server running?") from error
