"""All runs below a folder, and the summary of each; re-read only where files changed."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from taciturn.core.storage import LOCAL_FOLDER
from taciturn.dashboard.metric_curves import charts
from taciturn.dashboard.privacy_view import ledger, meters, settings
from taciturn.dashboard.replies import WRONG, reason, sendable, shown, told
from taciturn.dashboard.workers import Later
from taciturn.errors import InputError
from taciturn.reporting.tables import by_label, format_setting, rounds_done
from taciturn.runs.folder import RunFolder
from taciturn.runs.metrics_log import MetricsLog
from taciturn.runs.records import MetricsRow, RunResult

MARKS = frozenset({"config.toml", "start.json", "ledger.jsonl", "metrics.jsonl"})  # of a run folder, whole or not
DEEPEST = 6  # folders within folders: sweeps of sweeps end before


class FoundRun(NamedTuple):
    """A run folder and what it is called on the page; the page knows it by its identity alone, never by its path."""

    identity: str
    name: str
    path: Path


def find(root: Path) -> list[FoundRun]:
    """Every run folder: `root` itself, or those below it, in the order of their names."""
    if not root.is_dir():
        raise InputError(f"there is no folder {root}: give one that holds runs, or a run folder")
    paths = sorted(_walk(root, 0))
    return [_found(root, path) for path in paths]


def _found(root: Path, path: Path) -> FoundRun:
    name = path.resolve().name if path == root else path.relative_to(root).as_posix()
    return FoundRun(hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:12], shown(name), path)


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            inside = list(entries)
    except OSError:
        return  # what may not be read, or has gone meanwhile, has nothing to show
    if any(entry.name in MARKS for entry in inside):
        yield folder
    elif depth < DEEPEST:
        for entry in inside:
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), depth + 1)


TAIL = 65536  # bytes at the end of the metrics, with the last rounds of all runs


def row(found: FoundRun, root: Path, local: bool, busy: bool) -> dict[str, Any]:
    """What the list shows; of a damaged run as much as can be read, and the reason."""
    made: dict[str, Any] = {"id": found.identity, "name": found.name, "state": "damaged"}
    folder = RunFolder(found.path)
    try:
        made |= sendable(_settings(folder))
        made |= sendable(_began(folder))
        made |= sendable(_progress(folder, made, local, busy))
    except WRONG as error:
        return made | {"state": "damaged", "reason": reason(error, root, local)}
    return made


def _settings(folder: RunFolder) -> dict[str, Any]:
    config = RunFolder.open(folder.path).read_config()
    certified = config["mode"] == "certified"
    return {
        "algorithms": list(config["algorithm"]),
        "mode": config["mode"],
        "noise": config["noise"],
        "epsilon": [format_setting(value) for value in config["total_epsilon" if certified else "epsilon"]],
        "seeds": int(config.get("seeds", 1)),  # hardened noise has none, and one run of each setting
        "planned": int(config["rounds"]),
        "started": folder.config.stat().st_mtime,
    }


def _began(folder: RunFolder) -> dict[str, Any]:
    data = folder.read_start(local=False)["data"]
    return {"data": shown(str(data["name"])), "regression": "low" in data["target"], "agents": len(data["agents"])}


def _progress(folder: RunFolder, made: Mapping[str, Any], local: bool, busy: bool) -> dict[str, Any]:
    private = folder.has_local  # a folder local-only may hold a picture alone
    if folder.finished:
        summary = folder.read_summary(local=False)
        entries: Sequence[MetricsRow | RunResult] = summary.runs
        ended = _written(folder.summary, private)
        state: dict[str, Any] = {
            "state": "finished",
            "share": 1.0,
            "done": rounds_done(summary.runs, folder.read_header().method_facts) or made["planned"],
        }
        if when := folder.read_summary(local).ended:  # of a certified run it is for the owner alone
            state["started"] = min(made["started"], datetime.fromisoformat(when).timestamp())  # of a copy
    else:
        entries, ended = (last := _last_rows(folder, local=False)), _written(folder.metrics, private)
        state = {"state": "running"} if busy else _stopped(folder, private, str(folder.path) if local else made["name"])
        state |= _how_far(last, made)
    duration, told = max(0.0, ended - float(made["started"])), made["mode"] == "paper" or (local and private)
    return state | {
        **_tested(folder, entries, local and private),
        "duration": duration if told else None,  # how long training took may tell of the records
        "duration_local": private,
    }


def _written(path: Path, private: bool) -> float:
    """When a file was last written: of a certified run only the one in local-only tells."""
    own = path.parent / LOCAL_FOLDER / path.name
    return (own if private and own.is_file() else path).stat().st_mtime


def _tested(folder: RunFolder, entries: Sequence[MetricsRow | RunResult], local: bool) -> dict[str, Any]:
    """The test error anybody may see, or else the owner's; lowest and highest of all settings."""
    public = _errors(entries)
    own: list[float] = []
    if local and not public:
        own = _errors(folder.read_summary().runs if folder.finished else _last_rows(folder))
    errors = public or own
    return {
        "errors": [min(errors), max(errors)] if errors else None,
        "errors_local": bool(own),
        "tested": folder.read_start(local=False)["data"]["test_records"]
        != 0,  # null: there are, and how many is private
    }


