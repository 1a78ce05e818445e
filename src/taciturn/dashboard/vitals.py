"""How a site's agent and a coordinator's command are: for monitors, and for the page of their owner.

What monitors get tells nothing of records: no times of rounds, which depend on them, and no counts but those of
messages. The page is for the owner, and has what the transcript has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from taciturn.federation.journal import KEPT_BACK, LEFT, Departure, Journal
from taciturn.federation.policy import Site, read_site
from taciturn.federation.site_session import study_folder
from taciturn.federation.status import AGENT_LOCK, StatusSnapshot, describe_agent, read_status
from taciturn.federation.transcript import describe_events
from taciturn.privacy.budget import BudgetLedger
from taciturn.reporting.tables import format_bytes, format_epsilon
from taciturn.runs.folder import RunFolder
from taciturn.runs.metrics_log import JsonlTail

SILENT = 30.0  # seconds without a sign of life of the engine
SHOWN = 50  # departures on the page
HEADINGS = ("time", "what", "round", "bytes", "SHA-256", "event")


class Vitals(NamedTuple):
    """What is served."""

    health: dict[str, Any]  # `ok`, and why not
    metrics: str  # in Prometheus' text format
    page: dict[str, Any]

    def encoded(self) -> bytes:
        """As it goes to the program that serves it."""
        return json.dumps(self._asdict()).encode()


class Metric(NamedTuple):
    """One of them, with its values by label."""

    name: str
    help: str
    values: Mapping[str, float]  # by labels, such as 'kind="answer"'
    kind: str = "gauge"


def exposition(metrics: Iterable[Metric]) -> str:
    """Prometheus' text format."""
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.values.items():
            lines.append(f"{metric.name}{f'{{{labels}}}' if labels else ''} {_figure(value)}")
    return "\n".join(lines) + "\n"


def _figure(value: float) -> str:
    """A number, with all its digits."""
    if math.isinf(value):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


@dataclass
class Sending:
    """What a site's journal and ledgers say of what it sent, read again where they have grown."""

    site: Site
    newest: list[Departure] = field(default_factory=list)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    repeats: int = 0
    account: dict[str, Any] = field(default_factory=dict)
    _ledgers: dict[str, JsonlTail] = field(default_factory=dict)
    _events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by the hash of the upload
    _marks: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Take in what is new."""
        journal = self.site.state / "journal.sqlite"
        if self._changed("ledger", self.site.ledger):
            self.account = BudgetLedger.open(self.site.ledger).state()
        if journal.is_file() and self._changed("journal", journal, journal.with_name(f"{journal.name}-wal")):
            with Journal.read(self.site.state) as read:
                self.newest, self.totals, self.repeats = (
                    read.newest_departures(SHOWN),
                    read.departure_totals(),
                    read.repeats(),
                )
        for name in {departure.experiment for departure in self.newest if departure.kind.startswith("answer")}:
            self._read_ledger(name)

    def event(self, departure: Departure) -> tuple[str, bool]:
        """What an upload's line in the ledger says, and whether all is well with it."""
        events = self._events.get(departure.sha256, [])
        missing = departure.kind.startswith("answer") and departure.fate == LEFT and not events
        return ("NOT IN THE LEDGER" if missing else describe_events(events)), not missing

    def _read_ledger(self, name: str) -> None:
        folder = study_folder(self.site, name)
        if name not in self._ledgers:
            if not folder.exists():
                return
            self._ledgers[name] = JsonlTail(RunFolder.open(folder).ledger)
        rows, _ = self._ledgers[name].more()
        for row in rows:
            if row["kind"] == "release":
                self._events.setdefault(row["upload"], []).append(row)

    def _changed(self, name: str, *paths: Path) -> bool:
        mark = tuple(n for path in paths if path.exists() for n in (path.stat().st_size, path.stat().st_mtime_ns))
        before, self._marks[name] = self._marks.get(name), mark
        return before != mark


