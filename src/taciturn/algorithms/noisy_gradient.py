"""Noisy gradients of an agent: with the paper's noise, with certified noise, or with hardened noise."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import in_precision_of, namespace, to_numpy
from taciturn.kernels.row_pass import PassOptions
from taciturn.objectives import Problem
from taciturn.objectives.clipping import Clipping, GradientClipping
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.mechanisms import Calibrated, LaplaceDataDependent
from taciturn.privacy.noise import NoiseSource
from taciturn.types import GRID, Array, Shard


class ReleasedGradient(NamedTuple):
    """A noisy gradient and its privacy event.

    Parameters
    ----------
    gradient : Array, [J, R, K]
        f'_p(z) + xi; from a `SummedGradient`, an agent's summand in int64.
    event : BatchEvent
        The privacy event.
    magnitude : Array, [R]
        Mean |xi|, measured or expected, in numpy: a diagnostic.
    """

    gradient: Array
    event: BatchEvent
    magnitude: Array


class NoisyGradient(Protocol):
    """Computes the noisy gradient of a local update.

    A method whose uploads depend on the records only through such gradients is certified by construction.
    """

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """Return the gradient of the shard's records at z [J, R, K], with the noise of local update number `update`."""


@dataclass(frozen=True, eq=False)
class PaperGradient:
    """f'_p(z) + xi with xi ~ Lap(0, Delta(D_p) / epsilon)  (eq. Laplace)."""

    mechanism: LaplaceDataDependent

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """Return the noise of line 18 and the gradient of line 19."""
        g, delta = problem.gradient(z, shard)  # Delta = max_i ||x_i r_i^T||_1 / I (eq. Delta, one record removed)
        xi, event = self.mechanism.draw(update, delta, z, noise)
        return ReleasedGradient(g + xi, event, to_numpy(namespace(xi).abs(xi).mean(axis=(0, 2))))


@dataclass(frozen=True, eq=False)
class CertifiedGradient:
    """(1/I) sum_i clip(x_i r_i^T) + (beta/P) r'(z) + xi; the sum has sensitivity Delta, the regulariser is public."""

    clipping: Clipping
    mechanism: Calibrated

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """Return the clipped gradient with noise. Rounding comes last; a rounded sum has a larger sensitivity."""
        total = problem.passes.sums(problem.loss, z, shard, self.clipping).total
        g = total / problem.records + problem.shrinkage(z)
        xi, event = self.mechanism.draw(update, z, noise)
        return ReleasedGradient(in_precision_of(g + xi, z), event, self.mechanism.magnitude)


EXACT = 2.0**53  # float64 represents all smaller integers
MAX_NOISE = 2.0**40  # the largest integer scale; samples then fit easily
BELOW = 1.0 - 2.0**-30  # keeps a clipped residual below its bound in spite of rounding
MAX_BITS = 24  # of a residual's fraction
MIN_STEP = -1000  # the smallest step of parameters, as a power of two; smaller values count as 0


