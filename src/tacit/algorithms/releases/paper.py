"""The paper's release: the exact gradient with Laplace noise whose scale is read off the data."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.algorithms.releases import Released
from tacit.arrays import namespace, to_numpy
from tacit.privacy.mechanisms.laplace_data_dependent import LaplaceDataDependent
from tacit.privacy.noise import NoiseSource
from tacit.problems import Problem
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class PaperRelease:
    """f'_p(z) + xi with xi ~ Lap(0, Delta(D_p) / epsilon)  (eq. Laplace)."""

    mechanism: LaplaceDataDependent

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> Released:
        """Line 18 and the gradient of line 19."""
        g, delta = problem.gradient(z, shard)  # Delta = max_i ||x_i r_i^T||_1 / I (eq. Delta, one record removed)
        xi, event = self.mechanism.draw(update, delta, z, noise)
        return Released(g + xi, event, to_numpy(namespace(xi).abs(xi).mean(axis=(0, 2))))
