"""Pure composition: the epsilons of Laplace releases add up."""

from __future__ import annotations

import math

from tacit.privacy.accountants import ACCOUNTANTS, Counts
from tacit.privacy.events import Noise

LAPLACES = ("laplace", "discrete-laplace")


@ACCOUNTANTS.register("pure")
def pure(counts: Counts, delta: float) -> float | None:
    """epsilon = sum of Delta_1 / b; it holds with delta = 0, so with any."""
    parts = [
        count * event.l1 / event.scale if isinstance(event, Noise) and event.mechanism in LAPLACES else math.nan
        for event, count in counts.items()
    ]
    total = math.fsum(parts)
    return None if math.isnan(total) else total
