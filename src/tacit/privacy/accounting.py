"""What events add up to: every accountant that knows them is asked, and the tightest is named."""

from __future__ import annotations

import math
from typing import NamedTuple

from tacit.privacy.accountants import ACCOUNTANTS, Counts

EXPLAINED = {
    "pure": "pure composition: the epsilons of the releases added up (delta is 0)",
    "gdp": "Gaussian composition (closed form of Balle and Wang 2018)",
    "zcdp": "zero-concentrated DP (Bun and Steinke 2016) through dp-accounting's Renyi accountant",
    "rdp": "Renyi DP at many orders, of what docs/explanation/objective-perturbation.md proves for each release",
    "pld": "privacy loss distributions (dp-accounting)",
    "none": "no accountant gives a finite bound",
}


class Bound(NamedTuple):
    """An epsilon that holds, and the accountant that shows it."""

    epsilon: float
    accountant: str  # a key of EXPLAINED


def tightest(counts: Counts, delta: float) -> Bound:
    """The smallest epsilon any accountant gives at delta; infinite where none knows all events."""
    counts = {event: count for event, count in counts.items() if count}
    if not counts:
        return Bound(0.0, "pure")
    bounds = [Bound(epsilon, name) for name in ACCOUNTANTS if (epsilon := ACCOUNTANTS[name](counts, delta)) is not None]
    return min(bounds, default=Bound(math.inf, "none"))
