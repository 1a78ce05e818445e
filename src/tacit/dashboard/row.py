"""One run folder as a row of the list: read from its small files and the end of its metrics."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from tacit.dashboard.damage import WRONG, reason, sendable
from tacit.dashboard.find import Found
from tacit.dashboard.wire import shown
from tacit.errors import InputError
from tacit.results.files import LOCAL_FOLDER
from tacit.results.folder import RunFolder
from tacit.views.tables import by_label, format_setting, rounds_done

TAIL = 65536  # bytes at the end of the metrics, with the last rounds of all runs


def row(found: Found, root: Path, local: bool, busy: bool) -> dict[str, Any]:
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
        entries, ended = summary["runs"], _written(folder.summary, private)
        state: dict[str, Any] = {"state": "finished", "share": 1.0, "done": rounds_done(entries) or made["planned"]}
        if when := folder.read_summary(local).get("ended"):  # of a certified run it is for the owner alone
            state["started"] = min(made["started"], datetime.fromisoformat(when).timestamp())  # of a copy
    else:
        entries, ended = _last_rows(folder, local=False), _written(folder.metrics, private)
        state = {"state": "running"} if busy else _stopped(folder, private, str(folder.path) if local else made["name"])
        state |= _how_far(entries, made)
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


def _tested(folder: RunFolder, entries: Sequence[Mapping[str, Any]], local: bool) -> dict[str, Any]:
    """The test error anybody may see, or else the owner's; lowest and highest of all settings."""
    public = _errors(entries)
    own: list[float] = []
    if local and not public:
        own = _errors(folder.read_summary()["runs"] if folder.finished else _last_rows(folder))
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
        return {"state": "stopped", "resume": shown(f"tacit resume {shlex.quote(place)}")}
    return {"state": "waiting", "reason": "a federated study: it goes on with the same 'tacit federation run'"}


def _how_far(entries: Sequence[Mapping[str, Any]], made: Mapping[str, Any]) -> dict[str, Any]:
    """The rounds of the algorithm at hand; those before it are done."""
    if not entries:
        return {"done": 0, "share": 0.0, "at": made["algorithms"][0]}
    last, names = entries[-1], made["algorithms"]
    share = (names.index(last["algorithm"]) + last["round"] / made["planned"]) / len(names)
    return {"done": last["round"], "share": min(1.0, share), "at": last["algorithm"]}


def _errors(entries: Sequence[Mapping[str, Any]]) -> list[float]:
    """The mean over seeds of every algorithm and epsilon."""
    groups = by_label([entry for entry in entries if entry["test_error"] is not None])
    return [fmean(entry["test_error"] for entry in group) for group in groups.values()]


def _last_rows(folder: RunFolder, local: bool = True) -> list[dict[str, Any]]:
    """The rows of the last round that was evaluated, one for each run of the algorithm at hand."""
    rows = _tail(folder.metrics)
    last = [row for row in rows if (row["algorithm"], row["round"]) == (rows[-1]["algorithm"], rows[-1]["round"])]
    if not local or not folder.has_local:
        return last
    kept = {(row["run"], row["round"]): row for row in _tail(folder.local_metrics)}
    return [row | kept.get((row["run"], row["round"]), {}) for row in last]


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
