"""The last look before anything leaves: only bytes that the journal knows, and nothing beside them."""

from __future__ import annotations

import os
from pathlib import Path

from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from tacit.federation import wire
from tacit.federation.at_work import study_folder
from tacit.federation.flare.names import PAYLOAD, SITE_VARIABLE
from tacit.federation.journal import Journal
from tacit.federation.messages import Answer
from tacit.federation.policy import read_site
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
    """Raise where these bytes must not leave."""
    site = read_site(path)
    found = wire.reply(data, LIMIT)
    with Journal.read(site.state) as journal:
        if not journal.has_departed(wire.digest(data)):
            raise PermissionError("these bytes are not in the journal: they do not leave")
        if isinstance(found, Answer):
            begun = journal.experiment(found.experiment)
            if begun is None or begun.closed:
                raise PermissionError("this upload is of no study that is open here")
            ledger = RunFolder.open(study_folder(site, found.experiment)).ledger.read_bytes()
            if f'"upload": "{wire.digest(data)}"'.encode() not in ledger:
                raise PermissionError("this upload has no event in the ledger: it does not leave")
