"""The rounds that a study's ledger has at a site: each once, and none beyond what was set aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tacit.errors import InputError, PrivacyViolation
from tacit.federation.journal import Answered
from tacit.privacy.events import Event, event_of
from tacit.results.chain import Chain


@dataclass
class Charged:
    """What the ledger of one study has charged; it is read again whenever something else has touched it."""

    chain: Chain
    uploads: dict[str, int] = field(default_factory=dict)  # the hash of each upload -> its round
    rounds: set[int] = field(default_factory=set)  # those that were charged
    planned: Counter[Event] = field(default_factory=Counter)
    drawn: Counter[Event] = field(default_factory=Counter)
    _size: int = -1  # of the ledger when it was last read or written here

    def refresh(self) -> None:
        """Read the ledger, unless it is as this process left it."""
        size = self.chain.path.stat().st_size if self.chain.path.exists() else 0
        if size == self._size:
            return
        rows = self.chain.read()
        released = [row for row in rows if row["kind"] == "release"]
        self.uploads = {row["upload"]: row["first"] for row in released}
        self.rounds = set(self.uploads.values())
        self.drawn = _counted(released)
        self.planned = _counted(event for row in rows if row["kind"] == "plan" for event in row["events"])
        self._size = size

    def room_for(self, events: Counter[Event]) -> bool:
        """Whether the plan that was set aside covers these events too."""
        self.refresh()
        return self.drawn + events <= self.planned

    def charge(self, row: Answered) -> None:
        """Put a round's events into the ledger, unless they are there.

        A line whose head could not be kept (a full disk elsewhere) is in the ledger: it is not added again, and what it
        is about does not leave before the head is kept.
        """
        self.refresh()
        upload = row.events[0]["upload"]
        if upload in self.uploads:
            self.chain.keep_head()
            return
        if row.round in self.rounds:
            raise PrivacyViolation(f"the ledger has round {row.round} with another upload than the journal")
        self._size = -1  # whatever happens now, only the file knows
        self.chain.append(row.events)
        self.uploads[upload] = row.round
        self.rounds.add(row.round)
        self.drawn += _counted(row.events)
        self._size = self.chain.path.stat().st_size

    def refuse_overdrawn(self) -> None:
        """Refuse to let anything leave of a study that drew more than was set aside; the ledger has all of it."""
        self.refresh()
        if not self.drawn <= self.planned:
            raise PrivacyViolation("the ledger of the study has more than was set aside for it: nothing more leaves")

    def catch_up(self, rows: Iterable[Answered]) -> None:
        """Bring the ledger up to the journal; a journal that knows less is an old one."""
        self.refresh()
        found = list(rows)
        if lost := self.rounds - {row.round for row in found}:
            raise InputError(f"the ledger has round {min(lost)}, and the journal does not: an old journal was put back")
        for row in found:
            if row.events[0]["upload"] not in self.uploads:
                self.charge(row)


def _counted(rows: Iterable[dict[str, Any]]) -> Counter[Event]:
    found: Counter[Event] = Counter()
    for row in rows:
        found[event_of(row)] += row["count"]
    return found
