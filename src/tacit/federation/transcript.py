"""What left the house: every byte string, and whether the ledgers cover it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tacit.federation.at_work import study_folder
from tacit.federation.journal import Departure, Journal
from tacit.federation.policy import Site
from tacit.privacy.events import event_of
from tacit.results.account import Account
from tacit.results.folder import RunFolder


class Line(NamedTuple):
    """One byte string that left."""

    departure: Departure
    study: str
    event: str  # what it stands for, in a few words
    covered: bool  # an upload's event is in the study's ledger; other kinds hold nothing made of records


class Transcript(NamedTuple):
    """Everything that left, and what is wrong with it."""

    lines: list[Line]
    faults: list[str]


def transcript(site: Site) -> Transcript:
    """Read journal and ledgers, and hold them against each other."""
    faults: list[str] = []
    with Journal.read(site.state) as journal:
        departures = journal.departures()
        experiments = {begun.id: begun for begun in journal.experiments()}
        answered = {(name, row.round): row for name in experiments for row in journal.answered(name)}
    ledgers: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in experiments:
        rows = RunFolder.open(study_folder(site, name)).read_ledger()  # a ledger that was changed is an error
        ledgers[name] = {}
        for row in rows:
            if row["kind"] == "release":
                ledgers[name].setdefault(row["upload"], []).append(row)
    lines = []
    for departure in departures:
        events = ledgers.get(departure.experiment, {}).get(departure.sha256, [])
        upload = departure.kind.startswith("answer")
        study = experiments[departure.experiment].study if departure.experiment in experiments else ""
        lines.append(Line(departure, study, _words(events), not upload or bool(events)))
        if upload and not events:
            faults.append(
                f"the upload of round {departure.round} ({departure.sha256[:12]}…) has no event in the ledger"
            )
        if upload and (departure.experiment, departure.round) not in answered:
            faults.append(f"the upload of round {departure.round} ({departure.sha256[:12]}…) is not in the journal")
    faults += _reservations(site, experiments)
    return Transcript(lines, faults)


def _reservations(site: Site, experiments: dict[str, Any]) -> list[str]:
    """Every study must have its place in the ledger over studies."""
    known = {study["reservation"] for study in Account.open(site.ledger).state()["studies"]}
    return [
        f"the study {begun.study} ({name[:8]}) has no reservation in {site.ledger.name}"
        for name, begun in experiments.items()
        if begun.reservation not in known
    ]


def _words(events: list[dict[str, Any]]) -> str:
    if not events:
        return "–"
    return ", ".join(f"{row['count']} x {event_of(row).mechanism}" for row in events)
