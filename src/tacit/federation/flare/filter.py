"""The last look before anything leaves: only bytes that the journal knows, and nothing beside them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from tacit.federation import wire
from tacit.federation.at_work import study_folder
from tacit.federation.departures import KEPT_BACK, LEFT
from tacit.federation.flare.names import PAYLOAD, SITE_VARIABLE
from tacit.federation.journal import Journal
from tacit.federation.messages import Answer, Reply
from tacit.federation.policy import Site, read_site
from tacit.results.folder import RunFolder

LIMIT = 1 << 31


class ReleaseFilter(Filter):
    """Refuses what is not a known reply, was not journaled, or is an upload that the ledger does not cover."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """The reply, rebuilt from its bytes alone."""
        checked = Shareable()
        code = shareable.get_return_code()
        data = shareable.get(PAYLOAD)
        if data is None:
            checked.set_return_code(code)  # an engine's own word that something failed: no content
            return checked
        check_release(Path(os.environ[SITE_VARIABLE]), data)
        checked[PAYLOAD] = data
        return checked


def check_release(path: Path, data: bytes) -> None:
    """Raise where these bytes must not leave; the journal learns what became of them.

    Bytes that pass are marked as left after the check. Where the process dies before that, they count as left: they may
    have.
    """
    site = read_site(path)
    found = wire.reply(data, LIMIT)
    with Journal.read(site.state) as journal:
        try:
            _check(site, journal, found, wire.digest(data))
        except BaseException:
            journal.departed(wire.digest(data), KEPT_BACK)
            raise
        journal.departed(wire.digest(data), LEFT)


def _check(site: Site, journal: Journal, found: Reply, sha256: str) -> None:
    if not journal.has_departed(sha256):
        raise PermissionError("these bytes are not in the journal: they do not leave")
    if isinstance(found, Answer):
        if not np.isfinite(found.z).all():
            raise PermissionError("this upload has numbers that are not finite: it does not leave")
        begun = journal.experiment(found.experiment)
        if begun is None or begun.closed or begun.broken:
            raise PermissionError("this upload is of no study that is open here")
        ledger = RunFolder.open(study_folder(site, found.experiment)).ledger.read_bytes()
        if f'"upload": "{sha256}"'.encode() not in ledger:
            raise PermissionError("this upload has no event in the ledger: it does not leave")
