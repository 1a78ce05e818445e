"""How far one unit of privacy can move the sum of clipped gradients: from public numbers, never from data."""

from __future__ import annotations

from typing import NamedTuple

from tacit.errors import no_such

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
        raise no_such("adjacency", adjacency, ADJACENCIES)
    factor = ADJACENCIES[adjacency] * max_records / total_records
    return Sensitivity(factor * clip_l1, factor * clip_l2)
