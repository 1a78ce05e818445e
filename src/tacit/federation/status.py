"""What a process that stays up says of itself: a small private file, replaced once a second, for its owner alone."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tacit.results.locks import is_locked

STATUS, LOCK = "status.json", "agent.lock"
PERIOD = 1.0  # seconds between two writes
STALE = 10.0  # seconds without a write, after which a process is taken for dead or frozen
LONGEST = 1 << 16  # bytes of a file that is read


@dataclass
class SiteLife:
    """A site's agent. Times are in seconds since 1970; counts are since it started."""

    pid: int = field(default_factory=os.getpid)
    started: float = field(default_factory=time.time)
    connected: float | None = None  # since when
    heartbeat: float | None = None  # when the engine last gave a sign of life
    question: float | None = None  # when the coordinator last asked something
    answer: float | None = None  # when something last left
    rounds: int = 0  # answered
    dropped: int = 0  # messages that the coordinator did not seal for this site
    restarts: int = 0  # of the engine
    study: str = ""  # at work


@dataclass
class RunLife:
    """A coordinator's command. Times are in seconds since 1970; drops and restarts are since it started."""

    pid: int = field(default_factory=os.getpid)
    started: float = field(default_factory=time.time)
    study: str = ""
    listening: float | None = None  # since when
    heartbeat: float | None = None  # when the engine last gave a sign of life
    sites: dict[str, float] = field(default_factory=dict)  # those that are connected, and since when
    wanted: int = 0  # sites that take part
    quorum: int = 0
    round: int = 0  # the last that is done
    rounds: int = 0  # of the study
    bytes_up: int = 0
    bytes_down: int = 0
    dropped: int = 0  # messages that no site sealed for the coordinator
    restarts: int = 0  # of the engine


@contextmanager
def shown(life: SiteLife | RunLife, path: Path) -> Iterator[None]:
    """Write what `life` says to a file as it changes, until the block ends.

    The file is renamed into place and not flushed: after a power cut the process is not there either. A disk that is
    full costs the file and nothing else.
    """
    ended = threading.Event()

    def keep_writing() -> None:
        while not ended.wait(PERIOD):
            _write(path, life)

    _write(path, life)
    writer = threading.Thread(target=keep_writing, name="status", daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
        _write(path, life)


def _write(path: Path, life: SiteLife | RunLife) -> None:
    temporary = path.with_name(f".{path.name}")
    with suppress(OSError, RuntimeError):  # RuntimeError: a site came or went while they were listed
        text = json.dumps({**asdict(life), "written": time.time()})
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)


@dataclass(frozen=True)
class Seen:
    """What a status file says, as far as its process is alive."""

    running: bool
    life: dict[str, Any]  # empty where there never was a process

    @property
    def connected(self) -> bool:
        """Whether a site's agent is connected to its coordinator."""
        return self.running and self.life.get("connected") is not None

    def moment(self, name: str) -> str | None:
        """One of its times, as text."""
        at = self.life.get(name)
        return None if at is None else time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(at))

    def count(self, name: str) -> int:
        """One of its counts."""
        return int(self.life.get(name, 0))

    def age(self, name: str) -> float | None:
        """How many seconds ago one of its times was."""
        at = self.life.get(name)
        return None if at is None else max(0.0, time.time() - at)


def look(folder: Path, lock: str) -> Seen:
    """The status file in a folder, and whether the process that holds the lock there still writes it."""
    try:
        with (folder / STATUS).open("rb") as file:
            life = json.loads(file.read(LONGEST))
        fresh = abs(time.time() - life["written"]) < STALE
    except (OSError, ValueError, KeyError, TypeError):
        return Seen(False, {})
    return Seen(fresh and is_locked(folder / lock), life)
