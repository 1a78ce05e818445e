"""Privacy loss distributions: the tightest accountant for Poisson samples, and for few Laplace releases."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias

from taciturn.privacy.accountants import ACCOUNTANTS, AccountantSpec, Counts
from taciturn.privacy.accountants.gdp import square
from taciturn.privacy.events import CONTINUOUS, Event, Noise, Sampled, exposure

KnownEvent: TypeAlias = Noise | Sampled

INTERVAL = 1e-4  # of the discretised loss, which is rounded up, so that the result is a bound at any interval
MOST = 10**6  # releases; more would take minutes
POINTS = 10**6  # the most points of the composed distribution; more would take minutes
SHARE, COARSEST = 1 / 12, 2e-3  # interval over a sampled release's standard deviation; finer ones gain below 0.1 %
LEAST = 0.1  # noise over sensitivity; below it epsilon is so large that the Renyi bound is good enough
POINTS_EACH = 15_000  # the most points of one sampled release, which cost more time than those of the sum


def pld(counts: Counts, delta: float) -> float | None:
    """Return epsilon by dp-accounting's privacy loss distributions.

    Returns
    -------
    float or None
        None if an event is not continuous noise or a Poisson sample, or if another accountant is known to be as tight.

    Examples
    --------
    >>> round(pld({Noise("laplace", 4.0, 1.0, 1.0): 4}, 1e-6), 2)
    1.0
    """
    events = _known(counts)
    if len(events) < len(counts) or not _worthwhile(events, sum(counts.values())):
        return None
    return pld_epsilon(counts, delta)


ACCOUNTANTS.register("pld")(AccountantSpec(pld, "privacy loss distributions (dp-accounting)", rank=5, tolerance=2e-4))


def pld_epsilon(counts: Counts, delta: float) -> float:
    """Return epsilon by PLD; Laplace events use their L1 and Gaussian ones their L2 sensitivity."""
    return float(_composed(frozenset((event, counts[event]) for event in _known(counts))).get_epsilon(delta))


def _known(events: Iterable[Event]) -> list[KnownEvent]:
    return [e for e in events if isinstance(e, Sampled) or (isinstance(e, Noise) and e.mechanism in CONTINUOUS)]


def _worthwhile(events: list[KnownEvent], count: int) -> bool:
    """Return whether PLD can win: gdp is exact for Gaussians, and zcdp is tighter for many small Laplace releases."""
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
    """Return a discretisation interval whose rounding adds little to the variance of one release of this kind."""
    if not isinstance(event, Sampled):
        return INTERVAL
    ratio = min(exposure(event), 10.0)
    deviation = event.rate * math.sqrt(math.expm1(ratio * ratio))
    largest = math.log1p(event.rate * math.expm1(10.0 * ratio + ratio * ratio / 2.0))
    return min(max(SHARE * deviation, largest / POINTS_EACH, INTERVAL / 10.0), COARSEST)


def _reach(event: KnownEvent, count: int) -> float:
    """Estimate the largest loss of `count` such events; Gaussians, which compose into one, count 0."""
    if isinstance(event, Sampled):
        ratio = exposure(event)
        return count * event.rate * square(ratio) / 2.0 + 10.0 * ratio
    return count * event.l1 / event.scale if event.mechanism == "laplace" else 0.0