def _stopped(folder: RunFolder, private: bool, place: str) -> dict[str, Any]:
    """A run that nobody works at; a federated one goes on by another command, and elsewhere."""
    if private or folder.read_config()["mode"] == "paper":
        return {"state": "stopped", "resume": shown(f"taciturn resume {shlex.quote(place)}")}
    return {"state": "waiting", "reason": "a federated study: it goes on with the same 'taciturn federation run'"}


def _how_far(entries: Sequence[MetricsRow], made: Mapping[str, Any]) -> dict[str, Any]:
    """The rounds of the algorithm at hand; those before it are done."""
    if not entries:
        return {"done": 0, "share": 0.0, "at": made["algorithms"][0]}
    last, names = entries[-1], made["algorithms"]
    share = (names.index(last["algorithm"]) + last["round"] / made["planned"]) / len(names)
    return {"done": last["round"], "share": min(1.0, share), "at": last["algorithm"]}


def _errors(entries: Sequence[MetricsRow | RunResult]) -> list[float]:
    """The mean over seeds of every algorithm and epsilon."""
    groups = by_label([entry for entry in entries if entry.test_error is not None])
    return [fmean(entry.test_error or 0.0 for entry in group) for group in groups.values()]


def _last_rows(folder: RunFolder, local: bool = True) -> list[MetricsRow]:
    """The rows of the last round that was evaluated, one for each run of the algorithm at hand."""
    rows = _tail(folder.metrics)
    last = [row for row in rows if (row["algorithm"], row["round"]) == (rows[-1]["algorithm"], rows[-1]["round"])]
    if local and folder.has_local:
        kept = {(row["run"], row["round"]): row for row in _tail(folder.local_metrics)}
        last = [row | kept.get((row["run"], row["round"]), {}) for row in last]
    return [MetricsRow.from_json(row, folder.metrics) for row in last]


