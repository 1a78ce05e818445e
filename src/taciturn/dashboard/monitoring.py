"""The state of a site's agent and of a coordinator, for monitoring programs and for a page for their owner.

What monitoring programs get reveals nothing about records: no times of rounds, which depend on them, and no counts
except of messages. The page is for the owner, and shows what the transcript contains.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taciturn.core.storage import file_version, format_bytes
from taciturn.federation.journal import KEPT_BACK, LEFT, Departure, Journal, journal_path
from taciturn.federation.policy import Site, read_site
from taciturn.federation.site_operations import describe_peers, read_peers_report
from taciturn.federation.site_session import study_folder
from taciturn.federation.status import (
    AGENT_LOCK,
    AgentStatus,
    CoordinatorStatus,
    StatusSnapshot,
    describe_agent,
    is_connected,
    read_status,
    time_text,
)
from taciturn.federation.transcript import describe_events, describe_kind
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.budget_state import BudgetState
from taciturn.reporting.tables import format_epsilon
from taciturn.runs.folder import RunFolder
from taciturn.runs.metrics_log import JsonlTail
from taciturn.runs.records import ReleaseEntry

SILENT = 30.0  # seconds without a heartbeat of the engine
SHOWN = 50  # departures on the page
HEADINGS = ("time", "what", "round", "bytes", "SHA-256", "event")
COUNTERS = (  # name of the metric, field of the status file, help
    ("rounds", "rounds", "Rounds answered"),
    ("dropped_messages", "dropped", "Messages dropped"),
    ("engine_restarts", "restarts", "Restarts of the engine"),
)


@dataclass(frozen=True)
class MonitorRow:
    """A row of the page's table."""

    cells: Sequence[str]
    ok: bool


@dataclass(frozen=True)
class MonitorPage:
    """What the page shows."""

    title: str
    state: str
    ok: bool
    facts: Sequence[tuple[str, str]] = ()
    meter: BudgetBar | None = None
    headings: Sequence[str] = ()
    rows: Sequence[MonitorRow] = ()
    note: str = ""


@dataclass(frozen=True)
class BudgetBar:
    """The privacy budget of a site's records: the share that is used, from 0 to 1, and in words."""

    share: float
    text: str
    left: str


@dataclass(frozen=True)
class MonitorReport:
    """What the monitoring server serves."""

    health: Mapping[str, object]  # the JSON of /health: `ok`, `reason` and more
    metrics: str  # in the text format of Prometheus
    page: MonitorPage


class Metric(NamedTuple):
    """A metric of Prometheus with its values, by labels such as 'kind="answer"'."""

    name: str
    help: str
    values: Mapping[str, float]
    kind: str = "gauge"


def exposition(metrics: Iterable[Metric]) -> str:
    """Return metrics in the text format of Prometheus.

    Examples
    --------
    >>> print(exposition([Metric("up", "1 if running.", {'site="north"': 1.0})]), end="")
    # HELP up 1 if running.
    # TYPE up gauge
    up{site="north"} 1
    """
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.values.items():
            lines.append(f"{metric.name}{f'{{{labels}}}' if labels else ''} {_format_value(value)}")
    return "\n".join(lines) + "\n"


def _format_value(value: float) -> str:
    if math.isinf(value):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


