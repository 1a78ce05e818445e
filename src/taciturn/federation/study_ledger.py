"""The charges in the ledger of one study at a site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from taciturn.errors import CorruptFile, PrivacyViolation
from taciturn.federation.journal import Charge, Place, place_of
from taciturn.privacy.events import Event
from taciturn.privacy.hash_chain import HashChain
from taciturn.runs.ledger import RunLedger
from taciturn.runs.records import ReleaseEntry

EventsOfSides: TypeAlias = Counter[tuple[Event, bool]]
"""How often each event happens, with whether it is of held-out records."""


@dataclass
class StudyLedger:
    """The charges in the ledger of one study; the file is read again whenever another process has changed it.

    Parameters
    ----------
    chain : HashChain
        The study's ledger. `uploads`, `planned` and `drawn` are read from it.
    """

    chain: HashChain
    uploads: dict[str, Place] = field(default_factory=dict)  # SHA-256 of each charged upload -> its round or slot
    rounds: set[int] = field(default_factory=set)  # that are charged
    planned: EventsOfSides = field(default_factory=Counter)
    drawn: EventsOfSides = field(default_factory=Counter)
    _size: int = -1  # size of the file when this object last read or wrote it

    @property
    def places(self) -> set[Place]:
        """The rounds or slots that are charged."""
        return set(self.uploads.values())

    def refresh(self) -> None:
        """Read the ledger, unless it is unchanged since this process last read or wrote it."""
        size = self.chain.path.stat().st_size if self.chain.path.exists() else 0
        if size == self._size:
            return
        ledger = RunLedger.from_rows(self.chain.read(), self.chain.path)
        self.uploads = {entry.upload or "": place_of(entry) for entry in ledger.releases}
        self.rounds = {entry.first for entry in ledger.releases if not entry.held_out}
        self.drawn = _count_events(ledger.releases)
        self.planned = Counter()
        for plan in ledger.plans.values():
            for held_out, events in ((False, plan.events), (True, plan.held_out or ())):
                for planned in events:
                    self.planned[planned.event, held_out] += planned.count
        self._size = size

    def has_room(self, events: EventsOfSides) -> bool:
        """Return whether the reserved plan covers these events in addition to those drawn so far."""
        self.refresh()
        return self.drawn + events <= self.planned

    def charge(self, charge: Charge) -> None:
        """Append the events of an upload to the ledger, unless they are there already.

        If a line was written but its head was not (a full disk elsewhere), the line is not added again, and the upload
        cannot leave before the head is written.

        Raises
        ------
        PrivacyViolation
            If the ledger has another upload for this round or slot.
        """
        self.refresh()
        if charge.upload in self.uploads:
            self.chain.rewrite_head()
            return
        if charge.place in self.places:
            raise PrivacyViolation(f"the ledger has another upload for {charge} than the journal")
        self._size = -1  # if the next line fails, the file must be read again
        self.chain.append(charge.entries)
        self.uploads[charge.upload] = charge.place
        self.rounds |= {entry.first for entry in charge.entries if not entry.held_out}
        self.drawn += _count_events(charge.entries)
        self._size = self.chain.path.stat().st_size

    def check_not_overdrawn(self) -> None:
        """Raise a `PrivacyViolation` if the study has drawn more than was reserved; the ledger contains all of it."""
        self.refresh()
        if not self.drawn <= self.planned:
            raise PrivacyViolation("the study's ledger exceeds its reservation: nothing more leaves")

    def reconcile(self, charges: Iterable[Charge]) -> None:
        """Charge every upload of the journal that the ledger does not have.

        Raises
        ------
        CorruptFile
            If the ledger has an upload that the journal does not: an old journal was restored.
        """
        self.refresh()
        known = list(charges)
        if lost := self.places - {charge.place for charge in known}:
            first = Charge(min(lost, key=str), ())
            raise CorruptFile(f"the ledger has {first} and the journal does not: an old journal was restored")
        for charge in known:
            if charge.upload not in self.uploads:
                self.charge(charge)


def of_side(events: Mapping[Event, int], held_out: bool) -> EventsOfSides:
    """Return events of training records, or of held-out records, for comparison with a study's ledger."""
    return Counter({(event, held_out): count for event, count in events.items()})


def _count_events(entries: Iterable[ReleaseEntry]) -> EventsOfSides:
    counts: EventsOfSides = Counter()
    for entry in entries:
        counts[entry.event, bool(entry.held_out)] += entry.count
    return counts