def _tail(path: Path) -> list[dict[str, Any]]:
    """The whole lines at the end of a file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = max(0, size - TAIL)
        file.seek(begin)
        content = file.read()
    first = content.find(b"\n") + 1 if begin else 0
    lines = content[first : content.rfind(b"\n") + 1].splitlines()
    try:
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    except ValueError:
        raise InputError(f"{path} is damaged: one of its last lines cannot be read") from None
    return rows


SIGNS = ("config.toml", "start.json", "metrics.jsonl", "ledger.jsonl", "summary.json")
LOCAL_SIGNS = ("local-only/metrics.jsonl", "local-only/summary.json")
IN_MEMORY = 64  # runs whose metrics are kept parsed


class Catalogue:
    """What the dashboard's pages ask for; every answer is made of numbers and text, never of a file as it is."""

    def __init__(self, root: Path, local: bool) -> None:
        self.root, self.local = root, local
        self._found: dict[str, FoundRun] = {}
        self._rows: dict[str, tuple[str, dict[str, Any]]] = {}  # identity -> version, row
        self._damaged: dict[str, tuple[str, str]] = {}  # identity -> version, what is wrong with its metrics
        self._metrics: OrderedDict[str, MetricsLog] = OrderedDict()
        self._looking, self._reading = threading.Lock(), threading.Lock()
        self._later = Later()

    def runs(self) -> dict[str, Any]:
        """The list, and whether it may hold figures that are the owner's alone."""
        with self._looking:
            self._found = {one.identity: one for one in find(self.root)}
            rows = [self._row(one) for one in self._found.values()]
            self._rows = {identity: self._rows[identity] for identity in self._found}
        return {"folder": str(self.root) if self.local else self.root.resolve().name, "local": self.local, "runs": rows}

    def some(self, identities: Sequence[str]) -> dict[str, FoundRun]:
        """Those of these runs that there are; the folder is looked through once at most."""
        if not all(identity in self._found for identity in identities):
            self.runs()
        found = self._found
        return {identity: found[identity] for identity in identities if identity in found}

    def curves(self, one: FoundRun) -> dict[str, Any]:
        """Every metric's lines."""
        version = _version(one.path, self.local)
        with self._reading:
            made = told(self.root, self.local, lambda: {"charts": charts(self._read(one))})
        self._damaged[one.identity] = (version, made.get("damaged", ""))  # the list reads the end of the metrics alone
        return made

    def privacy(self, one: FoundRun) -> dict[str, Any]:
        """The meters; computing them may take seconds, so the newest known are given until they are there."""
        return self._slowly("privacy", one, lambda: meters(RunFolder(one.path).read_ledger(), self._done(one)))

    def ledger(self, one: FoundRun) -> dict[str, Any]:
        """What the ledger comes to, and its newest lines."""
        return self._slowly("ledger", one, lambda: ledger(RunFolder(one.path)))

    def settings(self, one: FoundRun, other: FoundRun | None) -> dict[str, Any]:
        """Every setting, beside those of another run."""
        beside = RunFolder(other.path) if other else None
        return told(self.root, self.local, lambda: settings(RunFolder(one.path), beside, self.local))

    def _slowly(self, kind: str, one: FoundRun, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        version = _version(one.path, self.local)
        return self._later.ask(f"{kind} {one.identity}", version, lambda: told(self.root, self.local, compute))

    def _row(self, one: FoundRun) -> dict[str, Any]:
        busy = _busy(RunFolder(one.path))
        files = _version(one.path, self.local)
        seen, wrong = self._damaged.get(one.identity, ("", ""))
        version = f"{files}{'+' if busy else ''}{'!' if wrong and seen == files else ''}"
        known = self._rows.get(one.identity)
        if known is None or known[0] != version:
            made = row(one, self.root, self.local, busy) | {"version": version}
            made |= {"state": "damaged", "reason": wrong} if version.endswith("!") else {}
            self._rows[one.identity] = known = (version, made)
        return known[1]

    def _read(self, one: FoundRun) -> MetricsLog:
        """The metrics so far; a damaged file is read from its beginning the next time."""
        metrics = self._metrics.pop(one.identity, None) or MetricsLog.of(RunFolder(one.path), self.local)
        metrics.refresh()
        self._metrics[one.identity] = metrics
        while len(self._metrics) > IN_MEMORY:
            self._metrics.popitem(last=False)
        return metrics

    def _done(self, one: FoundRun) -> dict[int, int]:
        """The last evaluated round of every run; where the metrics are damaged, the ledger says enough."""
        with self._reading, suppress(*WRONG):
            values = self._read(one).public.values
            return {run: int(columns["round"][-1]) for run, columns in values.items()}
        return {}


def _busy(folder: RunFolder) -> bool:
    """Whether somebody works at it; nobody, as far as is known, where the folder may not be looked into."""
    try:
        return not folder.finished and folder.busy
    except OSError:
        return False


def _version(path: Path, local: bool) -> str:
    """A text that changes whenever the run does."""
    signs = []
    for name in SIGNS + (LOCAL_SIGNS if local else ()):
        try:
            found = (path / name).stat()
            signs.append((found.st_mtime_ns, found.st_size))
        except OSError:
            signs.append((0, 0))
    return hashlib.sha256(repr(signs).encode()).hexdigest()[:12]
