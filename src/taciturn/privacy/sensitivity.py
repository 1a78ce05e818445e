"""Sensitivity of a sum of clipped gradients, and the cost factor of hidden local updates: from public numbers only."""

from __future__ import annotations

import math
from typing import NamedTuple

from taciturn.errors import unknown_name

ADJACENCIES = {"add-remove": 1.0, "replace-one": 2.0}
"""Neighbours differ by one unit that is there or not, or by one unit whose records are others (it counts twice)."""


class Sensitivity(NamedTuple):
    """The largest change of (1/I) sum_i clip(x_i r_i^T) between neighbouring data sets."""

    l1: float
    l2: float


def sensitivity(
    clip_l1: float, clip_l2: float, total_records: int, adjacency: str, max_records: int = 1
) -> Sensitivity:
    """Delta = a m C / I: m records a unit, each clipped to C; a = 1 for add-remove, 2 for replace-one."""
    if adjacency not in ADJACENCIES:
        raise unknown_name("adjacency", adjacency, ADJACENCIES)
    factor = ADJACENCIES[adjacency] * max_records / total_records
    return Sensitivity(factor * clip_l1, factor * clip_l2)


def contraction(rho: float, eta: float) -> float:
    """c = (1/eta) / (rho + 1/eta), by which one linearised step brings two iterates closer when eta L <= 2."""
    return 1.0 / (1.0 + rho * eta)


def hidden_factor(c: float, updates: int) -> float:
    """(1+c)/(1-c) (1-c^E)/(1+c^E): how many releases E hidden updates are worth; at most E, and E where c = 1.

    Written as a sum that stays exact near c = 1: (1-c^E)/(1-c) = 1 + c + ... + c^(E-1).
    """
    partial = math.fsum(c**e for e in range(updates))
    return (1.0 + c) * partial / (1.0 + c**updates)
