"""A federation with identities and kits, and small test programs that run confined in place of the engine."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from taciturn.federation import vault
from taciturn.federation.agreement import StudyLoader
from taciturn.federation.confinement import launch
from taciturn.federation.engine import Engine, EngineProcess
from taciturn.federation.identity import Identity
from taciturn.federation.kits import provision
from taciturn.federation.link import pair
from taciturn.federation.local_cluster import find_free_port
from taciturn.federation.logs import AuditLog, logged, no_audit
from tests.federation.helpers import SITES, Federation, make_federation

HEAD = """
import socket, sys, time
from taciturn.federation.link import Frame, Kind, Link
link = Link(socket.socket(fileno=int(sys.argv[1])), 1 << 20)
say = lambda kind, peer="": link.send(Frame(kind, peer))
"""
HANGS = HEAD + "time.sleep(600)"
FALLS = HEAD + "time.sleep(0.1)"
NEVER_CONNECTS = HEAD + "while True: say(Kind.BEAT); time.sleep(0.1)"
CONNECTS = HEAD + "say(Kind.UP, 'server')\nwhile True: say(Kind.BEAT); time.sleep(0.1)"
LISTENS_AND_HANGS = HEAD + "say(Kind.LISTENING)\ntime.sleep(600)"


@dataclass(frozen=True)
class Other(Engine):
    """An engine that runs a test program."""

    code: str = HANGS

    def start(self, secrets: Mapping[str, Sequence[Path]]) -> EngineProcess:
        self.try_barriers(secrets).require()
        link, theirs = pair(self.limit)
        with theirs:
            command = [sys.executable, "-c", self.code, str(theirs.fileno())]
            process = launch(command, fds=[theirs.fileno()], log=self.log)
        return EngineProcess(link, process)


def whole_federation(root: Path) -> tuple[Federation, Identity]:
    """Create sites with identities and kits; return them with the coordinator's identity."""
    ids = root / "ids"
    ids.mkdir()
    made = {name: Identity.create(ids / name) for name in ("coordinator", *SITES)}
    public = {name: str(one.public) for name, one in made.items()}
    own = public.pop("coordinator")
    terms = {"coordinator": {"identity": own}, "identities": public, "server": {"port": find_free_port()}}
    federation = make_federation(root / "federation", terms)
    provision(federation.terms, root / "kits")
    for site in SITES:
        federation.change(site, {"kit": str(root / "kits" / site)})
        shutil.copy(ids / site, federation.root / site / "identity.key")
    return federation, made["coordinator"]


@dataclass
class AtWork:
    """A vault that runs in a thread."""

    federation: Federation
    said: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def until(self, true: Callable[[], bool], seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, self.said
            time.sleep(0.02)


@contextlib.contextmanager
def vault_with(
    federation: Federation, code: str, monkeypatch: pytest.MonkeyPatch, audit: AuditLog = no_audit
) -> Iterator[AtWork]:
    """Run the vault of north with a test program as its engine."""
    site = federation.site("north")
    prepared = StudyLoader()
    engine = vault.site_engine(site, prepared)
    monkeypatch.setattr(vault, "site_engine", lambda site, prepared: Other(**vars(engine), code=code))
    monkeypatch.setattr(vault, "shield", lambda: None)  # it would be for the tests' process, and for good
    found = AtWork(federation)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with logged(None, found.said.append):
                vault.run_vault(site, prepared, 7, found.ended.is_set, audit)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield found
    finally:
        found.ended.set()
        thread.join(30.0)
    assert not errors and not thread.is_alive(), errors
