"""The settings and the ledger of a run as rows for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.privacy.totals import ledger_totals
from tacit.results.folder import RunFolder
from tacit.results.public import public_config
from tacit.views.tables import format_epsilon, format_setting

SHOWN = 300  # lines of a ledger, the newest; a hardened run has one for each agent and round


def settings(folder: RunFolder, other: RunFolder | None, local: bool) -> dict[str, Any]:
    """Every setting, beside another run's where there is one."""
    first = _config(folder, local)
    second = _config(other, local) if other else {}
    names = list(dict.fromkeys([*first, *second]))
    return {"settings": [_setting(name, first, second, other is not None) for name in names]}


def _config(folder: RunFolder, local: bool) -> dict[str, Any]:
    """As it was written; of paths only the last part where others look too."""
    config = folder.read_config()
    return config if local else public_config(config)


def _setting(name: str, first: Mapping[str, Any], second: Mapping[str, Any], compared: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name.replace("_", "-"), "value": _text(first, name)}
    return made | {"other": _text(second, name), "differs": first.get(name) != second.get(name)} if compared else made


def _text(config: Mapping[str, Any], name: str) -> str:
    return format_setting(config[name]) if name in config else "–"


def ledger(folder: RunFolder) -> dict[str, Any]:
    """The ledger, its chain checked: what it comes to for each run, and its newest lines."""
    entries = folder.read_ledger()
    totals = ledger_totals(entries)
    count = sum(1 for run in totals["runs"] if run["agents"])
    together = (
        "" if count < 2 else f"All {count} runs shown to the same eyes: ε {format_epsilon(totals['all_runs_epsilon'])}"
    )
    return {
        "lines": len(entries),
        "delta": totals["delta"],
        "together": together,
        "totals": [total for run in totals["runs"] for total in _totals(run)],
        "entries": [_entry(number, entry) for number, entry in _newest(entries)],
    }


def _newest(entries: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    return list(enumerate(entries, 1))[: -SHOWN - 1 : -1]


def _totals(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for all agents that spent the same."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for agent in run["agents"]:
        figures = tuple(format_epsilon(agent[name]) for name in ("epsilon", "left", "pure_epsilon"))
        groups.setdefault((figures[0], figures[1], figures[2]), []).append(agent["agent"])
    return [
        {"run": run["run"], "agents": names, "spent": spent, "left": left, "pure": pure}
        for (spent, left, pure), names in groups.items()
    ]


def _entry(number: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    first, last = entry.get("first"), entry.get("last")
    return {
        "line": number,
        "kind": entry["kind"],
        "run": entry.get("run"),
        "agent": entry.get("agent", ""),
        "rounds": "" if first is None else str(first) if first == last else f"{first}–{last}",
        "what": _what(entry),
        "count": entry.get("count"),
    }


def _what(entry: Mapping[str, Any]) -> str:
    """What a line stands for, in a few words."""
    match entry["kind"]:
        case "study":
            return f"mode {entry['mode']}, noise {entry['noise']}, δ {entry['delta']:g}"
        case "plan":
            return (
                f"total ε {format_epsilon(entry['total_epsilon'])} over {entry['rounds']} rounds, seed {entry['seed']}"
            )
        case "non_private" | "violation":
            return str(entry["reason"])
        case "release":
            return ", ".join([str(entry["mechanism"]), *_figures(entry)])
    return ""


def _figures(entry: Mapping[str, Any]) -> list[str]:
    names = {"scale": "scale", "l2": "moves by", "epsilon": "nominal ε"}
    found = {word: float(entry[name]) for name, word in names.items() if name in entry}
    return [f"{word} {number:.4g}" for word, number in found.items() if math.isfinite(number)]
