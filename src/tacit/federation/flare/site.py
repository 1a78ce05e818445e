"""A site's agent as a program: NVFlare's client under watch, started again when it falls."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import InputError
from tacit.federation.flare import processes
from tacit.federation.flare.locks import check_locks
from tacit.federation.flare.names import SEED_VARIABLE, SITE_VARIABLE
from tacit.federation.journal import Journal
from tacit.federation.policy import Site

LOOK = 0.5  # seconds between two looks
QUIET = 10.0  # seconds between two lines about rounds
LONGEST = 60.0  # seconds to wait before a client that keeps falling is started again


@dataclass
class Watch:
    """What the journal tells while the agent works."""

    site: Site
    say: Callable[[str], None]
    seen: int = 0
    spoke: float = 0.0

    def look(self) -> None:
        """Say what is new."""
        if not (self.site.state / "journal.sqlite").exists():
            return
        with Journal.read(self.site.state) as journal:
            new = journal.departures(after=self.seen)
            studies = {begun.id: begun.study for begun in journal.experiments()}
        for departure in new:
            self.seen = departure.number
            name = f"{studies.get(departure.experiment, 'a study')} ({departure.experiment[:8]})"
            if departure.kind.startswith("answer"):
                if time.monotonic() - self.spoke > QUIET:
                    self.spoke = time.monotonic()
                    self.say(f"{name}: round {departure.round} answered")
            elif departure.kind == "refusal":
                self.say(f"{name}: refused; the newest log.txt in a folder of {self.site.kit} has the reason")
            else:
                self.say(f"{name}: {departure.kind}")


def run_agent(site: Site, seed: int | None, say: Callable[[str], None], stop: Callable[[], bool]) -> None:
    """Work until somebody asks to stop."""
    check_locks(site.kit)
    variables = {SITE_VARIABLE: str(site.path.resolve()), SEED_VARIABLE: "" if seed is None else str(seed)}
    watch, wait = Watch(site, say), 1.0
    if (site.state / "journal.sqlite").exists():
        with Journal.read(site.state) as journal:
            watch.seen = max((departure.number for departure in journal.departures()), default=0)
    with _alone(site.kit):
        say(f"{site.name}: the agent is up; Ctrl-C stops it")
        while not stop():
            process = processes.start_client(site.kit, site.name, variables)
            began = time.monotonic()
            try:
                while process.poll() is None and not stop():
                    time.sleep(LOOK)
                    watch.look()
            finally:
                processes.stop(process)
            if stop():
                break
            wait = 1.0 if time.monotonic() - began > LONGEST else min(2.0 * wait, LONGEST)
            say(f"the client ended with {process.returncode}; starting it again in {wait:.0f} s (see {_log(site)})")
            end = time.monotonic() + wait
            while time.monotonic() < end and not stop():
                time.sleep(LOOK)


def _log(site: Site) -> Path:
    return site.kit / "log.txt"


@contextmanager
def _alone(kit: Path) -> Iterator[None]:
    """One agent for a kit."""
    with (kit / "agent.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"an agent is at work in {kit} already") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
