"""A coordinator that loses the upload of one site in every round of a secure sum, for `federation_speed`.

    python -m benchmarks.lossy_coordinator SITE [arguments of 'taciturn federation run']

The upload arrives and is dropped, so nothing is waited for. The site counts as connected again, and is invited before
the next round.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from taciturn.cli.command_line import run
from taciturn.federation import messages as wire
from taciturn.federation.exchange import SealedExchange

SITE = sys.argv[1]
request = SealedExchange.request


def lossy(self: SealedExchange, questions: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
    """Ask, and drop what the site uploads."""
    replies = dict(request(self, questions, seconds))
    data = questions.get(SITE, b"")
    if data and wire.message_kind(data) == wire.KINDS[wire.SumRoundRequest]:
        replies.pop(SITE, None)
        self._connected_at[SITE] = self._connected[SITE] = time.monotonic()
    return replies


if __name__ == "__main__":
    SealedExchange.request = lossy  # type: ignore[method-assign]
    sys.argv = ["taciturn", "federation", "run", *sys.argv[2:]]
    run()