@dataclass
class SiteWatch:
    """A site, as its owner watches it."""

    path: Path  # site.toml
    sending: Sending = field(init=False)

    def __post_init__(self) -> None:
        self.sending = Sending(read_site(self.path))

    def vitals(self) -> Vitals:
        """How it is now."""
        site, sending = self.sending.site, self.sending
        seen = read_status(site.state, AGENT_LOCK)
        sending.refresh()
        why = _site_trouble(seen)
        health = {"ok": not why, "role": "site", "site": site.name, "reason": why}
        health |= {"running": seen.running, "connected": seen.connected}
        return Vitals(health, exposition(self._metrics(seen, not why)), self._page(seen, why))

    def _budget(self) -> dict[str, float]:
        total, used = float(self.sending.account["total_epsilon"]), float(self.sending.account["epsilon_used"])
        return {"total": total, "used": used, "left": max(0.0, total - used)}

    def _metrics(self, seen: StatusSnapshot, healthy: bool) -> Iterable[Metric]:
        own = f'site="{self.sending.site.name}"'
        totals = self.sending.totals
        yield Metric("taciturn_site_up", "1 if the agent is running.", {own: seen.running})
        yield Metric("taciturn_site_connected", "1 if it is connected to the coordinator.", {own: seen.connected})
        yield Metric("taciturn_site_healthy", "1 if /health says 200.", {own: healthy})
        for name, key, words in _COUNTS:
            yield Metric(
                f"taciturn_site_{name}_total", f"{words} since the agent started.", {own: seen.count(key)}, "counter"
            )
        counts = {f'{own},kind="{kind}"': float(n) for kind, (n, _) in totals.items()}
        sizes = {f'{own},kind="{kind}"': float(size) for kind, (_, size) in totals.items()}
        yield Metric("taciturn_site_departures_total", "Byte strings that left, by kind.", counts, "counter")
        yield Metric("taciturn_site_departed_bytes_total", "Bytes that left, by kind.", sizes, "counter")
        parts = {f'{own},part="{part}"': value for part, value in self._budget().items()}
        yield Metric("taciturn_site_budget_epsilon", "The records' privacy budget over all studies.", parts)

    def _page(self, seen: StatusSnapshot, why: str) -> dict[str, Any]:
        sending, status, budget = self.sending, describe_agent(seen), self._budget()
        sent = sum(size for _, size in sending.totals.values())
        facts = {
            "study at work": status["study_at_work"] or "none",
            "connected since": _plain(status["connected_since"]),
            "heartbeat of the engine": _plain(status["last_heartbeat"]),
            "last question": _plain(status["last_question"]),
            "last answer": _plain(status["last_answer"]),
            "rounds since it started": status["rounds_answered"],
            "messages dropped": status["dropped_messages"],
            "engine restarted": status["engine_restarts"],
            "left so far": f"{sum(n for n, _ in sending.totals.values()):,} byte strings, {format_bytes(sent)}",
            "left again, without a line": f"{sending.repeats:,} times",
        }
        return {
            "title": f"{sending.site.name}: what this site sends",
            "state": why or "connected to the coordinator",
            "good": not why,
            "facts": _texts(facts),
            "meter": {
                "share": budget["used"] / budget["total"] if budget["total"] else 1.0,
                "text": f"ε {format_epsilon(budget['used'])} of {format_epsilon(budget['total'])} used or set aside",
                "left": f"left ε {format_epsilon(budget['left'])} at δ {sending.account['delta']:g}",
            },
            "headings": HEADINGS,
            "rows": [self._row(departure) for departure in sending.newest],
            "note": f"the last {SHOWN} at most; 'taciturn federation site transcript' has all of them",
        }

    def _row(self, departure: Departure) -> dict[str, Any]:
        event, good = self.sending.event(departure)
        kept = departure.fate == KEPT_BACK
        cells = (
            _plain(departure.time),
            f"{departure.kind}, kept back" if kept else departure.kind,
            "–" if departure.round is None else str(departure.round),
            f"{departure.bytes:,}",
            departure.sha256,
            event,
        )
        return {"cells": cells, "good": good and not kept}


