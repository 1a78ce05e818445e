"""A run's privacy for the page: the meter and the ledger."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from taciturn.privacy.accountants import EXPLAINED, EpsilonBound, tightest
from taciturn.privacy.events import Event, event_of
from taciturn.reporting.curves import run_label
from taciturn.reporting.statements import PAPER_HEADLINE, headline, holds, paper_statement
from taciturn.reporting.tables import format_epsilon, format_setting
from taciturn.runs.folder import RunFolder, public_config
from taciturn.runs.ledger import RunLedger


class Reading(NamedTuple):
    """What one agent's meter shows in one run."""

    spent: str
    left: str
    next: str  # empty where the plan has no round left
    share: float  # spent of the plan, from 0 to 1
    next_share: float
    accountant: str


def meters(ledger: RunLedger, done: Mapping[int, int]) -> dict[str, Any]:
    """A meter for every algorithm and budget; `done` has the last round of every run, charged or not yet."""
    study = next(entry for entry in ledger if entry["kind"] == "study")
    if study["mode"] == "paper":
        return {"headline": PAPER_HEADLINE, "good": False, "reasons": paper_statement(ledger).reasons, "runs": []}
    plans = [entry for entry in ledger if entry["kind"] == "plan"]
    agents, totals = _agents(ledger), ledger.totals
    return {
        "headline": headline(totals),
        "reasons": [],
        "good": holds(totals),
        "delta": study["delta"],
        "runs": _alike([_run(plan, ledger, agents, done.get(plan["run"], 0), study) for plan in plans]),
    }


def _private(plan: Mapping[str, Any]) -> bool:
    return math.isfinite(float(plan["total_epsilon"]))


def _agents(ledger: Iterable[Mapping[str, Any]]) -> list[str]:
    """The agents the ledger names; before the first line of a release, nobody in particular."""
    names = dict.fromkeys(entry["agent"] for entry in ledger if entry["kind"] == "release")
    return list(names) or ["every agent"]


def _run(
    plan: Mapping[str, Any],
    ledger: RunLedger,
    agents: Sequence[str],
    done: int,
    study: Mapping[str, Any],
) -> dict[str, Any]:
    charged = max((entry.last or 0 for entry in ledger.releases if entry.run == plan["run"]), default=0)
    waiting = max(0, done - charged) if study["noise"] == "seeded" else 0  # charged at the next checkpoint
    events = ledger.events.get(plan["run"], {})
    groups: dict[Reading, list[str]] = {}
    for agent in agents:
        reading = read(plan, events.get(agent, Counter()), waiting, study["delta"])
        groups.setdefault(reading, []).append(agent)
    return {
        "label": run_label(plan["algorithm"], plan["epsilon"]),
        "planned": format_epsilon(plan["planned_epsilon"]),
        "finite": _private(plan),
        "rounds": plan["rounds"],
        "waiting": waiting,
        "agents": [{"names": names, **reading._asdict()} for reading, names in groups.items()],
    }


def read(plan: Mapping[str, Any], charged: Counter[Event], waiting: int, delta: float) -> Reading:
    """One agent's meter: what the ledger charged it with, and `waiting` rounds that it does not have yet."""
    a_round = max(1, round(sum(event["count"] for event in plan["events"]) / plan["rounds"]))
    spent = charged + _next(plan, charged, waiting * a_round)
    following = _next(plan, spent, a_round)
    now, planned = _bound(spent, delta), float(plan["planned_epsilon"])
    cost = _bound(spent + following, delta).epsilon - now.epsilon if following else math.nan
    return Reading(
        spent=format_epsilon(now.epsilon),
        left=format_epsilon(max(0.0, planned - now.epsilon)) if math.isfinite(now.epsilon) else "0",
        next="" if math.isnan(cost) else format_epsilon(cost),
        share=_share(now.epsilon, planned),
        next_share=0.0 if math.isnan(cost) else _share(cost, planned),
        accountant=EXPLAINED[now.accountant],
    )


def _share(epsilon: float, planned: float) -> float:
    return round(min(1.0, epsilon / planned), 4) if 0.0 < planned < math.inf else 0.0


def _next(plan: Mapping[str, Any], spent: Mapping[Event, int], count: int) -> Counter[Event]:
    """The plan's next events, in its order, behind those that were spent."""
    found: Counter[Event] = Counter()
    for entry in plan["events"]:
        event = event_of(entry)
        taken = min(max(0, entry["count"] - spent.get(event, 0)), count - found.total())
        if taken > 0:
            found[event] += taken
    return found


def _bound(events: Counter[Event], delta: float) -> EpsilonBound:
    return _bound_of(frozenset(events.items()), delta)


@lru_cache(maxsize=1024)
def _bound_of(events: frozenset[tuple[Event, int]], delta: float) -> EpsilonBound:
    return tightest(dict(events), delta)


def _alike(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One meter for the seeds of a setting that have spent the same."""
    found: list[dict[str, Any]] = []
    for run in runs:
        same = next((other for other in found if all(other[key] == run[key] for key in run)), None)
        if same:
            same["seeds"] += 1
        else:
            found.append({**run, "seeds": 1})
    return found


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
    totals = entries.totals
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
            return f"total ε {format_epsilon(entry['total_epsilon'])} over {entry['rounds']} rounds" + (
                f", seed {entry['seed']}" if "seed" in entry else ""
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
