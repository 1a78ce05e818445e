"""How an agent's gradient is released: with the paper's noise, certified, or hardened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from taciturn.core.arrays import in_precision_of, namespace, to_numpy
from taciturn.errors import InputError
from taciturn.kernels.row_pass import PassOptions
from taciturn.objectives import Problem
from taciturn.objectives.clipping import Clipping, GradientClipping
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.mechanisms import Calibrated, LaplaceDataDependent
from taciturn.privacy.noise import NoiseSource
from taciturn.types import GRID, Array, Shard


class ReleasedGradient(NamedTuple):
    """A noisy gradient, and what it stands for."""

    gradient: Array  # [J, R, K]  f'_p(z) + xi
    event: BatchEvent
    magnitude: Array  # [R]  mean |xi|, measured or expected, in numpy: a diagnostic


class NoisyGradient(Protocol):
    """The noisy gradient of one local update; everything an agent sends is made of such gradients and public values."""

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """The gradient at z with noise for local update number `update` (from 0)."""
        ...


@dataclass(frozen=True, eq=False)
class PaperGradient:
    """f'_p(z) + xi with xi ~ Lap(0, Delta(D_p) / epsilon)  (eq. Laplace)."""

    mechanism: LaplaceDataDependent

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """Line 18 and the gradient of line 19."""
        g, delta = problem.gradient(z, shard)  # Delta = max_i ||x_i r_i^T||_1 / I (eq. Delta, one record removed)
        xi, event = self.mechanism.draw(update, delta, z, noise)
        return ReleasedGradient(g + xi, event, to_numpy(namespace(xi).abs(xi).mean(axis=(0, 2))))


@dataclass(frozen=True, eq=False)
class CertifiedGradient:
    """(1/I) sum_i limit(x_i r_i^T) + (beta/P) r'(z) + xi: the regulariser is public, the sum moves by at most Delta."""

    limit: Clipping
    mechanism: Calibrated

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """The limited gradient with its noise; rounded to the run's precision last, for a rounded sum moves further."""
        total = problem.passes.sums(problem.loss, z, shard, self.limit).total
        g = total / problem.records + problem.shrinkage(z)
        xi, event = self.mechanism.draw(update, z, noise)
        return ReleasedGradient(in_precision_of(g + xi, z), event, self.mechanism.magnitude)


EXACT = 2.0**53  # below it float64 holds every integer
LARGEST_NOISE = 2.0**40  # of the integer scale, so that a sample fits easily
BELOW = 1.0 - 2.0**-30  # keeps the rounding of a clipped residual on the safe side of its bound
MOST_BITS, FEWEST_BITS = 24, 8  # of a residual's fraction
LEAST_STEP = -1000  # of parameters, as a power of two: smaller ones count as 0


@dataclass(frozen=True, eq=False)
class HardenedGradient:
    """(sum_i x_i r_i^T in integers + discrete noise) / (I GRID 2^bits) + (beta/P) r'(z)."""

    limit: GradientClipping
    mechanism: Calibrated  # scales in the gradient's unit
    records_max: int  # no agent has more; public

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """The integer sum with its noise, back in the gradient's unit; rounded to the run's precision last."""
        bits = self.bits(problem)
        unit = problem.records * GRID * 2.0**bits
        xi = noise.integers(update, f"discrete-{self.mechanism.kind}", self.mechanism.scale * unit, z)
        noisy = ((self.sum(problem, z, shard, bits) + xi) / unit).astype(z.dtype)
        return ReleasedGradient(noisy + problem.shrinkage(z), self.mechanism.event, self.mechanism.magnitude)

    def sum(self, problem: Problem, z: Array, shard: Shard, bits: int) -> Array:
        """sum_i x_i r_i^T over the grids, exact, [J, R, K] of whole numbers."""
        if len(shard.x) > self.records_max:
            raise InputError(f"an agent has {len(shard.x)} records, but records-max declares {self.records_max}")
        whole, step = on_grid(z)
        with np.errstate(over="ignore", invalid="ignore"):  # a score beyond float64 makes a residual that counts as 0
            return self._sum(problem, whole, step, shard, bits)

    def _sum(self, problem: Problem, whole: Array, step: Array, shard: Shard, bits: int) -> Array:
        clip = GradientClipping(GRID * self.limit.l2.astype(np.float64), GRID * self.limit.l1.astype(np.float64))
        limit = WholeResiduals(clip, step / GRID, 2.0**bits * BELOW)  # x is in units of 1/GRID
        parts = (problem.passes.sums(problem.loss, whole, block.on_grid, limit) for block in shard.blocks())
        total: Array = np.sum([part.total for part in parts], axis=0)
        return total

    def bits(self, problem: Problem) -> int:
        """As fine as sums and noise allow: from public numbers only."""
        scales = self.mechanism.scale[self.mechanism.scale > 0.0]
        clip, most = float(self.limit.l2.max()), float(scales.max(initial=0.0))
        bits = fraction_bits(self.records_max, clip, problem.records, most)
        scales = scales * problem.records * GRID  # in units of 2^-bits
        if bits < FEWEST_BITS or float(scales.min(initial=1.0)) * 2.0**bits < 1.0:
            raise InputError(
                "hardened noise has no integers for a clip, noise-multiplier, records-max or total-records like this: "
                f"it has {bits} bits for a residual's fraction, and can use {FEWEST_BITS} to {MOST_BITS}"
            )
        return bits


def fraction_bits(records_max: int, clip: float, total_records: int, scale: float) -> int:
    """The bits of a residual's fraction: as many as sums of so many clipped gradients, and this noise, leave room for.

    Too few, even below zero, is for `HardenedRelease.bits` to refuse: a plan is compared at scales of any size.
    """
    sums = EXACT / max(records_max * clip * GRID, 1e-200)
    noise = LARGEST_NOISE / max(scale * total_records * GRID, 1e-200)
    return math.floor(math.log2(max(min(sums, noise, 2.0**MOST_BITS), 2.0**-1000)))


@dataclass(frozen=True, eq=False)
class WholeResiduals:
    """Residuals of clipped gradients, cut to whole numbers; the scores are put right first."""

    clip: GradientClipping
    unit: Array  # [R]  what a score of whole numbers is worth
    factor: float

    def scores(self, scores: Array, shard: Shard) -> Array:
        """In their own unit."""
        return scores * self.unit[:, None]

    def residual(self, residual: Array, shard: Shard) -> Array:
        """trunc(factor r)."""
        whole: Array = np.trunc(self.clip.residual(residual, shard) * self.factor)
        return whole

    def pass_options(self, shard: Shard) -> PassOptions:
        """The clip's, with the unit and the cut."""
        return self.clip.pass_options(shard)._replace(unit=self.unit, cut=self.factor)


def on_grid(z: Array) -> tuple[Array, Array]:
    """z in whole multiples of a step [R] that keeps all scores exact: no record's score depends on the others.

    For every bit pattern: whole numbers within EXACT / (2 GRID J), a finite power of two for the step, and 0 in the
    place of what is not finite.
    """
    known = np.where(np.isfinite(z), z, 0.0).astype(np.float64)
    largest = np.abs(known).max(axis=(0, 2), initial=0.0)  # of each run by itself, [R]
    fraction, exponent = np.frexp(np.where(largest > 0.0, largest, 1.0))
    power = exponent + np.frexp(2.0 * GRID * len(z) * fraction / EXACT)[1]  # 2^power >= 2 GRID J largest / EXACT
    power = np.maximum(power, LEAST_STEP)
    return np.rint(np.ldexp(known, -power[:, None])), np.ldexp(1.0, power)
