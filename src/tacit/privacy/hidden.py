"""Hidden states: E noisy contractions, only the last iterate is seen (proof: docs/explanation/hidden-state.md)."""

from __future__ import annotations

import math


def contraction(rho: float, eta: float) -> float:
    """c = (1/eta) / (rho + 1/eta), by which one linearised step brings two iterates closer when eta L <= 2."""
    return 1.0 / (1.0 + rho * eta)


def hidden_factor(c: float, updates: int) -> float:
    """(1+c)/(1-c) (1-c^E)/(1+c^E): how many releases E hidden updates are worth; at most E, and E where c = 1.

    Written as a sum that stays exact near c = 1: (1-c^E)/(1-c) = 1 + c + ... + c^(E-1).
    """
    partial = math.fsum(c**e for e in range(updates))
    return (1.0 + c) * partial / (1.0 + c**updates)
