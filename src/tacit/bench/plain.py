"""The published algorithm written the plain way: numpy, float64, a loop over the agents, one run; nothing of Tacit's.

The letters are the paper's. Line numbers are those of its Algorithm 1, with E = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float64]
Pair: TypeAlias = tuple[Matrix, Matrix]  # x [I_p, J] and one-hot y [I_p, K] of one agent


def plain_rounds(shards: Sequence[Pair], epsilon: float = 1.0, beta: float = 1e-6) -> Callable[[], Matrix]:
    """Each call is one more round, and gives w."""
    rounds = _rounds(shards, epsilon, beta)
    return lambda: next(rounds)


def _rounds(shards: Sequence[Pair], epsilon: float, beta: float) -> Iterator[Matrix]:
    generator = np.random.default_rng(1)
    P, I = len(shards), sum(len(x) for x, _ in shards)  # noqa: E741
    J, K = shards[0][0].shape[1], shards[0][1].shape[1]
    z = [np.zeros((J, K)) for _ in shards]
    lam = [np.zeros((J, K)) for _ in shards]
    t = 0
    while True:
        t += 1
        rho, eta = 2.0 + 5.0 / epsilon, 1.0 / math.sqrt(t)
        w = sum((z[p] - lam[p] / rho for p in range(P)), np.zeros((J, K))) / P  # line 5
        for p, (x, y) in enumerate(shards):
            gradient, sensitivity = _gradient(x, y, z[p], I)
            gradient += 2.0 * beta / P * z[p]
            xi = generator.laplace(0.0, sensitivity / epsilon, (J, K)) if epsilon < math.inf else 0.0  # line 18
            z[p] = (rho * w + lam[p] - gradient - xi + z[p] / eta) / (rho + 1.0 / eta)  # line 19
            lam[p] = lam[p] + rho * (w - z[p])  # lines 8 and 23
        yield w


def _gradient(x: Matrix, y: Matrix, z: Matrix, records: int) -> tuple[Matrix, float]:
    """The gradient of one agent's records, and the largest 1-norm that one of them has in it (eq. Delta)."""
    scores = x @ z
    power = np.exp(scores - scores.max(axis=1, keepdims=True))
    residual = power / power.sum(axis=1, keepdims=True) - y
    norms = np.abs(x).sum(axis=1) * np.abs(residual).sum(axis=1)
    return x.T @ residual / records, float(norms.max()) / records