@dataclass
class SiteRecords:
    """What a site's journal and ledgers contain; they are read again only after they have grown."""

    site: Site
    newest: list[Departure] = field(default_factory=list)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)  # kind -> byte strings that left, their bytes
    repeats: int = 0
    account: BudgetState = field(init=False)
    peers: str = ""  # who is verified, in words; empty if nobody needs to be
    newest_slot: str = ""  # of a secure sum: "epoch/slot" of the last upload
    slots: int = 0  # uploads that are charged in its study
    _ledgers: dict[str, JsonlTail] = field(default_factory=dict)
    _events: dict[str, list[ReleaseEntry]] = field(default_factory=dict)  # by the hash of the upload
    _slots: dict[str, set[str]] = field(default_factory=dict)  # by experiment
    _versions: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read what is new."""
        journal = journal_path(self.site.state)
        if self._changed("ledger", self.site.ledger):
            self.account = BudgetLedger.open(self.site.ledger).state()
        if journal.is_file() and self._changed("journal", journal, journal.with_name(f"{journal.name}-wal")):
            with Journal.read(self.site.state) as opened:
                self.newest = opened.newest_departures(SHOWN)
                self.totals, self.repeats = opened.departure_totals(), opened.repeats()
        if self._changed("peers", self.site.study, self.site.peers):
            found = read_peers_report(self.site)
            self.peers = describe_peers(found) if found and found["needed"] else ""
        for name in {departure.experiment for departure in self.newest if departure.is_upload}:
            self._read_ledger(name)

    def describe_event(self, departure: Departure) -> tuple[str, bool]:
        """Return what the ledger says about an upload, and whether that is correct."""
        events = self._events.get(departure.sha256, [])
        missing = departure.is_upload and departure.fate == LEFT and not events
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
                entry = ReleaseEntry.from_json(row, folder)
                self._events.setdefault(row["upload"], []).append(entry)
                if entry.slot is not None:
                    self._slots.setdefault(name, set()).add(entry.slot)
                    self.newest_slot, self.slots = entry.slot, len(self._slots[name])

    def _changed(self, name: str, *paths: Path) -> bool:
        versions = tuple(map(file_version, paths))
        before, self._versions[name] = self._versions.get(name), versions
        return before != versions


@dataclass
class SiteMonitor:
    """Reports about a site.

    Parameters
    ----------
    path : Path
        The site's configuration, site.toml.
    """

    path: Path
    records: SiteRecords = field(init=False)

    def __post_init__(self) -> None:
        self.records = SiteRecords(read_site(self.path))

    def report(self) -> MonitorReport:
        """Return the current state of the site's agent, its budget, and what has left."""
        seen = read_status(self.records.site.state, AGENT_LOCK, AgentStatus)
        self.records.refresh()
        trouble = _site_trouble(seen)
        health = {"ok": not trouble, "role": "site", "site": self.records.site.name, "reason": trouble}
        health |= {"running": seen.running, "connected": is_connected(seen)}
        return MonitorReport(health, exposition(self._metrics(seen, not trouble)), self._page(seen, trouble))

    def _budget(self) -> dict[str, float]:
        account = self.records.account
        return {"total": account.total_epsilon, "used": account.epsilon_used, "next": account.epsilon_next}

    def _metrics(self, seen: StatusSnapshot[AgentStatus], healthy: bool) -> Iterable[Metric]:
        site = f'site="{self.records.site.name}"'
        yield Metric("taciturn_site_up", "1 if the agent is running.", {site: seen.running})
        yield Metric("taciturn_site_connected", "1 if it is connected to the coordinator.", {site: is_connected(seen)})
        yield Metric("taciturn_site_healthy", "1 if /health says 200.", {site: healthy})
        for name, key, meaning in COUNTERS:
            values = {site: getattr(seen.status, key)}
            yield Metric(f"taciturn_site_{name}_total", f"{meaning} since the agent started.", values, "counter")
        counts = {f'{site},kind="{kind}"': float(n) for kind, (n, _) in self.records.totals.items()}
        sizes = {f'{site},kind="{kind}"': float(size) for kind, (_, size) in self.records.totals.items()}
        yield Metric("taciturn_site_departures_total", "Messages that left, by kind.", counts, "counter")
        yield Metric("taciturn_site_departed_bytes_total", "Bytes of messages that left, by kind.", sizes, "counter")
        parts = {f'{site},part="{part}"': value for part, value in self._budget().items()}
        yield Metric("taciturn_site_budget_epsilon", "The records' privacy budget over all studies.", parts)

    def _page(self, seen: StatusSnapshot[AgentStatus], trouble: str) -> MonitorPage:
        records, status, budget = self.records, describe_agent(seen), self._budget()
        counts, sizes = zip(*records.totals.values(), strict=True) if records.totals else ((), ())
        facts = {
            "active study": status["active_study"] or "none",
            "connected since": _format_time(status["connected_since"]),
            "heartbeat of the engine": _format_time(status["last_heartbeat"]),
            "last question": _format_time(status["last_question"]),
            "last answer": _format_time(status["last_answer"]),
            "rounds since it started": status["rounds_answered"],
            "messages dropped": status["dropped_messages"],
            "engine restarted": status["engine_restarts"],
            "sent so far": f"{sum(counts):,} messages, {format_bytes(sum(sizes))}",
            "sent again, not listed": f"{records.repeats:,} times",
        }
        if records.newest_slot:
            facts["newest slot"] = f"{records.newest_slot}; {records.slots:,} charged in its study"
        if records.peers:
            facts["peers"] = records.peers
        meter = BudgetBar(
            share=budget["used"] / budget["total"] if budget["total"] else 1.0,
            text=f"ε {format_epsilon(budget['used'])} of {format_epsilon(budget['total'])} used or reserved",
            left=f"{records.account.room} at δ {records.account.delta:g}",
        )
        return MonitorPage(
            title=f"{records.site.name}: what this site sends",
            state=trouble or "connected to the coordinator",
            ok=not trouble,
            facts=_fact_texts(facts),
            meter=meter,
            headings=HEADINGS,
            rows=[self._row(departure) for departure in records.newest],
            note=f"at most the last {SHOWN}; 'taciturn federation site transcript' shows all",
        )

    def _row(self, departure: Departure) -> MonitorRow:
        event, ok = self.records.describe_event(departure)
        held = departure.fate == KEPT_BACK
        cells = (
            _format_time(departure.time),
            f"{describe_kind(departure.kind)}, kept back" if held else describe_kind(departure.kind),
            "–" if departure.round is None else str(departure.round),
            f"{departure.bytes:,}",
            departure.sha256,
            event,
        )
        return MonitorRow(cells, ok and not held)


