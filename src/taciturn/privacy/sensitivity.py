"""Sensitivity of a sum of clipped gradients, and the cost factor of hidden local updates, from public numbers only."""

from __future__ import annotations

import math
from typing import NamedTuple

from taciturn.errors import unknown_name

ADJACENCIES = {"add-remove": 1.0, "replace-one": 2.0}
"""How many times a unit counts: neighbouring data sets differ by adding or removing one unit, or by replacing one."""


class Sensitivity(NamedTuple):
    """The largest change of (1/I) sum_i clip(x_i r_i^T) between neighbouring data sets.

    Parameters
    ----------
    l1, l2 : float
        The bound in the L1 and in the L2 norm over all coordinates, in the gradient's unit.
    """

    l1: float
    l2: float


def gradient_sensitivity(
    clip_l1: float, clip_l2: float, total_records: int, adjacency: str, max_records: int = 1
) -> Sensitivity:
    """Return Delta = a m C / I, the sensitivity of a mean of clipped gradients.

    Parameters
    ----------
    clip_l1, clip_l2 : float
        C: the bounds on the gradient of one record.
    total_records : int
        I: the records of all agents; public.
    adjacency : str
        A key of `ADJACENCIES`: a is 1 for add-remove and 2 for replace-one.
    max_records : int, default 1
        m: the records that one protected unit contributes at most.

    Returns
    -------
    Sensitivity

    Raises
    ------
    InputError
        If the adjacency is unknown.

    Examples
    --------
    >>> gradient_sensitivity(math.inf, 0.5, 100, "replace-one", max_records=3)
    Sensitivity(l1=inf, l2=0.03)
    """
    if adjacency not in ADJACENCIES:
        raise unknown_name("adjacency", adjacency, ADJACENCIES)
    factor = ADJACENCIES[adjacency] * max_records / total_records
    return Sensitivity(factor * clip_l1, factor * clip_l2)


def contraction(rho: float, eta: float) -> float:
    """Return c = (1/eta) / (rho + 1/eta), the factor by which a linearised step shrinks distances if eta L <= 2.

    >>> contraction(1.0, 1.0)
    0.5
    """
    return 1.0 / (1.0 + rho * eta)


def hidden_factor(c: float, updates: int) -> float:
    """Return (1+c)/(1-c) (1-c^E)/(1+c^E): how many releases E hidden updates cost.

    The factor is at most E, with equality at c = 1. It is computed as a sum that stays exact near c = 1, where
    (1-c^E)/(1-c) = 1 + c + ... + c^(E-1).

    Parameters
    ----------
    c : float
        The contraction of one noiseless update.
    updates : int
        E, the local updates of a round.

    Returns
    -------
    float

    Examples
    --------
    >>> hidden_factor(1.0, 10), round(hidden_factor(0.5, 10), 4)
    (10.0, 2.9941)
    """
    partial = math.fsum(c**e for e in range(updates))
    return (1.0 + c) * partial / (1.0 + c**updates)
