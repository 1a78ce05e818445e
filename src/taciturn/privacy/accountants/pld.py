"""Privacy loss distributions: the tightest for Poisson samples, and for Laplace noise that moves few coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias

from taciturn.privacy.accountants import ACCOUNTANTS, Counts
from taciturn.privacy.accountants.gdp import square
from taciturn.privacy.events import CONTINUOUS, Event, Noise, Sampled

KnownEvent: TypeAlias = Noise | Sampled

INTERVAL = 1e-4  # of the discretised loss, which is rounded upwards: the result is a bound at any interval
MOST = 10**6  # releases; beyond them it would take minutes
POINTS = 10**6  # the most of them, so that thousands of large epsilons do not take minutes
SHARE, COARSEST = 1 / 12, 2e-3  # of a sampled release's standard deviation; finer intervals gain below 0.1 %
LEAST = 0.1  # noise over sensitivity; with less epsilon is a large number, and the Renyi bound says so soon enough
POINTS_EACH = 15_000  # of one sampled release, which take longer than those of the sum


@ACCOUNTANTS.register("pld")
def pld(counts: Counts, delta: float) -> float | None:
    """dp-accounting's PLD of continuous noise, where it could be the tightest."""
    events = _known(counts)
    if len(events) < len(counts) or not _worthwhile(events, sum(counts.values())):
        return None
    return pld_epsilon(counts, delta)


def pld_epsilon(counts: Counts, delta: float) -> float:
    """Laplace events by their L1, Gaussian ones by their L2 sensitivity, as dp-accounting defines its events."""
    return float(_composed(frozenset((event, counts[event]) for event in _known(counts))).get_epsilon(delta))


def _known(events: Iterable[Event]) -> list[KnownEvent]:
    return [e for e in events if isinstance(e, Sampled) or (isinstance(e, Noise) and e.mechanism in CONTINUOUS)]


def _worthwhile(events: list[KnownEvent], count: int) -> bool:
    """For Gaussians alone gdp is exact; many small Laplace releases behave as Gaussian ones, where zcdp wins by L2."""
    samples = [event for event in events if isinstance(event, Sampled)]
    if samples:
        return count <= MOST and all(event.scale > LEAST * event.l2 for event in samples)
    laplaces = [event for event in events if isinstance(event, Noise) and event.mechanism == "laplace"]
    small = all(event.l1 < 0.1 * event.scale and event.l2 < 0.8 * event.l1 for event in laplaces)
    return bool(laplaces) and not (small and count >= 100) and count <= MOST


@lru_cache(maxsize=16)
def _composed(counts: frozenset[tuple[KnownEvent, int]]) -> Any:
    from dp_accounting.pld import PLDAccountant

    finest = min((_interval(event) for event, _ in counts if event.mechanism != "gaussian"), default=INTERVAL)
    largest = math.fsum(_reach(event, n) for event, n in counts)
    accountant = PLDAccountant(value_discretization_interval=max(finest, largest / POINTS))
    for event, n in sorted(counts, key=repr):
        accountant.compose(_theirs(event), n)
    return accountant


def _theirs(event: KnownEvent) -> Any:
    import dp_accounting

    if event.mechanism == "laplace" and isinstance(event, Noise):
        return dp_accounting.LaplaceDpEvent(event.scale / event.l1)
    gaussian = dp_accounting.GaussianDpEvent(event.scale / event.l2)
    return dp_accounting.PoissonSampledDpEvent(event.rate, gaussian) if isinstance(event, Sampled) else gaussian


def _interval(event: KnownEvent) -> float:
    """Fine for one release of this kind; what rounding adds to the total variance is a share of the variance itself."""
    if not isinstance(event, Sampled):
        return INTERVAL
    ratio = min(event.l2 / event.scale, 10.0)
    deviation = event.rate * math.sqrt(math.expm1(ratio * ratio))
    largest = math.log1p(event.rate * math.expm1(10.0 * ratio + ratio * ratio / 2.0))
    return min(max(SHARE * deviation, largest / POINTS_EACH, INTERVAL / 10.0), COARSEST)


def _reach(event: KnownEvent, count: int) -> float:
    """About the largest loss there will be; Gaussians, which become one, are left out."""
    if isinstance(event, Sampled):
        ratio = event.l2 / event.scale
        return count * event.rate * square(ratio) / 2.0 + 10.0 * ratio
    return count * event.l1 / event.scale if event.mechanism == "laplace" else 0.0
