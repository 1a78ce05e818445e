"""What a run's privacy is worth, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tacit.privacy.ledger import nominal_sums

PAPER_HEADLINE = "No end-to-end guarantee: the total epsilon of this run is infinite."

PAPER_REASONS = (
    "Epsilon is nominal and counts for one local update of one agent alone; a run makes many.",
    "The scale of the Laplace noise is read off the private records themselves, so the noise tells of them.",
    "Every party's records stay in its house; what it sends is its noisy parameters, and the dual is never sent.",
    "Use this mode to study the method, not to release a model trained on records that must stay private.",
)


def statement(ledger: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The paper mode's statement, with what its ledger adds up to by basic composition."""
    sums = nominal_sums(ledger)
    private = {run: total for run, total in sums.items() if math.isfinite(total)}
    return {
        "headline": PAPER_HEADLINE,
        "reasons": PAPER_REASONS,
        "total_epsilon": math.inf,
        "nominal_sums": private,
        "without_noise": sorted(run for run in sums if run not in private),
    }
