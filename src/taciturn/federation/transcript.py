"""The transcript of a site: every byte string that left it, and whether the ledgers cover it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from taciturn.federation.journal import KEPT_BACK, Departure, Experiment, Journal
from taciturn.federation.policy import Site
from taciturn.federation.site_session import study_folder
from taciturn.privacy.budget import BudgetLedger
from taciturn.runs.folder import RunFolder
from taciturn.runs.records import ReleaseEntry

KIND_WORDS = {  # by kind in the journal; the steps of a secure sum are in docs/explanation/secure-sum.md
    "measures": "measures of held-out records",
    "measures again": "measures of held-out records again",
    "sum announce": "keys of an epoch",
    "sum deal": "sealed key shares",
    "sum keep": "receipt of shares",
    "sum begin": "start of an epoch",
    "sum upload": "masked upload",
    "sum upload again": "masked upload again",
    "sum agree": "signed list of uploads",
    "sum reveal": "shares of masks",
}


class TranscriptLine(NamedTuple):
    """One byte string that left, or that the release gate kept back."""

    departure: Departure
    study: str
    what: str  # its kind, in words
    event: str  # its events in the ledger, in a few words
    covered: bool  # whether an upload has an event in the study's ledger; other kinds contain nothing from records
    kept_back: bool


class Transcript(NamedTuple):
    """Everything that left a site, and the faults that were found."""

    lines: list[TranscriptLine]
    faults: list[str]
    repeats: int  # how many times, at least, a listed byte string left again without its own line


def read_transcript(site: Site) -> Transcript:
    """Read the journal and the ledgers of a site, and compare them.

    Parameters
    ----------
    site : Site
        The site; an agent may be running.

    Returns
    -------
    Transcript
        All departures. There are no faults if every upload has an event in its study's ledger and a round in the
        journal, and every study with an upload has a reservation in the budget ledger.

    Raises
    ------
    LedgerTampered
        If a ledger was modified.
    """
    with Journal.read(site.state) as journal:
        departures, repeats = journal.departures(), journal.repeats()
        experiments = {begun.id: begun for begun in journal.experiments()}
        charged = {(name, charge.upload) for name in experiments for charge in journal.charges(name)}
    events, lost = _ledger_events(site, experiments)
    uploading = {name for name, _ in charged}
    faults = [
        f"the study {name[:8]} has no folder, and so no ledger of its rounds" for name in sorted(uploading & lost)
    ]
    lines = []
    for departure in departures:
        entries = events.get((departure.experiment, departure.sha256), [])
        kept_back = departure.fate == KEPT_BACK
        upload = departure.is_upload and not kept_back
        study = experiments[departure.experiment].study if departure.experiment in experiments else ""
        covered, what = not upload or bool(entries), describe_kind(departure.kind)
        lines.append(TranscriptLine(departure, study, what, describe_events(entries), covered, kept_back))
        name = f"the upload of round {departure.round} ({departure.sha256[:12]}…)"
        if upload and not entries:
            faults.append(f"{name} has no event in the ledger")
        if upload and (departure.experiment, departure.sha256) not in charged:
            faults.append(f"{name} is not in the journal")
    reserved = {study.reservation for study in BudgetLedger.open(site.ledger).state().studies}
    faults += [
        f"the study {begun.study} ({name[:8]}) has no reservation in {site.ledger.name}"
        for name, begun in experiments.items()
        if name in uploading and begun.reservation not in reserved
    ]
    return Transcript(lines, faults, repeats)


def _ledger_events(
    site: Site, experiments: Mapping[str, Experiment]
) -> tuple[dict[tuple[str, str], list[ReleaseEntry]], set[str]]:
    """Return the release entries by experiment and upload, and the experiments without a folder."""
    events: dict[tuple[str, str], list[ReleaseEntry]] = {}
    lost = {name for name in experiments if not study_folder(site, name).exists()}
    for name in [name for name in experiments if name not in lost]:
        for entry in RunFolder.open(study_folder(site, name)).read_ledger().releases:
            events.setdefault((name, entry.upload or ""), []).append(entry)
    return events, lost


def describe_kind(kind: str) -> str:
    """Return a kind of message in words.

    Examples
    --------
    >>> describe_kind("sum reveal"), describe_kind("answer")
    ('shares of masks', 'answer')
    """
    return KIND_WORDS.get(kind, kind)


def describe_events(entries: Iterable[ReleaseEntry]) -> str:
    """Describe the ledger entries of one upload in a few words, or return "–" if there are none.

    Examples
    --------
    >>> describe_events([])
    '–'
    """
    shown = (
        f"{entry.count} x {entry.event.mechanism}{f' in slot {entry.slot}' if entry.slot else ''}"
        f"{' of held-out records' if entry.held_out else ''}"
        for entry in entries
    )
    return ", ".join(shown) or "–"
