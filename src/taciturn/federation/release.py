"""The last look before anything leaves a site: only bytes that the journal knows, and no upload without its event."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from taciturn.errors import PrivacyViolation
from taciturn.federation import messages as wire
from taciturn.federation.departures import KEPT_BACK, LEFT
from taciturn.federation.journal import Journal
from taciturn.federation.messages import Answer, Reply
from taciturn.federation.policy import Site
from taciturn.federation.site_session import study_folder
from taciturn.runs.folder import RunFolder
from taciturn.runs.metrics_log import JsonlTail

LIMIT = 1 << 31


@dataclass
class Charges:
    """The uploads that a study's ledger has an event for; each look reads only the lines added since the last."""

    ledger: JsonlTail
    uploads: set[str] = field(default_factory=set)

    def cover(self, sha256: str) -> bool:
        """Whether the ledger has an event for the upload with this hash."""
        rows, anew = self.ledger.more()
        if anew:
            self.uploads.clear()
        self.uploads.update(row["upload"] for row in rows if row["kind"] == "release")
        return sha256 in self.uploads


@dataclass
class ReleaseGate:
    """What may leave a site; it knows nothing of how an answer was made, and believes only journal and ledger."""

    journal: Journal
    _charges: dict[str, Charges] = field(default_factory=dict)

    def check(self, site: Site, data: bytes) -> Reply:
        """What leaves; raise where these bytes must not. The journal learns what became of them.

        Bytes that pass are marked as left after the check. Where the process dies before that, they count as left:
        they may have.

        Raises
        ------
        PrivacyViolation
            With the reason.
        """
        sha256 = wire.digest(data)
        try:
            found = wire.reply(data, LIMIT)
            self._check(site, found, sha256)
        except wire.Malformed as error:
            self.journal.departed(sha256, KEPT_BACK)
            raise PrivacyViolation(f"these bytes are no answer of a site's: {error}") from error
        except PrivacyViolation:
            self.journal.departed(sha256, KEPT_BACK)
            raise
        self.journal.departed(sha256, LEFT)
        return found

    def _check(self, site: Site, found: Reply, sha256: str) -> None:
        if not self.journal.has_departed(sha256):
            raise PrivacyViolation("these bytes are not in the journal: they do not leave")
        if not isinstance(found, Answer):
            return
        if not np.isfinite(found.z).all():
            raise PrivacyViolation("this upload has numbers that are not finite: it does not leave")
        begun = self.journal.experiment(found.experiment)
        if begun is None or begun.closed or begun.broken:
            raise PrivacyViolation("this upload is of no study that is open here")
        if found.experiment not in self._charges:
            self._charges = {found.experiment: Charges(JsonlTail(_ledger(site, found.experiment)))}
        if not self._charges[found.experiment].cover(sha256):
            raise PrivacyViolation("this upload has no event in the ledger: it does not leave")


def _ledger(site: Site, experiment: str) -> Path:
    return RunFolder.open(study_folder(site, experiment)).ledger
