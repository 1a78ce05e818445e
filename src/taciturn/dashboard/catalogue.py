"""All runs below a folder and what the page shows of each; files are read again only after they changed."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from taciturn.core.storage import LOCAL_FOLDER, file_version, text_hash
from taciturn.dashboard.metric_curves import ChartsReply, EffectsReply, effects_reply, metric_charts
from taciturn.dashboard.privacy_view import SettingsReply, ledger_reply, privacy_reply, settings_reply
from taciturn.dashboard.replies import (
    READ_ERRORS,
    Damaged,
    Reply,
    check_encodable,
    explain,
    printable,
    reply_or_reason,
)
from taciturn.dashboard.workers import BackgroundCache
from taciturn.errors import CorruptFile, InputError
from taciturn.reporting.curves import by_label
from taciturn.reporting.tables import format_setting, rounds_done
from taciturn.runs.folder import RunFolder, with_private_part
from taciturn.runs.metrics_log import MetricsLog
from taciturn.runs.records import MetricsRow, RunResult

RUN_FILES = frozenset({"config.toml", "start.json", "ledger.jsonl", "metrics.jsonl"})  # any of them marks a run folder
DEEPEST = 6  # levels of folders that are searched
TAIL = 65536  # bytes at the end of the metrics, enough for the last rounds of all runs
VERSIONED = ("config.toml", "start.json", "metrics.jsonl", "evaluations.jsonl", "ledger.jsonl", "summary.json")
VERSIONED_LOCAL = ("local-only/metrics.jsonl", "local-only/summary.json")
IN_MEMORY = 64  # runs whose parsed metrics are kept


class FoundRun(NamedTuple):
    """A run folder and its name on the page; requests name a run by its identity, never by its path."""

    identity: str
    name: str
    path: Path


@dataclass(frozen=True)
class CatalogueRow:
    """A row of the list of runs. Fields of a damaged run that cannot be read keep their defaults."""

    id: str
    name: str
    version: str = ""  # changes whenever the run changes
    state: str = "damaged"  # or running, stopped, waiting, finished
    reason: str = ""  # why it is damaged or waiting
    resume: str = ""  # the command that continues a stopped run
    algorithms: tuple[str, ...] = ()
    mode: str = ""
    noise: str = ""
    epsilon: tuple[str, ...] | None = None
    seeds: int | None = None
    data: str = ""
    agents: int | None = None
    regression: bool = False
    started: float = 0.0  # seconds since 1970
    duration: float | None = None  # seconds; None if it may not be shown
    duration_local: bool = False  # whether the duration is for the data owner only
    planned: int = 0  # rounds
    done: int | None = None  # rounds of the algorithm that is running
    at: str = ""  # the algorithm that is running; empty once the run has finished
    share: float = 0.0  # of the whole run that is done, from 0 to 1
    errors: tuple[float, float] | None = None  # lowest and highest test error of all settings
    errors_local: bool = False  # whether the errors are for the data owner only
    tested: bool = False  # whether there are test records


@dataclass(frozen=True)
class RunsReply:
    """The list of runs; `local` says whether it includes figures for the data owner only."""

    folder: str
    local: bool
    runs: list[CatalogueRow]


def find_runs(root: Path) -> list[FoundRun]:
    """Return every run folder, sorted by path: `root` itself, or those below it.

    Raises
    ------
    InputError
        If `root` is not a folder.
    """
    if not root.is_dir():
        raise InputError(f"there is no folder {root}: give a folder that contains runs, or a run folder")
    return [_found_run(root, path) for path in sorted(_run_folders(root, 0))]


def _found_run(root: Path, path: Path) -> FoundRun:
    name = path.resolve().name if path == root else path.relative_to(root).as_posix()
    identity = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:12]
    return FoundRun(identity, printable(name), path)


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            inside = list(entries)
    except OSError:
        return  # unreadable, or deleted in the meantime
    if any(entry.name in RUN_FILES for entry in inside):
        yield folder
    elif depth < DEEPEST:
        for entry in inside:
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                yield from _run_folders(Path(entry.path), depth + 1)


def read_row(found: FoundRun, root: Path, local: bool, busy: bool) -> CatalogueRow:
    """Return a run's row; for a damaged run, as much as can be read, and the reason.

    Parameters
    ----------
    found : FoundRun
        The run.
    root : Path
        The dashboard's folder, which reasons do not name.
    local : bool
        Whether to include figures for the data owner only.
    busy : bool
        Whether a process is working on the run.
    """
    row, folder = CatalogueRow(found.identity, found.name), RunFolder(found.path)
    try:
        row = check_encodable(_with_settings(row, folder))
        row = check_encodable(_with_start(row, folder))
        return check_encodable(_with_progress(row, folder, local, busy))
    except READ_ERRORS as error:
        return replace(row, state="damaged", reason=explain(error, root, local))


def _with_settings(row: CatalogueRow, folder: RunFolder) -> CatalogueRow:
    config = RunFolder.open(folder.path).read_config()
    epsilon = config["total_epsilon"] if config["mode"] == "certified" else config["epsilon"]
    return replace(
        row,
        algorithms=tuple(config["algorithm"]),
        mode=config["mode"],
        noise=config["noise"],
        epsilon=tuple(map(format_setting, epsilon)),
        seeds=config.get("seeds", 1),  # hardened noise has no seed and one run per setting
        planned=config["rounds"],
        started=folder.config.stat().st_mtime,
    )


def _with_start(row: CatalogueRow, folder: RunFolder) -> CatalogueRow:
    data = folder.read_start(local=False).data
    return replace(
        row,
        data=printable(data.name),
        agents=len(data.agents),
        regression=data.target.is_number,
        tested=data.test_records != 0,  # null: there are some, and their number is private
    )


def _with_progress(row: CatalogueRow, folder: RunFolder, local: bool, busy: bool) -> CatalogueRow:
    private = folder.has_local  # a folder local-only may contain just a picture
    if folder.finished:
        summary = folder.read_summary(local=False)
        entries: Sequence[MetricsRow | RunResult] = summary.runs
        written = folder.summary
        row = replace(
            row,
            state="finished",
            share=1.0,
            done=rounds_done(summary.runs, folder.read_header().method_facts) or row.planned,
        )
        if ended := folder.read_summary(local).ended:  # of a certified run only its owner knows it
            row = replace(row, started=min(row.started, datetime.fromisoformat(ended).timestamp()))  # for copies
    else:
        entries, written = (last := _last_rows(folder, local=False)), folder.metrics
        row = _with_rounds(row, last)
        if busy:
            row = replace(row, state="running")
        elif private or row.mode == "paper":
            place = str(folder.path) if local else row.name
            row = replace(row, state="stopped", resume=printable(f"taciturn resume {shlex.quote(place)}"))
        else:
            reason = "a federated study: continue it with the same 'taciturn federation run'"
            row = replace(row, state="waiting", reason=reason)
    public = _mean_errors(entries)
    own: list[float] = []
    if local and private and not public:
        own = _mean_errors(folder.read_summary().runs if folder.finished else _last_rows(folder))
    errors = public or own
    duration = max(0.0, _time_written(written, private) - row.started)
    return replace(
        row,
        errors=(min(errors), max(errors)) if errors else None,
        errors_local=bool(own),
        # The duration of training may depend on private records.
        duration=duration if row.mode == "paper" or (local and private) else None,
        duration_local=private,
    )


def _time_written(path: Path, private: bool) -> float:
    """Return when a file was last written; of a certified run only its copy in local-only has the true time."""
    own = path.parent / LOCAL_FOLDER / path.name
    return (own if private and own.is_file() else path).stat().st_mtime


def _with_rounds(row: CatalogueRow, entries: Sequence[MetricsRow]) -> CatalogueRow:
    """Add the rounds of the algorithm that is running; those before it are done."""
    if not entries:
        return replace(row, done=0, at=row.algorithms[0])
    algorithm, done = entries[-1].algorithm, entries[-1].round
    share = (row.algorithms.index(algorithm) + done / row.planned) / len(row.algorithms)
    return replace(row, done=done, share=min(1.0, share), at=algorithm)


def _mean_errors(entries: Sequence[MetricsRow | RunResult]) -> list[float]:
    """Return the mean test error over seeds of every algorithm and epsilon."""
    groups = by_label([entry for entry in entries if entry.test_error is not None])
    return [fmean(entry.test_error or 0.0 for entry in group) for group in groups.values()]


def _last_rows(folder: RunFolder, local: bool = True) -> list[MetricsRow]:
    """Return the rows of the round that was evaluated last, one per run of its algorithm."""
    rows = _read_tail(folder.metrics)
    last = [row for row in rows if (row["algorithm"], row["round"]) == (rows[-1]["algorithm"], rows[-1]["round"])]
    if local and folder.has_local:
        last = list(with_private_part(last, _read_tail(folder.local_metrics)))
    return [MetricsRow.from_json(row, folder.metrics) for row in last]


def _read_tail(path: Path) -> list[dict[str, object]]:
    """Return the complete lines at the end of a file."""
    with path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - TAIL)
        file.seek(start)
        content = file.read()
    first = content.find(b"\n") + 1 if start else 0
    try:
        return [json.loads(line) for line in content[first : content.rfind(b"\n") + 1].splitlines()]
    except ValueError as error:
        raise CorruptFile(f"{path} is damaged: one of its last lines is not JSON") from error


class Catalogue:
    """The replies to the page's requests. They consist of numbers and text; no file is ever sent as it is.

    Parameters
    ----------
    root : Path
        A folder that contains runs, or a run folder.
    local : bool
        Whether to include figures computed without noise, which are for the data owner only.
    """

    def __init__(self, root: Path, local: bool) -> None:
        self.root, self.local = root, local
        self._found: dict[str, FoundRun] = {}
        self._rows: dict[str, CatalogueRow] = {}  # by identity
        self._damaged: dict[str, tuple[str, str]] = {}  # identity -> version of its files, damage of its metrics
        self._metrics: OrderedDict[str, MetricsLog] = OrderedDict()
        self._listing, self._reading = threading.Lock(), threading.Lock()
        # An unforeseen error is named by its type only, as its text may contain anything.
        self._slow = BackgroundCache[Any](lambda error: Damaged(f"this cannot be computed: {type(error).__name__}"))

    def runs(self) -> RunsReply:
        """Search the folder and return the list of runs."""
        with self._listing:
            self._found = {run.identity: run for run in find_runs(self.root)}
            self._rows = {run.identity: self._row(run) for run in self._found.values()}
            rows = list(self._rows.values())
        return RunsReply(str(self.root) if self.local else self.root.resolve().name, self.local, rows)

    def select(self, identities: Sequence[str]) -> dict[str, FoundRun]:
        """Return those of the given runs that exist; the folder is searched at most once."""
        if not all(identity in self._found for identity in identities):
            self.runs()
        found = self._found
        return {identity: found[identity] for identity in identities if identity in found}

    def curves(self, run: FoundRun) -> ChartsReply | Damaged:
        """Return the lines of every metric."""
        version = _version(run.path, self.local)
        with self._reading:
            reply = self._read(lambda: metric_charts(RunFolder(run.path), self._read_metrics(run)))
        # Remembered for the list, which reads only the end of the metrics.
        self._damaged[run.identity] = (version, reply.damaged if isinstance(reply, Damaged) else "")
        return reply

    def privacy(self, run: FoundRun) -> dict[str, object]:
        """Return the newest privacy meters, which may take seconds to compute, and whether newer ones are `pending`."""
        return self._slowly(
            "privacy", run, lambda: privacy_reply(RunFolder(run.path).read_ledger(), self._rounds_done(run))
        )

    def ledger(self, run: FoundRun) -> dict[str, object]:
        """Return the newest totals and lines of the ledger, and whether newer ones are `pending`."""
        return self._slowly("ledger", run, lambda: ledger_reply(RunFolder(run.path).read_ledger()))

    def effects(self, run: FoundRun) -> EffectsReply | Damaged:
        """Return the effects of the columns of a table on the run's models."""
        return self._read(lambda: effects_reply(RunFolder(run.path)))

    def settings(self, run: FoundRun, other: FoundRun | None) -> SettingsReply | Damaged:
        """Return every setting, next to those of another run."""
        second = RunFolder(other.path) if other else None
        return self._read(lambda: settings_reply(RunFolder(run.path), second, self.local))

    def _read(self, make: Callable[[], Reply]) -> Reply | Damaged:
        return reply_or_reason(self.root, self.local, make)

    def _slowly(self, kind: str, run: FoundRun, compute: Callable[[], object]) -> dict[str, object]:
        version = _version(run.path, self.local)
        reply, outdated = self._slow.get(f"{kind} {run.identity}", version, lambda: self._read(compute))
        return {**(vars(reply) if reply else {}), "pending": outdated}

    def _row(self, run: FoundRun) -> CatalogueRow:
        busy, version = _is_busy(RunFolder(run.path)), _version(run.path, self.local)
        seen, damage = self._damaged.get(run.identity, ("", ""))
        damage = damage if seen == version else ""
        version += ("+" if busy else "") + ("!" if damage else "")
        known = self._rows.get(run.identity)
        if known is not None and known.version == version:
            return known
        row = replace(read_row(run, self.root, self.local, busy), version=version)
        return replace(row, state="damaged", reason=damage) if damage else row

    def _read_metrics(self, run: FoundRun) -> MetricsLog:
        """Read what was added to the metrics; a damaged file is read from its beginning the next time."""
        metrics = self._metrics.pop(run.identity, None) or MetricsLog.of(RunFolder(run.path), self.local)
        metrics.refresh()
        self._metrics[run.identity] = metrics
        while len(self._metrics) > IN_MEMORY:
            self._metrics.popitem(last=False)
        return metrics

    def _rounds_done(self, run: FoundRun) -> dict[int, int]:
        """Return the last evaluated round of each run; nothing if the metrics are damaged, as the ledger suffices."""
        with self._reading, suppress(*READ_ERRORS):
            columns = self._read_metrics(run).public.values
            return {number: int(values["round"][-1]) for number, values in columns.items()}
        return {}


def _is_busy(folder: RunFolder) -> bool:
    """Return whether a process is working on the run; False if the folder cannot be read."""
    try:
        return not folder.finished and folder.busy
    except OSError:
        return False


def _version(path: Path, local: bool) -> str:
    """Return a text that changes whenever a file of the run does."""
    versions = [file_version(path / name) for name in VERSIONED + (VERSIONED_LOCAL if local else ())]
    return text_hash(repr(versions))[:12]