@dataclass(frozen=True, eq=False)
class HardenedGradient:
    """(sum_i x_i r_i^T in integers + discrete noise) / (I GRID 2^bits) + (beta/P) r'(z).

    Parameters
    ----------
    clipping : GradientClipping
        The bound on what one record can contribute.
    mechanism : Calibrated
        With scales in the gradient's unit.
    records_max : int
        The declared number of records of one agent; public. An agent with more records uses all of them: leaving some
        out would let one added record push another one out, which moves the sum by two records.
    bits : int
        The bits of a residual's fraction, from public numbers only; see `IntegerGrid`.
    """

    clipping: GradientClipping
    mechanism: Calibrated
    records_max: int
    bits: int

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """Return the integer sum with its noise, in the gradient's unit, rounded to the run's precision last."""
        noisy = (self.integers(update, problem, z, shard, noise) / self.unit(problem)).astype(z.dtype)
        return ReleasedGradient(noisy + problem.shrinkage(z), self.mechanism.event, self.mechanism.magnitude)

    def integers(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> NDArray[np.int64]:
        """Return the sum over the shard's records with its discrete noise, in whole numbers and exact, [J, R, K]."""
        scale = self.mechanism.scale * self.unit(problem)
        xi = noise.integers(update, f"discrete-{self.mechanism.kind}", scale, z)
        return self.sum(problem, z, shard) + xi

    def unit(self, problem: Problem) -> float:
        """Return how many integers one unit of the gradient is: I GRID 2^bits."""
        return problem.records * GRID * 2.0**self.bits

    def sum(self, problem: Problem, z: Array, shard: Shard) -> NDArray[np.int64]:
        """Return sum_i x_i r_i^T on the integer grids, exactly, [J, R, K].

        Floating point adds as many records as it can add exactly, and whole numbers of 64 bits add those sums. They
        wrap around, which takes a thousand times the declared records and is arithmetic on a sum like any other.
        """
        integers, step = on_grid(z)
        clip = GradientClipping(GRID * self.clipping.l2.astype(np.float64), GRID * self.clipping.l1.astype(np.float64))
        clipping = IntegerResiduals(clip, step / GRID, 2.0**self.bits * BELOW)  # x is in units of 1/GRID
        with np.errstate(over="ignore", invalid="ignore"):  # a residual from a score beyond float64 counts as 0
            total = np.zeros(z.shape, np.int64)
            for part in self._exact_parts(shard):
                total += problem.passes.sums(problem.loss, integers, part.on_grid, clipping).total.astype(np.int64)
        return total

    def _exact_parts(self, shard: Shard) -> Iterator[Shard]:
        """Yield the records in blocks whose sums float64 represents exactly; as declared, a block in memory is one."""
        longest = float(self.clipping.l2.max()) * GRID * 2.0**self.bits  # of one record
        rows = max(1, int(EXACT / max(longest, 1.0)))
        for block in shard.blocks():
            if len(block.x) <= rows:
                yield block
            else:
                yield from (block.rows(slice(start, start + rows)) for start in range(0, len(block.x), rows))


@dataclass(frozen=True, eq=False)
class SummedGradient:
    """Hardened gradients whose integers are added over the agents before anyone sees them.

    An agent's noise is a share: the sum has enough of it, a single agent's integers do not. They must not be used, or
    shown, before they are added up.

    Parameters
    ----------
    hardened : HardenedGradient
        The release of one agent, with its share of the noise.
    """

    hardened: HardenedGradient

    @property
    def mechanism(self) -> Calibrated:
        """The noise of one agent."""
        return self.hardened.mechanism

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """Return an agent's summand: whole numbers (int64) without the regulariser, which `mean` adds once."""
        integers: Any = self.hardened.integers(update, problem, z, shard, noise)  # no Array: they are not floats yet
        return ReleasedGradient(integers, self.mechanism.event, self.mechanism.magnitude)

    def mean(self, total: NDArray[np.int64], problem: Problem, z: Array, agents: int, weight: float) -> Array:
        """Return the mean noisy gradient of all agents from the opened sum, rounded to the precision of z last.

        Parameters
        ----------
        total : array of int64, [J, R, K]
            The sum over the agents that answered.
        problem : Problem
            The learning problem.
        z : Array, [J, R, K]
            Where the gradients were taken.
        agents : int
            P, the number of all agents.
        weight : float
            By how much the sum stands for more agents than answered; see `sum_weight`.

        Returns
        -------
        Array, [J, R, K]
        """
        mean = (total * (weight / agents)) / self.hardened.unit(problem)
        noisy: Array = mean.astype(z.dtype) + problem.shrinkage(z)
        return noisy


@dataclass(frozen=True, eq=False)
class PooledGradient:
    """The mean of all agents' certified gradients, from one pass over all records and one draw of the summed noise.

    A sum of clipped gradients does not depend on who holds a record, and P draws of N(0, s^2) add up to one of
    N(0, P s^2). So a simulation that shows no single upload may take this for the P releases: the model has the same
    distribution, and every agent is charged the same event.

    Parameters
    ----------
    one : CertifiedGradient
        The release of one agent, with its share of the noise.
    agents : int
        P.
    """

    one: CertifiedGradient
    agents: int

    @property
    def mechanism(self) -> Calibrated:
        """The noise of one agent."""
        return self.one.mechanism

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """Return the mean gradient of the records of all agents, with the mean of their noise."""
        total = problem.passes.sums(problem.loss, z, shard, self.one.clipping).total
        g = total / (problem.records * self.agents) + problem.shrinkage(z)
        xi, event = self._mean_noise.draw(update, z, noise)
        return ReleasedGradient(in_precision_of(g + xi, z), event, self.mechanism.magnitude)

    @cached_property
    def _mean_noise(self) -> Calibrated:
        return replace(self.mechanism, share=self.mechanism.share / math.sqrt(self.agents))


def sum_weight(sizes: Sequence[int], answered: Collection[int]) -> float:
    """Return the declared records of all agents over those of the agents in a sum; exactly 1 if all are in it.

    Parameters
    ----------
    sizes : sequence of int, [P]
        The declared records of every agent; public.
    answered : collection of int
        The agents in the sum.

    Examples
    --------
    >>> sum_weight([100, 200, 300], [0, 1, 2]), sum_weight([100, 200, 300], [0, 1])
    (1.0, 2.0)
    """
    return sum(sizes) / sum(sizes[p] for p in answered)


def fraction_bits(records_max: int, clip: float, total_records: int, scale: float) -> int:
    """Return the bits that sums of clipped gradients and noise of this scale leave for a residual's fraction.

    The result may be too small or negative, because calibration tries scales of any size; planning refuses it.
    """
    sums = EXACT / max(records_max * clip * GRID, 1e-200)
    noise = MAX_NOISE / max(scale * total_records * GRID, 1e-200)
    return math.floor(math.log2(max(min(sums, noise, 2.0**MAX_BITS), 2.0**-1000)))


@dataclass(frozen=True, eq=False)
class IntegerResiduals:
    """Clipping for integer parameters: rescales the scores, and truncates clipped residuals to integers."""

    clip: GradientClipping
    unit: Array  # [R]  the value of one unit of an integer score
    factor: float

    def scores(self, scores: Array, shard: Shard) -> Array:
        """Return the scores in their true unit."""
        return scores * self.unit[:, None]

    def residual(self, residual: Array, shard: Shard) -> Array:
        """Return trunc(factor r)."""
        truncated: Array = np.trunc(self.clip.residual(residual, shard) * self.factor)
        return truncated

    def pass_options(self, shard: Shard) -> PassOptions:
        """Return the clip's options with the unit and the truncation."""
        return self.clip.pass_options(shard)._replace(unit=self.unit, cut=self.factor)


def on_grid(z: Array) -> tuple[Array, Array]:
    """Return z as integer multiples of a step, and the step of every run, [R], so that all scores are exact.

    The score of a record then does not depend on other records. For every bit pattern of z the integers are within
    EXACT / (2 GRID J), the step is a finite power of two, and values that are not finite become 0.
    """
    known = np.where(np.isfinite(z), z, 0.0).astype(np.float64)
    largest = np.abs(known).max(axis=(0, 2), initial=0.0)  # [R]
    fraction, exponent = np.frexp(np.where(largest > 0.0, largest, 1.0))
    power = exponent + np.frexp(2.0 * GRID * len(z) * fraction / EXACT)[1]  # 2^power >= 2 GRID J largest / EXACT
    power = np.maximum(power, MIN_STEP)
    return np.rint(np.ldexp(known, -power[:, None])), np.ldexp(1.0, power)
