"""Status of long-running processes and of a site's studies, for their owner."""

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

from taciturn.core.locks import is_locked
from taciturn.errors import InputError, TaciturnError, unknown_name
from taciturn.federation.final_model import signer
from taciturn.federation.journal import Experiment, Journal
from taciturn.federation.policy import Site, read_site
from taciturn.federation.site_session import give_back, settle, study_folder
from taciturn.privacy.budget import BudgetLedger
from taciturn.runs.folder import RunFolder

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


def site_status(path: Path) -> dict[str, Any]:
    """The agent, the budget over all studies, and every study."""
    site = read_site(path)
    account = BudgetLedger.open(site.ledger).state()
    experiments: list[Experiment] = []
    answered: dict[str, int] = {}
    if (site.state / "journal.sqlite").is_file():
        with Journal.read(site.state) as journal:
            experiments = journal.experiments()
            answered = {begun.id: sum(1 for _ in journal.answered(begun.id)) for begun in experiments}
    return {
        "site": site.name,
        **agent_status(look(site.state, LOCK)),
        "ledger": str(site.ledger),
        **{name: getattr(account, name) for name in ("total_epsilon", "delta", "epsilon_used", "epsilon_next")},
        "budget_left": max(0.0, account.total_epsilon - account.epsilon_used),
        "studies": [_study(site, begun, answered[begun.id]) for begun in experiments],
    }


def agent_status(seen: Seen) -> dict[str, Any]:
    """The site's agent: a process that has died is neither running nor connected, whatever its file says."""
    return {
        "running": seen.running,
        "pid": seen.life.get("pid") if seen.running else None,
        "started": seen.moment("started"),
        "connected": seen.connected,
        "connected_since": seen.moment("connected") if seen.connected else None,
        "last_heartbeat": seen.moment("heartbeat"),
        "last_question": seen.moment("question"),
        "last_answer": seen.moment("answer"),
        "rounds_answered": seen.count("rounds"),
        "dropped_messages": seen.count("dropped"),
        "engine_restarts": seen.count("restarts"),
        "study_at_work": str(seen.life.get("study", "")) if seen.running else "",
    }


def _study(site: Site, begun: Experiment, rounds: int) -> dict[str, Any]:
    folder = study_folder(site, begun.id)
    spent, planned = 0.0, 0.0
    if rounds or folder.exists():  # a crash may have come before it had one
        ledger = RunFolder.open(folder).read_ledger()
        spent = ledger.totals.total_epsilon
        planned = next(plan.planned_epsilon for plan in ledger.plans.values())
    return {
        "study": begun.study,
        "experiment": begun.id,
        "begun": begun.begun,
        "closed": begun.closed,
        "broken": begun.broken,
        "non_private": begun.non_private,
        "rounds": rounds,
        "spent_epsilon": spent,
        "planned_epsilon": planned,
        "folder": str(folder),
        "model": _model(begun, folder),
    }


def _model(begun: Experiment, folder: Path) -> str:
    """Who signed the model that is in a study's folder; empty where there is no model."""
    if not folder.exists() or not RunFolder.open(folder).finished:
        return ""
    try:
        found = signer(RunFolder.open(folder), begun.id, begun.terms)
    except TaciturnError as error:
        return f"NOT SIGNED: {error}"
    return f"signed by the coordinator {found.fingerprint}" if found else "not signed"


def close_study(path: Path, start: str) -> str:
    """Close the study whose name begins like this."""
    site = read_site(path)
    with Journal.open(site.state, patience=2.0) as journal:
        known = {begun.id: begun for begun in journal.experiments()}
        found = [begun for name, begun in known.items() if name.startswith(start)]
        if not known:
            raise InputError("this site has not taken part in a study yet")
        if len(found) != 1:
            raise unknown_name("study", start, [name[:8] for name in known])
        if found[0].closed:
            raise InputError(f"the study {start} was closed on {found[0].closed}")
        folder = study_folder(site, found[0].id)
        if journal.last(found[0].id) is None and not folder.exists():
            give_back(site, journal, found[0])
        else:
            settle(site, journal, found[0], RunFolder.open(folder))
    return f"{found[0].study} ({found[0].id[:8]})"
