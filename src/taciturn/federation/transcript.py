"""What left the house: every byte string, and whether the ledgers cover it."""

from __future__ import annotations

from typing import Any, NamedTuple

from taciturn.federation.departures import KEPT_BACK, Departure
from taciturn.federation.journal import Journal
from taciturn.federation.policy import Site
from taciturn.federation.site_session import study_folder
from taciturn.privacy.budget import BudgetLedger
from taciturn.runs.folder import RunFolder
from taciturn.runs.records import ReleaseEntry


class TranscriptLine(NamedTuple):
    """One byte string that left, or was kept back at the last moment."""

    departure: Departure
    study: str
    event: str  # what it stands for, in a few words
    covered: bool  # an upload's event is in the study's ledger; other kinds hold nothing made of records
    kept_back: bool  # the result filter did not let it pass: it never left


class Transcript(NamedTuple):
    """Everything that left, and what is wrong with it."""

    lines: list[TranscriptLine]
    faults: list[str]
    repeats: int  # how often one of the lines' byte strings left once more without a line, at least


def transcript(site: Site) -> Transcript:
    """Read journal and ledgers, and hold them against each other."""
    faults: list[str] = []
    with Journal.read(site.state) as journal:
        departures, repeats = journal.departures(), journal.repeats()
        experiments = {begun.id: begun for begun in journal.experiments()}
        answered = {(name, row.round): row for name in experiments for row in journal.answered(name)}
    ledgers: dict[str, dict[str, list[ReleaseEntry]]] = {}
    begun = [name for name in experiments if study_folder(site, name).exists()]
    lost = {name for name, _ in answered} - set(begun)
    faults += [f"the study {name[:8]} has no folder, and so no ledger of its rounds" for name in sorted(lost)]
    for name in begun:
        ledgers[name] = {}
        for entry in RunFolder.open(study_folder(site, name)).read_ledger().releases:
            ledgers[name].setdefault(entry.upload or "", []).append(entry)
    lines = []
    for departure in departures:
        events = ledgers.get(departure.experiment, {}).get(departure.sha256, [])
        kept_back = departure.fate == KEPT_BACK
        upload = departure.kind.startswith("answer") and not kept_back
        study = experiments[departure.experiment].study if departure.experiment in experiments else ""
        lines.append(TranscriptLine(departure, study, event_words(events), not upload or bool(events), kept_back))
        if upload and not events:
            faults.append(
                f"the upload of round {departure.round} ({departure.sha256[:12]}…) has no event in the ledger"
            )
        if upload and (departure.experiment, departure.round) not in answered:
            faults.append(f"the upload of round {departure.round} ({departure.sha256[:12]}…) is not in the journal")
    faults += _reservations(site, experiments)
    return Transcript(lines, faults, repeats)


def _reservations(site: Site, experiments: dict[str, Any]) -> list[str]:
    """Every study must have its place in the ledger over studies."""
    known = {study.reservation for study in BudgetLedger.open(site.ledger).state().studies}
    return [
        f"the study {begun.study} ({name[:8]}) has no reservation in {site.ledger.name}"
        for name, begun in experiments.items()
        if begun.reservation not in known
    ]


def event_words(events: list[ReleaseEntry]) -> str:
    """A ledger's lines for one upload, in a few words."""
    if not events:
        return "–"
    return ", ".join(f"{entry.count} x {entry.event.mechanism}" for entry in events)
