"""Status files: what a site's agent and a coordinator's command write about themselves, for their owner."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypedDict, TypeVar

from taciturn.core.locks import is_locked
from taciturn.errors import CorruptFile
from taciturn.runs.json_record import Record

STATUS_FILE, AGENT_LOCK = "status.json", "agent.lock"
WRITE_SECONDS = 1.0  # between two writes
STALE_SECONDS = 10.0  # without a write, after which a process is considered dead or frozen
SIZE_LIMIT = 1 << 16  # bytes of a file that are read


@dataclass
class AgentStatus(Record):
    """Status of a site's agent. Times are in seconds since 1970; counts start with the process."""

    pid: int = field(default_factory=os.getpid)
    started: float = field(default_factory=time.time)
    connected: float | None = None  # since when
    heartbeat: float | None = None  # last heartbeat of the engine
    question: float | None = None  # last question of the coordinator
    answer: float | None = None  # last departure
    rounds: int = 0  # answered
    dropped: int = 0  # messages that the coordinator did not seal for this site
    restarts: int = 0  # of the engine
    study: str = ""  # in session


@dataclass
class CoordinatorStatus(Record):
    """Status of a coordinator's command. Times are in seconds since 1970; drops and restarts start with the process."""

    pid: int = field(default_factory=os.getpid)
    started: float = field(default_factory=time.time)
    study: str = ""
    listening: float | None = None  # since when
    heartbeat: float | None = None  # last heartbeat of the engine
    sites: dict[str, float] = field(default_factory=dict)  # connected sites -> since when
    wanted: int = 0  # number of sites that take part
    quorum: int = 0
    round: int = 0  # last finished round
    rounds: int = 0  # of the study
    epoch: int = -1  # of a secure sum: the newest
    slots: int = 0  # of a secure sum: those that sites were asked to upload in
    slots_lost: int = 0  # of those, the ones that were never opened
    slots_planned: int = 0  # rounds and reserve; 0 without a secure sum
    bytes_up: int = 0
    bytes_down: int = 0
    dropped: int = 0  # messages that no site sealed for the coordinator
    restarts: int = 0  # of the engine


@contextmanager
def publish_status(status: AgentStatus | CoordinatorStatus, path: Path) -> Iterator[None]:
    """Write `status` to a file once a second until the block ends.

    The file is renamed into place but not flushed: after a power cut the process is gone too. A full disk costs only
    the file.
    """
    ended = threading.Event()

    def keep_writing() -> None:
        while not ended.wait(WRITE_SECONDS):
            _write(path, status)

    _write(path, status)
    writer = threading.Thread(target=keep_writing, name="status", daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
        _write(path, status)


def _write(path: Path, status: AgentStatus | CoordinatorStatus) -> None:
    temporary = path.with_name(f".{path.name}")
    with suppress(OSError, RuntimeError):  # RuntimeError: a site connected or left during the copy
        text = json.dumps({**status.to_json(), "written": time.time()})
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)


Status = TypeVar("Status", AgentStatus, CoordinatorStatus)


@dataclass(frozen=True)
class StatusSnapshot(Generic[Status]):
    """What a status file says, and whether its process is alive.

    Parameters
    ----------
    running : bool
        Whether the process is alive and writes its file.
    status : AgentStatus or CoordinatorStatus
        The content of the file; blank, with the process 0, if there never was a process.
    """

    running: bool
    status: Status


def read_status(folder: Path, lock: str, kind: type[Status]) -> StatusSnapshot[Status]:
    """Read the status file in a folder.

    Parameters
    ----------
    folder : Path
        The folder.
    lock : str
        Name of the lock file there that the process holds while it runs.
    kind : type
        `AgentStatus` or `CoordinatorStatus`.

    Returns
    -------
    StatusSnapshot
        Its status is blank if the file is missing or cannot be read. `running` is true if the lock is held and the file
        is fresh.
    """
    try:
        with (folder / STATUS_FILE).open("rb") as file:
            content = json.loads(file.read(SIZE_LIMIT))
        status, fresh = kind.from_json(content, STATUS_FILE), abs(time.time() - content["written"]) < STALE_SECONDS
    except (OSError, ValueError, KeyError, TypeError, CorruptFile):
        return StatusSnapshot(False, kind(pid=0, started=0.0))
    return StatusSnapshot(fresh and is_locked(folder / lock), status)


def is_connected(snapshot: StatusSnapshot[AgentStatus]) -> bool:
    """Return whether a site's agent is connected to its coordinator."""
    return snapshot.running and snapshot.status.connected is not None


def time_text(at: float | None) -> str | None:
    """Return seconds since 1970 as text; None if there was no such moment."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(at)) if at else None


class AgentReport(TypedDict):
    """The status of a site's agent, as JSON; times as text."""

    running: bool
    pid: int | None
    started: str | None
    connected: bool
    connected_since: str | None
    last_heartbeat: str | None
    last_question: str | None
    last_answer: str | None
    rounds_answered: int
    dropped_messages: int
    engine_restarts: int
    active_study: str


def describe_agent(snapshot: StatusSnapshot[AgentStatus]) -> AgentReport:
    """Return the status of a site's agent as JSON; a process that has died is neither running nor connected."""
    running, connected, status = snapshot.running, is_connected(snapshot), snapshot.status
    return {
        "running": running,
        "pid": status.pid if running else None,
        "started": time_text(status.started),
        "connected": connected,
        "connected_since": time_text(status.connected) if connected else None,
        "last_heartbeat": time_text(status.heartbeat),
        "last_question": time_text(status.question),
        "last_answer": time_text(status.answer),
        "rounds_answered": status.rounds,
        "dropped_messages": status.dropped,
        "engine_restarts": status.restarts,
        "active_study": status.study if running else "",
    }
