"""Privacy loss distributions: the tightest for Laplace noise when a record moves few coordinates."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from tacit.privacy.accountants import ACCOUNTANTS, Counts
from tacit.privacy.events import CONTINUOUS, Noise

INTERVAL = 1e-4  # of the discretised loss, which is rounded upwards: the result is a bound at any interval
MOST = 10**6  # releases; beyond them it would take minutes
POINTS = 10**6  # the most of them, so that thousands of large epsilons do not take minutes


@ACCOUNTANTS.register("pld")
def pld(counts: Counts, delta: float) -> float | None:
    """dp-accounting's PLD of continuous noise, where it could be the tightest."""
    events = [event for event in counts if isinstance(event, Noise) and event.mechanism in CONTINUOUS]
    if len(events) < len(counts) or not _worthwhile(events, sum(counts.values())):
        return None
    return pld_epsilon(counts, delta)


def pld_epsilon(counts: Counts, delta: float) -> float:
    """Laplace events by their L1, Gaussian ones by their L2 sensitivity, as dp-accounting defines its events."""
    events = frozenset((event, n) for event, n in counts.items() if isinstance(event, Noise))
    return float(_composed(events).get_epsilon(delta))


def _worthwhile(events: list[Noise], count: int) -> bool:
    """For Gaussians alone gdp is exact; many small Laplace releases behave as Gaussian ones, where zcdp wins by L2."""
    laplaces = [event for event in events if event.mechanism == "laplace"]
    small = all(event.l1 < 0.1 * event.scale and event.l2 < 0.8 * event.l1 for event in laplaces)
    return bool(laplaces) and not (small and count >= 100) and count <= MOST


@lru_cache(maxsize=16)
def _composed(counts: frozenset[tuple[Noise, int]]) -> Any:
    import dp_accounting  # noqa: PLC0415  a second to import
    from dp_accounting.pld import PLDAccountant  # noqa: PLC0415

    largest = math.fsum(n * event.l1 / event.scale for event, n in counts if event.mechanism == "laplace")
    accountant = PLDAccountant(value_discretization_interval=max(INTERVAL, largest / POINTS))
    for event, n in sorted(counts, key=repr):
        one = (
            dp_accounting.LaplaceDpEvent(event.scale / event.l1)
            if event.mechanism == "laplace"
            else dp_accounting.GaussianDpEvent(event.scale / event.l2)
        )
        accountant.compose(one, n)
    return accountant
