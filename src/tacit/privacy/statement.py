"""What the paper mode's privacy is worth, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.privacy.ledger import nominal_sums

PAPER_HEADLINE = "No end-to-end guarantee: the total epsilon of this run is infinite."

BY_MECHANISM = {
    "laplace-data-dependent": (
        "The scale of the Laplace noise is read off the private records themselves, so the noise tells of them."
    ),
    "gaussian-published": (
        "outp's noise is the published code's: it takes a variance for a standard deviation, "
        "and no bound on a record stands behind it."
    ),
    "gaussian-classic": (
        "outp's noise follows the classic Gaussian formula, which holds for one release with epsilon at most 1; "
        "the releases are not added up."
    ),
    "none": "Runs without noise protect nobody: whoever sees what was sent can learn about single records.",
}


STEP_FROM_DATA = "The step size uses the smoothness of the private records, which was computed from them."


def statement(ledger: Sequence[Mapping[str, Any]], step_from_data: bool = False) -> dict[str, Any]:
    """The paper mode's statement, with what its ledger adds up to by basic composition."""
    sums = nominal_sums(ledger)
    used = {entry["mechanism"] for entry in ledger if entry["kind"] == "release"}
    private = {run: total for run, total in sums.items() if math.isfinite(total)}
    return {
        "headline": PAPER_HEADLINE,
        "good": False,
        "reasons": [
            "Epsilon is nominal and counts for one local update of one agent alone; a run makes many.",
            *(reason for mechanism, reason in BY_MECHANISM.items() if mechanism in used),
            *([STEP_FROM_DATA] if step_from_data else []),
            "Every party's records stay in its house; it sends parameters only, and the dual is never sent.",
            "Use this mode to study the method, not to release a model trained on records that must stay private.",
        ],
        "total_epsilon": math.inf,
        "nominal_sums": private,
        "without_noise": sorted(run for run in sums if run not in private),
    }
