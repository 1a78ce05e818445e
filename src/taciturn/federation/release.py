"""The release gate: the last check before bytes leave a site, based only on the journal and the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from taciturn.errors import PrivacyViolation
from taciturn.federation import messages as wire
from taciturn.federation.journal import KEPT_BACK, LEFT, Journal
from taciturn.federation.messages import Answer, MeasureAnswer, Reply, SumAnswer
from taciturn.federation.policy import Site
from taciturn.federation.site_session import study_folder
from taciturn.runs.folder import RunFolder
from taciturn.runs.metrics_log import JsonlTail

SIZE_LIMIT = 1 << 31  # bytes


@dataclass
class ChargedUploads:
    """The uploads that a study's ledger has an event for; only new lines of the ledger are read."""

    ledger: JsonlTail
    uploads: set[str] = field(default_factory=set)

    def __contains__(self, sha256: str) -> bool:
        """Return whether the ledger has an event for the upload with this hash."""
        rows, restarted = self.ledger.more()
        if restarted:
            self.uploads.clear()
        self.uploads.update(row["upload"] for row in rows if row["kind"] == "release")
        return sha256 in self.uploads


@dataclass
class ReleaseGate:
    """The gate of one site. It does not know how an answer was computed, and trusts only journal and ledger."""

    journal: Journal
    _charged: dict[str, ChargedUploads] = field(default_factory=dict)

    def check(self, site: Site, data: bytes) -> Reply:
        """Return the message if its bytes may leave, and record the outcome in the journal.

        Bytes that pass are marked as left after the check. If the process dies before that, they count as left.

        Parameters
        ----------
        site : Site
            The site.
        data : bytes
            The encoded message, before it is sealed.

        Returns
        -------
        Reply
            The decoded message.

        Raises
        ------
        PrivacyViolation
            If the bytes are not a reply, are not in the journal, or are an upload without an event in the ledger.
        """
        sha256 = wire.digest(data)
        try:
            reply = wire.decode_reply(data, SIZE_LIMIT)
            self._check_reply(site, reply, sha256)
        except (wire.Malformed, PrivacyViolation) as error:
            self.journal.settle_departure(sha256, KEPT_BACK)
            if isinstance(error, PrivacyViolation):
                raise
            raise PrivacyViolation(f"these bytes are not a site's reply: {error}") from error
        self.journal.settle_departure(sha256, LEFT)
        return reply

    def _check_reply(self, site: Site, reply: Reply, sha256: str) -> None:
        if not self.journal.has_departure(sha256):
            raise PrivacyViolation("these bytes are not in the journal: they do not leave")
        if not isinstance(reply, Answer | SumAnswer | MeasureAnswer):
            return
        if isinstance(reply, Answer) and not np.isfinite(reply.z).all():
            raise PrivacyViolation("this upload has values that are not finite: it does not leave")
        begun = self.journal.experiment(reply.experiment)
        if begun is None or begun.closed_at or begun.violated_at:
            raise PrivacyViolation("this upload belongs to no study that is open here")
        if isinstance(reply, SumAnswer) and reply.step != wire.UPLOAD:
            return
        if reply.experiment not in self._charged:
            ledger = RunFolder.open(study_folder(site, reply.experiment)).ledger
            self._charged = {reply.experiment: ChargedUploads(JsonlTail(ledger))}
        if sha256 not in self._charged[reply.experiment]:
            raise PrivacyViolation("this upload has no event in the ledger: it does not leave")