@dataclass
class RunWatch:
    """A coordinator's study, as its owner watches it."""

    path: Path  # the run folder

    def vitals(self) -> Vitals:
        """How it is now."""
        folder = RunFolder.open(self.path)
        seen = read_status(folder.checkpoints, "lock")
        why = "" if folder.finished else _run_trouble(seen)
        sites: dict[str, float] = seen.life.get("sites", {}) if seen.running else {}
        health = {"ok": not why, "role": "coordinator", "reason": why, "running": seen.running}
        health |= {"finished": folder.finished, "round": seen.count("round"), "sites_connected": len(sites)}
        state = "the study has ended" if folder.finished else why or "training"
        facts = {
            "study": seen.life.get("study"),
            "rounds": f"{seen.count('round')} of {seen.count('rounds')}",
            "listening since": _plain(seen.moment("listening")) if seen.running else None,
            "heartbeat of the engine": _plain(seen.moment("heartbeat")),
            "messages dropped": seen.count("dropped"),
            "engine restarted": seen.count("restarts"),
            "got from the sites": format_bytes(seen.count("bytes_up")),
            "sent to the sites": format_bytes(seen.count("bytes_down")),
        }
        page = {
            "title": f"{self.path.name}: coordinator",
            "state": state,
            "good": not why,
            "facts": _texts(facts),
            "meter": None,
            "headings": ("site", "connected since"),
            "rows": [{"cells": (site, _moment(since)), "good": True} for site, since in sorted(sites.items())],
            "note": f"{len(sites)} of {seen.count('wanted')} sites are connected; {seen.count('quorum')} must answer",
        }
        return Vitals(health, exposition(_run_metrics(seen, folder.finished, not why, sites)), page)


def _run_metrics(seen: StatusSnapshot, finished: bool, healthy: bool, sites: Mapping[str, float]) -> Iterable[Metric]:
    name = "taciturn_coordinator"
    yield Metric(f"{name}_up", "1 if the command is running.", {"": seen.running})
    yield Metric(f"{name}_healthy", "1 if /health says 200.", {"": healthy})
    yield Metric(f"{name}_finished", "1 if the study has ended.", {"": finished})
    listening = seen.running and seen.life.get("listening") is not None
    yield Metric(f"{name}_listening", "1 if sites can connect.", {"": listening})
    yield Metric(f"{name}_rounds_total", "Rounds of the study that are done.", {"": seen.count("round")}, "counter")
    yield Metric(f"{name}_rounds_planned", "Rounds of the study in all.", {"": seen.count("rounds")})
    yield Metric(f"{name}_sites_connected", "Sites that are connected.", {"": len(sites)})
    yield Metric(f"{name}_sites_wanted", "Sites that take part.", {"": seen.count("wanted")})
    yield Metric(f"{name}_site_connected", "1 for each of them.", {f'site="{site}"': 1 for site in sorted(sites)})
    sizes = {'direction="up"': seen.count("bytes_up"), 'direction="down"': seen.count("bytes_down")}
    yield Metric(f"{name}_bytes_total", "Bytes of messages, from the sites and to them.", sizes, "counter")
    for key, words in (("dropped", "Messages dropped"), ("restarts", "Restarts of the engine")):
        kind = "dropped_messages" if key == "dropped" else "engine_restarts"
        yield Metric(f"{name}_{kind}_total", f"{words} since the command started.", {"": seen.count(key)}, "counter")


_COUNTS = (
    ("rounds", "rounds", "Rounds answered"),
    ("dropped_messages", "dropped", "Messages dropped"),
    ("engine_restarts", "restarts", "Restarts of the engine"),
)


def _site_trouble(seen: StatusSnapshot) -> str:
    """Why a site does not do its work; nothing where it does."""
    if not seen.running:
        return "the agent is not running"
    if not seen.connected:
        return "not connected to the coordinator"
    answering = (seen.life["question"] or 0.0) > (seen.life["answer"] or 0.0)
    return "" if answering else _silence(seen)


def _run_trouble(seen: StatusSnapshot) -> str:
    if not seen.running:
        return "the command is not running"
    if seen.life["listening"] is None:
        return "sites cannot connect yet"
    if len(seen.life["sites"]) < seen.life["quorum"]:
        return f"{len(seen.life['sites'])} sites are connected, and {seen.life['quorum']} must answer"
    return _silence(seen)


def _silence(seen: StatusSnapshot) -> str:
    return "the engine gives no sign of life" if (seen.age("heartbeat") or 0.0) > SILENT else ""


def _moment(at: float) -> str:
    return _plain(StatusSnapshot(True, {"at": at}).moment("at"))


def _plain(moment: str | None) -> str:
    """A time as people read it on the machine it comes from."""
    return moment[:19].replace("T", " ") if moment else "–"


def _texts(facts: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, "–" if value is None else str(value)) for name, value in facts.items()]
