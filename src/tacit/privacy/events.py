"""Privacy events: what one noisy release of one agent stands for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from tacit.types import Array


@dataclass(frozen=True)
class Event:
    """One local update of one run at one agent."""

    mechanism: str
    epsilon: float = math.inf  # nominal, of this update alone
    delta: float = 0.0


NON_PRIVATE = Event("none")


@dataclass(frozen=True, eq=False)
class BatchEvent:
    """The events of one update in all runs of a batch; compared by identity, because there are millions of them."""

    runs: tuple[Event, ...]  # [R]


def nominal_event(mechanism: str, epsilon: Array, delta: float = 0.0) -> BatchEvent:
    """The events of one update with these nominal budgets [R]; inf is a release without noise."""
    budgets = [float(str(e)) for e in epsilon]  # 0.05 as it was given, not as single precision stores it
    return BatchEvent(tuple(NON_PRIVATE if math.isinf(e) else Event(mechanism, e, delta) for e in budgets))


@cache
def non_private(runs: int) -> BatchEvent:
    """The event of a release without noise, so that the total is infinite rather than absent."""
    return BatchEvent((NON_PRIVATE,) * runs)


class Draw(NamedTuple):
    """Noise together with the event it stands for: there is no noise without one."""

    xi: Array  # [J, R, K]
    event: BatchEvent