@dataclass
class CoordinatorMonitor:
    """Reports about a coordinator.

    Parameters
    ----------
    path : Path
        The run folder of its study.
    """

    path: Path

    def report(self) -> MonitorReport:
        """Return the current state of the study and of the connected sites."""
        folder = RunFolder.open(self.path)
        seen, finished = read_status(folder.checkpoints, "lock", CoordinatorStatus), folder.finished
        trouble = "" if finished else _coordinator_trouble(seen)
        status = seen.status
        sites = status.sites if seen.running else {}
        health = {"ok": not trouble, "role": "coordinator", "reason": trouble, "running": seen.running}
        health |= {"finished": finished, "round": status.round, "sites_connected": len(sites)}
        facts = {
            "study": status.study or None,
            "rounds": f"{status.round} of {status.rounds}",
            "listening since": _format_time(time_text(status.listening)) if seen.running else None,
            "heartbeat of the engine": _format_time(time_text(status.heartbeat)),
            "messages dropped": status.dropped,
            "engine restarted": status.restarts,
            "received from the sites": format_bytes(status.bytes_up),
            "sent to the sites": format_bytes(status.bytes_down),
        }
        if status.slots_planned:
            facts["secure sum"] = f"epoch {status.epoch}; {status.slots:,} of at most {status.slots_planned:,} slots"
            facts["sums lost, and charged"] = status.slots_lost
        page = MonitorPage(
            title=f"{self.path.name}: coordinator",
            state="the study has ended" if finished else trouble or "training",
            ok=not trouble,
            facts=_fact_texts(facts),
            headings=("site", "connected since"),
            rows=[MonitorRow((site, _format_time(time_text(since))), True) for site, since in sorted(sites.items())],
            note=f"{len(sites)} of {status.wanted} sites are connected; {status.quorum} must answer",
        )
        return MonitorReport(health, exposition(_coordinator_metrics(seen, finished, not trouble, sites)), page)


def _coordinator_metrics(
    seen: StatusSnapshot[CoordinatorStatus], finished: bool, healthy: bool, sites: Mapping[str, float]
) -> Iterable[Metric]:
    prefix, status = "taciturn_coordinator", seen.status
    yield Metric(f"{prefix}_up", "1 if the command is running.", {"": seen.running})
    yield Metric(f"{prefix}_healthy", "1 if /health says 200.", {"": healthy})
    yield Metric(f"{prefix}_finished", "1 if the study has ended.", {"": finished})
    listening = seen.running and status.listening is not None
    yield Metric(f"{prefix}_listening", "1 if sites can connect.", {"": listening})
    yield Metric(f"{prefix}_rounds_total", "Rounds of the study that are done.", {"": status.round}, "counter")
    yield Metric(f"{prefix}_rounds_planned", "Rounds of the study in all.", {"": status.rounds})
    yield Metric(f"{prefix}_sites_connected", "Sites that are connected.", {"": len(sites)})
    yield Metric(f"{prefix}_sites_wanted", "Sites that take part.", {"": status.wanted})
    yield Metric(f"{prefix}_site_connected", "1 for each of them.", {f'site="{site}"': 1 for site in sorted(sites)})
    if status.slots_planned:
        yield Metric(f"{prefix}_slots_total", "Slots of the secure sum so far.", {"": status.slots}, "counter")
        lost = {"": status.slots_lost}
        yield Metric(f"{prefix}_slots_lost_total", "Slots that were lost, and charged.", lost, "counter")
        yield Metric(f"{prefix}_slots_planned", "Slots that the budget pays for.", {"": status.slots_planned})
    sizes = {'direction="up"': status.bytes_up, 'direction="down"': status.bytes_down}
    yield Metric(f"{prefix}_bytes_total", "Bytes of messages, from the sites and to them.", sizes, "counter")
    for name, key, meaning in COUNTERS[1:]:
        values = {"": getattr(status, key)}
        yield Metric(f"{prefix}_{name}_total", f"{meaning} since the command started.", values, "counter")


def _site_trouble(seen: StatusSnapshot[AgentStatus]) -> str:
    """Return why a site does not work; an empty text if it does."""
    if not seen.running:
        return "the agent is not running"
    if not is_connected(seen):
        return "not connected to the coordinator"
    answering = (seen.status.question or 0.0) > (seen.status.answer or 0.0)
    return "" if answering else _engine_trouble(seen.status)


def _coordinator_trouble(seen: StatusSnapshot[CoordinatorStatus]) -> str:
    """Return why a coordinator does not work; an empty text if it does."""
    status = seen.status
    if not seen.running:
        return "the command is not running"
    if status.listening is None:
        return "sites cannot connect yet"
    if len(status.sites) < status.quorum:
        return f"{len(status.sites)} sites are connected, and {status.quorum} must answer"
    return _engine_trouble(status)


def _engine_trouble(status: AgentStatus | CoordinatorStatus) -> str:
    silent = status.heartbeat is not None and time.time() - status.heartbeat > SILENT
    return "the engine does not respond" if silent else ""


def _format_time(moment: str | None) -> str:
    """Return a time without its zone; all times are in the machine's zone."""
    return moment[:19].replace("T", " ") if moment else "–"


def _fact_texts(facts: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, "–" if value is None else str(value)) for name, value in facts.items()]
