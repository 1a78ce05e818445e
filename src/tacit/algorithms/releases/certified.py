"""The certified release: per-record limits from public bounds, noise of a scale calibrated to them."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.algorithms.releases import Released
from tacit.arrays import in_precision_of
from tacit.privacy.mechanisms.calibrated import Calibrated
from tacit.privacy.noise import NoiseSource
from tacit.problems import Problem
from tacit.problems.limits import Limit
from tacit.types import Array, Shard


@dataclass(frozen=True, eq=False)
class CertifiedRelease:
    """(1/I) sum_i limit(x_i r_i^T) + (beta/P) r'(z) + xi: the regulariser is public, the sum moves by at most Delta."""

    limit: Limit
    mechanism: Calibrated

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> Released:
        """The limited gradient with its noise; rounded to the run's precision last, for a rounded sum moves further."""
        total = problem.passes.sums(problem.loss, z, shard, self.limit).total
        g = total / problem.records + problem.shrinkage(z)
        xi, event = self.mechanism.draw(update, z, noise)
        return Released(in_precision_of(g + xi, z), event, self.mechanism.magnitude)
