"""Additive models of tables: noisy one-way counts first, then noisy gradient descent in the coordinates they give.

The first rounds release how often each level of each column occurs. A column's levels are then recoded, by public
arithmetic on the noisy counts: ordered levels cumulatively, with steps at the column's quantiles, and other levels as
deviations from their frequencies. In these coordinates every record has about the same norm, neighbouring levels share
their evidence, and gradient descent with momentum needs few rounds. A record is in one level of every column, so a
release of all counts has the sensitivity of one gradient, and every round has the same privacy event. Counts are of
records, whatever their weights; the weights of records are in the gradients.

Where there are two classes, the intercept of a record is counted as negative for the first of them, times the record's
weight. So the counts also hold the difference between the classes, and training starts at a constant that predicts it.

Where the label is a number, the first round releases a histogram of it instead. From it come a centre and a spread,
and the model is trained on (y - centre) / spread. So the clip is in units of the actual labels, not of the range that
was declared for them. A record is in one bin, so this release, too, has the sensitivity of one gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.base import (
    ALGORITHMS,
    Agent,
    AlgorithmConfig,
    AlgorithmSpec,
    AveragingServer,
    S,
    Upload,
)
from taciturn.algorithms.curve_noise import (
    DRAWS,
    WIDEST,
    CurveNoise,
    Descent,
    ReleasedColumn,
    loss_curvature,
)
from taciturn.algorithms.gradient_at_model import GradientAtModel
from taciturn.algorithms.noisy_gradient import NoisyGradient, PooledGradient, ReleasedGradient, SummedGradient
from taciturn.algorithms.schedules import MomentumStep, Schedule
from taciturn.algorithms.server import FullState, Received, Server
from taciturn.core.arrays import double, empty_beside, in_precision_of, release_memory, row_blocks
from taciturn.errors import InputError, MissedRound
from taciturn.objectives import Problem
from taciturn.objectives.constraints import Unconstrained
from taciturn.objectives.losses import Softmax, Squared
from taciturn.privacy.mechanisms import Calibrated
from taciturn.privacy.noise import NoiseSource
from taciturn.types import GRID, Array, ColumnBlock, Shard, slices

COUNT_SHARE = 0.05  # of the rounds, which release counts
MOMENTUM = 0.9
QUANTILES = 64  # steps of an ordered column
EVEN_SHARE = 0.1  # of a column's weight that is spread over all its levels
SMOOTHING = 0.02  # of the frequencies, towards equal ones
ORDERED_WEIGHT = 1.5  # of an ordered column's coordinates
CONSTANT_WEIGHT = 0.7  # of the constant, over that of a column
FINE = 2.0**20  # steps per unit of a coordinate
LABEL_BINS = 64  # of the histogram of a number; they are narrow near both ends of its range
LABEL_END = 2.0**-10  # of the range: about the width of the outermost bins
SIGNIFICANT = 3.0  # standard deviations of its noise by which a bin stands out, and more where there are many bins
RAREST = 2.0**-10  # the smallest share of a class from which training starts
FEWEST, ROUGHLY = 2.0**-10, 0.25  # records for each declared one; a difference that does not matter
MAX_HALVINGS = 10  # of the range, to the smallest spread
ROWS = 4096  # rows recoded at a time


def count_rounds(rounds: int, numbers: bool = False) -> int:
    """Return how many of the rounds release counts, the first of them of the label if it is a number.

    Examples
    --------
    >>> count_rounds(100), count_rounds(3), count_rounds(3, numbers=True)
    (5, 1, 2)
    """
    return min(max(1 + numbers, round(COUNT_SHARE * rounds)), rounds - 1)


def label_quantiles(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the labels in [0, 1] below which given shares of the bins lie: bins are narrow near 0 and 1.

    Examples
    --------
    >>> label_quantiles(np.linspace(0.0, 1.0, 5)).round(3).tolist()
    [0.0, 0.029, 0.5, 0.971, 1.0]
    """
    reach = math.log((1.0 + LABEL_END) / LABEL_END)
    labels = (1.0 + 2.0 * LABEL_END) / (1.0 + np.exp(reach * (1.0 - 2.0 * shares))) - LABEL_END
    found: NDArray[np.float64] = np.abs(np.rint(FINE * labels)) / FINE  # the same on every machine
    return found


class LabelScale(NamedTuple):
    """The unit in which a number is trained: (y - centre) / spread, with y and both in shares of the declared range."""

    centre: float
    spread: float  # a power of two

    @classmethod
    def from_histogram(cls, shares: NDArray[np.float64], noise: float) -> LabelScale:
        """Return the scale for the noisy shares of the bins, whose noise has a known standard deviation.

        A bin counts if it stands out of the noise. What is left is merged, bin with neighbour, until it does.
        """
        left = np.nan_to_num(shares, nan=0.0, posinf=0.0, neginf=0.0)
        ends = np.linspace(0.0, 1.0, len(left) + 1)
        masses, middles, widths = [], [], []
        while True:
            clear = left > noise * math.sqrt(2.0 * math.log(len(left)) + SIGNIFICANT**2)
            inner = label_quantiles(ends[:-1] + np.diff(ends) * np.array([[0.25], [0.5], [0.75]]))
            masses += left[clear].tolist()
            middles += inner[1, clear].tolist()
            widths += (2.0 * (inner[2] - inner[0]))[clear].tolist()
            if len(left) == 1:
                break
            left = np.add.reduceat(np.where(clear, 0.0, left), range(0, len(left), 2))
            ends, noise = np.append(ends[:-1:2], 1.0), math.sqrt(2.0) * noise
        if not masses:
            return UNKNOWN_SCALE
        weights, middle = np.array(masses) / sum(masses), np.array(middles)
        centre = float(weights @ middle)
        variance = float(weights @ ((middle - centre) ** 2 + np.array(widths) ** 2 / 12.0))
        halvings = min(MAX_HALVINGS, max(0, round(-math.log2(variance) / 2.0)))
        return cls(min(centre, 1.0 - LABEL_END), 2.0**-halvings)

    @classmethod
    def from_statistic(cls, value: float) -> LabelScale:
        """Return the scale that a statistic stands for; any number stands for one."""
        if not 0.0 <= value < MAX_HALVINGS + 1.0:
            return UNKNOWN_SCALE
        return cls(value % 1.0, 2.0 ** -math.floor(value))

    @property
    def statistic(self) -> float:
        """One number for both: how often the spread halves the range, plus the centre."""
        return self.centre - math.log2(self.spread)

    def labels(self, y: Array) -> Array:
        """Return labels in this unit."""
        scaled: Array = ((y - self.centre) / self.spread).astype(y.dtype)
        return scaled


UNKNOWN_SCALE = LabelScale(0.5, 0.25)


class Coordinates(NamedTuple):
    """How the features of a record are recoded: block by block, x [n, J] -> [n, J].

    Parameters
    ----------
    blocks : tuple of array, [width, width]
        The recoding of each column's levels, in multiples of 1/FINE; a row for each level.
    level : float
        The feature of a record's level: 1 over the root of the number of columns, times the map's share.
    constant : float
        The last coordinate; 0 without an intercept.
    intercept : float
        The last feature.
    """

    blocks: tuple[NDArray[np.float64], ...]
    level: float
    constant: float
    intercept: float

    @property
    def columns(self) -> list[slice]:
        """Where the features of each block are."""
        return slices(map(len, self.blocks))

    def recode(self, x: Array) -> Array:
        """Return the coordinates of records; each depends on its own record only, to the bit.

        Sums are of integers below 2^53, so they are exact in every order.
        """
        found = empty_beside(x)
        for rows in row_blocks(len(x), x[:1].nbytes, ROWS):
            for own, block in zip(self.columns, self.blocks, strict=True):
                levels = np.rint(np.asarray(x[rows, own], np.float64) * (GRID / self.level))
                found[rows, own] = (levels @ (FINE * block)) / (GRID * FINE)
            if self.intercept:
                found[rows, -1] = self.constant
            release_memory(x[rows])
            release_memory(found[rows])
        return found

    def coefficients(self, w: Array) -> Array:
        """Return parameters [J, ...] of the coordinates as those of the features."""
        return self._by_block(self.blocks, w)

    def pulled_back(self, gradient: Array) -> Array:
        """Return a gradient for the features' parameters, [J, ...], as one for the coordinates' parameters."""
        return self._by_block([block.T for block in self.blocks], gradient)

    def _by_block(self, blocks: Sequence[NDArray[np.float64]], values: Array) -> Array:
        found = np.zeros_like(values)
        for own, block in zip(self.columns, blocks, strict=True):
            found[own] = np.tensordot(block / self.level, values[own], axes=1)
        if self.intercept:
            found[-1] = values[-1] * (self.constant / self.intercept)
        return found


def coordinates(frequencies: NDArray[np.float64], blocks: tuple[ColumnBlock, ...], intercept: bool) -> Coordinates:
    """Return the coordinates for estimated frequencies of all levels, [J without the intercept].

    They are valid for any finite numbers: a hostile server can make a model worse, not a record's bound larger.
    """
    share, parts, total = 1.0 / math.sqrt(1.0 + intercept), [], 0.0
    for block, columns in zip(blocks, slices(block.width for block in blocks), strict=True):
        own = _distribution(frequencies[columns])
        part = _ordered(own, block.missing) if block.kind == "ordered" else np.eye(len(own)) - own
        total += float(own @ (part**2).sum(axis=1))
        parts.append(part)
    total = max(total, 1e-6)  # of constant columns
    constant = CONSTANT_WEIGHT * math.sqrt(total / len(blocks)) if intercept else 0.0
    scale = 1.0 / math.sqrt(total + constant**2)
    fine = tuple(np.rint(FINE * np.clip(scale * part, -1.0, 1.0)) / FINE for part in parts)  # as features are bounded
    return Coordinates(fine, share / math.sqrt(len(blocks)), min(1.0, scale * constant), share if intercept else 0.0)


@lru_cache(maxsize=1)
def _coordinates(frequencies: bytes, blocks: tuple[ColumnBlock, ...], intercept: bool) -> Coordinates:
    return coordinates(np.frombuffer(frequencies), blocks, intercept)


def _distribution(frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return noisy frequencies as probabilities, none of which is 0."""
    positive = np.clip(np.nan_to_num(frequencies, nan=0.0), 0.0, 1.0)
    total = positive.sum()
    shares = positive / total if total > 0.0 else np.full(len(positive), 1.0 / len(positive))
    found: NDArray[np.float64] = (1.0 - SMOOTHING) * shares + SMOOTHING / len(shares)
    return found


def _ordered(own: NDArray[np.float64], missing: bool) -> NDArray[np.float64]:
    """Return the recoding of ordered levels: at each step, whether the level is above it, weighted and centred."""
    levels = len(own) - missing
    part = np.zeros((len(own), len(own)))
    if levels > 1:
        below = np.cumsum(own[:levels] / own[:levels].sum())[:-1]  # [levels - 1]  the mass below each step
        steps = np.unique(np.searchsorted(below, (np.arange(QUANTILES) + 0.5) / QUANTILES))
        steps = steps[steps < levels - 1]
        weights = np.full(levels - 1, EVEN_SHARE if len(steps) else 1.0) / (levels - 1)
        weights[steps] += (1.0 - EVEN_SHARE) / max(1, len(steps))
        above = np.arange(levels)[:, None] > np.arange(levels - 1)
        part[:levels, : levels - 1] = 2.0 * np.sqrt(weights) * (above - (1.0 - below))
    if missing:
        part[:, -1] = -own[-1]
        part[-1, -1] += 1.0
    return ORDERED_WEIGHT * part


@dataclass(frozen=True)
class _Counting(Squared):
    """A loss whose residual is the same for every record, so that its gradient is the sum of the records."""

    value_of_each: float = 0.0

    def residual(self, scores: Array, y: Array) -> Array:
        """Return the constant."""
        return np.full_like(scores, self.value_of_each)


def _label_bins(parameters: int) -> int:
    """Return the number of bins of the label's histogram, which has to fit into an upload."""
    return min(LABEL_BINS, parameters)


_RECODED: WeakKeyDictionary[Shard, tuple[bytes, Shard]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Additive(GradientAtModel, AveragingServer):
    """Counts, then w⁺ = w + beta (w - w_before) - (eta/P) sum_p (f'_p(w) + xi_p) in the counts' coordinates.

    The server keeps the noisy frequencies as its statistics, and sends them in the first round after the counts. Agents
    keep them in place of a dual.
    """

    problem: Problem
    rho: Schedule
    eta: Schedule
    release: NoisyGradient
    blocks: tuple[ColumnBlock, ...]
    rounds: int
    clip: float
    closing: bool = False

    @cached_property
    def counting(self) -> int:
        """The number of rounds that release counts."""
        return count_rounds(self.rounds, self.numbers)

    @property
    def numbers(self) -> bool:
        """Whether residuals have no bound, as those of numbers under the squared loss."""
        return not self.problem.is_bounded

    def label_scale(self, statistics: Array) -> LabelScale | None:
        """Return the unit of the labels; None where they are trained as they are."""
        return LabelScale.from_statistic(float(statistics[-1, 0, 0])) if self._has_scale(statistics) else None

    def server_send(self, t: int, server: S) -> tuple[S, Array]:
        """Return zeros while counting, then the statistics once, then the model."""
        if t == self.counting + 1 and server.statistics is not None:
            return server, in_precision_of(server.statistics, self.rho(t))
        return server, self._mean(server.z, server, t)

    def gradient_point(self, t: int, w: Array) -> Array:
        """Return zeros while counting, the start in the round in which w is the statistics, and then w."""
        if t <= self.counting:
            return np.zeros_like(w)
        return self._start(w) if t == self.counting + 1 else w

    def _start(self, statistics: Array) -> Array:
        """Return the model before the first gradient: a constant that predicts the released shares of two classes."""
        start = np.zeros_like(statistics)
        if self._has_shares(statistics):
            constant, present = self.coordinates(statistics).constant, self._present(statistics)
            unit = present * self._intercept_unit(statistics)
            excess = self.problem.agents * float(np.nan_to_num(statistics[-1].sum())) / unit
            noise = self._excess_deviation(statistics) / present
            largest = min(max(0.0, 1.0 - 2.0 * noise), 1.0 - 2.0 * RAREST)
            odds = 2.0 * math.atanh(min(max(excess, -largest), largest))
            start[-1] = np.rint(FINE * odds / constant * np.array([-0.5, 0.5])) / FINE
        return start

    def shared_state(self, t: int, agent: Agent) -> Array | None:
        """Return the statistics in the rounds after the one in which they were sent as w."""
        return agent.lam if t > self.counting + 1 else None

    def local_gradient(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """Release counts, or a gradient in the counts' coordinates.

        Raises
        ------
        MissedRound
            If the agent missed the round in which the statistics were sent.
        """
        at = self.gradient_point(t, w)
        if t <= self.counting:
            level = self.clip / math.sqrt(w.shape[-1])
            counting = replace(self.problem, loss=_Counting(value_of_each=level))
            return self.release(0, counting, at, self._counted_records(t, w, shard).unweighted, noise)
        statistics = self._statistics(t, w, agent)
        if not statistics.any():
            raise MissedRound(f"this agent missed round {self.counting + 1}, in which the columns' counts were sent")
        return self.release(0, self.problem, at, self._recoded(shard, statistics), noise)

    def local_step(self, t: int, w: Array, agent: Agent, noisy: Array) -> tuple[Agent, Upload]:
        """Send the counts, or z = w - eta (g + xi)."""
        if t <= self.counting:
            return agent, Upload(noisy)
        z = self.problem.feasible.project(self.gradient_point(t, w) - self.eta(t) * noisy)
        return Agent(z, self._statistics(t, w, agent)), Upload(z)

    def _statistics(self, t: int, w: Array, agent: Agent) -> Array:
        """Return the statistics, which are sent once as w, and then kept in place of a dual."""
        return w if t == self.counting + 1 else agent.lam

    def server_receive(self, t: int, w: Array, server: S, received: Received) -> S:
        """Add up the counts, or take a step with momentum from the mean of the uploads."""
        mean = received.total.z / received.answered
        if t <= self.counting:
            return server.with_statistics(self._counted(t, mean, server.statistics, received.answered))
        now = double(self.gradient_point(t, w))
        before = now if t == self.counting + 1 else self._mean(double(server.lam), server, t)
        return server.with_common(mean + MOMENTUM * (now - before), now)

    def _counted(self, t: int, mean: Array, before: Array | None, answered: int) -> Array:
        """Return the statistics after a round of counts: their mean, with the label's scale as the last entry."""
        scaled = self._has_scale(mean)
        if scaled and t == 1:
            bins, agents = _label_bins(len(mean)), self.problem.agents
            shares = agents / self.clip * np.asarray(mean[:bins, 0, 0], np.float64)
            together = isinstance(self.release, PooledGradient | SummedGradient)  # the upload is a mean over all agents
            noise = agents / self.clip * self._deviation / math.sqrt(agents if together else answered)
            found = np.zeros_like(mean)
            found[-1] = LabelScale.from_histogram(shares, noise).statistic
            return found
        part = mean / (self.counting - scaled)
        if scaled:
            part[-1] = 0.0
        return part if before is None else before + part

    def _has_scale(self, like: Array) -> bool:
        """Return whether labels are trained in units of their spread: numbers, with an intercept and enough rounds."""
        return self.numbers and self.counting > 1 and like.shape[-1] == 1 and len(like) > self._width

    def _has_shares(self, like: Array) -> bool:
        """Return whether the counts of the intercept are those of two classes, for a loss whose scores are log-odds."""
        return isinstance(self.problem.loss, Softmax) and like.shape[-1] == 2 and len(like) > self._width

    def _intercept_unit(self, statistics: Array) -> float:
        """Return what a record adds to the statistics of the intercept, summed over the outputs."""
        return self._count_unit(statistics) * math.sqrt(len(self.blocks))

    def _excess_deviation(self, statistics: Array) -> float:
        """Return the standard deviation of the noise in how much more records one class has than the other."""
        counted = math.sqrt(statistics.shape[-1] / self.counting / self.problem.agents)
        return self.problem.agents * self._deviation * counted / self._intercept_unit(statistics)

    def _present(self, statistics: Array) -> float:
        """Return how many records there are for each declared one: 1, unless the released counts say otherwise."""
        found = float(np.nan_to_num(self._frequencies(statistics).sum())) / len(self.blocks)
        everyone = np.full(self.counting, self.problem.agents, np.float64)
        noise = self._frequency_deviation(statistics, everyone) * math.sqrt(self._width) / len(self.blocks)
        return min(max(found, FEWEST), 1.0 / FEWEST) if abs(found - 1.0) > SIGNIFICANT * noise + ROUGHLY else 1.0

    def _counted_records(self, t: int, w: Array, shard: Shard) -> Shard:
        """Return the records whose features are added up in a round of counts."""
        if t == 1 and self._has_scale(w):
            return self._in_label_bins(shard, w)
        return self._signed(shard) if self._has_shares(w) else shard

    def _signed(self, shard: Shard) -> Shard:
        """Return the records with an intercept that is negative for the first of two classes, times its weight.

        Without the sign the sum of the intercepts would be the number of records, which the other counts tell.
        """
        known = _RECODED.get(shard)
        if known is None or known[0] != b"signed":
            x = empty_beside(shard.x)
            for rows in row_blocks(len(x), x[:1].nbytes, ROWS):
                part = shard.rows(rows)
                x[rows] = part.x
                x[rows, -1] *= part.weighted(part.y[:, 1] - part.y[:, 0])
                release_memory(x[rows])
                release_memory(part.x)
                release_memory(part.y)
            known = b"signed", shard.with_features(x)
            _RECODED[shard] = known
        return known[1]

    def _in_label_bins(self, shard: Shard, w: Array) -> Shard:
        """Return the records with the bin of their label as their only feature, so that their sum is a histogram."""
        edges = label_quantiles(np.linspace(0.0, 1.0, _label_bins(len(w)) + 1))[1:-1]
        bins = np.searchsorted(edges, shard.y[:, 0], side="right")
        x = empty_beside(shard.x)
        for rows in row_blocks(len(x), x[:1].nbytes, ROWS):
            x[rows] = bins[rows, None] == np.arange(len(w))
            release_memory(x[rows])
        return shard.with_features(x)

    def requires_all(self, t: int) -> bool:
        """Return whether the statistics are sent, without which an agent cannot continue."""
        return t == self.counting + 1

    def model(self, t: int, w: Array, server: Server) -> Array:
        """Return the model after the round, in the counts' coordinates."""
        return self._mean(server.z, server, t)

    def coefficients(self, model: Array, server: Server) -> Array:
        """Return the model as parameters of the features."""
        statistics = server.statistics
        if statistics is None:
            return model
        code, scale = self.coordinates(statistics), self.label_scale(statistics)
        found = code.coefficients(model)
        if scale is not None:
            found = found * scale.spread
            found[-1] += scale.centre / code.intercept
        return found

    def coordinates(self, statistics: Array) -> Coordinates:
        """Return the coordinates that the released statistics [J, 1, K] give; the last ones are kept."""
        frequencies = self._frequencies(statistics)
        return _coordinates(frequencies.tobytes(), self.blocks, len(statistics) > self._width)

    def curve_noise(
        self,
        w: Array,
        statistics: Array,
        rounds: int,
        contrasts: NDArray[np.float64],
        answered: Sequence[int],
    ) -> CurveNoise:
        """Return the noise in the curves; see `taciturn.algorithms.curve_noise`."""
        answers = np.array(answered or (self.problem.agents,) * rounds, np.float64)
        frequencies, code = self._frequencies(statistics), self.coordinates(statistics)
        parameters: NDArray[np.float64] = np.asarray(w, np.float64)
        shares = [_distribution(frequencies[own]) for own in code.columns]
        scale = self.label_scale(statistics)
        unit = scale.spread if scale else 1.0  # in which the scores were trained
        effects = [code.level / unit * parameters[own] for own in code.columns]
        constant = code.intercept / unit * parameters[-1]
        descent = self._descent(answers)
        curvature = self._curvature(frequencies, code, effects, shares, constant)
        draws = np.random.default_rng(0).standard_normal((DRAWS, len(frequencies)))  # public: it draws no protection
        again = frequencies + self._frequency_deviation(statistics, answers) * draws
        recoded = [coordinates(other, self.blocks, code.intercept > 0.0).blocks for other in again]
        errors = []
        for i, (own, block) in enumerate(zip(code.columns, code.blocks, strict=True)):
            redrawn = [(blocks[i], _distribution(other[own])) for blocks, other in zip(recoded, again, strict=True)]
            column = ReleasedColumn(effects[i], block, shares[i], redrawn if len(block) <= WIDEST else ())
            errors.append(unit * column.errors(descent, curvature, contrasts))
        return CurveNoise(tuple(shares), tuple(errors))

    def _descent(self, answers: NDArray[np.float64]) -> Descent:
        """Return the rounds that train the mean model, given how many agents answered in each round."""
        etas = np.array([float(self.eta(t)[0, 0]) for t in range(self.counting + 1, len(answers) + 1)])
        deviations = etas * self._deviation / np.sqrt(answers[self.counting :])
        return Descent(etas / self.problem.agents, deviations, MOMENTUM)

    def _frequency_deviation(self, statistics: Array, answers: NDArray[np.float64]) -> float:
        """Return the standard deviation of the noise in a released frequency."""
        counts = answers[int(self._has_scale(statistics)) : self.counting]  # without the label's own round
        counted = math.sqrt((1.0 / counts).sum()) / len(counts)
        whole = self.problem.agents * math.sqrt(statistics.shape[-1]) * self._deviation
        return whole * counted / self._count_unit(statistics)

    def _curvature(
        self,
        frequencies: NDArray[np.float64],
        code: Coordinates,
        effects: Sequence[NDArray[np.float64]],
        shares: Sequence[NDArray[np.float64]],
        constant: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the curvature of the loss per declared record, [K, K], as far as released values tell."""
        lengths = [(block**2).sum(axis=1) for block in code.blocks]
        present = float(np.clip(frequencies.sum() / len(self.blocks), 0.0, 1.0))  # of the declared records
        found = loss_curvature(self.problem.loss, effects, shares, lengths, constant, code.constant**2, self.clip)
        return present * found

    @property
    def _deviation(self) -> float:
        """The standard deviation of an agent's noise in one release."""
        mechanism = getattr(self.release, "mechanism", None)
        if not isinstance(mechanism, Calibrated):
            raise TypeError("the noise of this release depends on the records")
        return float(mechanism.deviation[0])

    @cached_property
    def _width(self) -> int:
        return sum(block.width for block in self.blocks)

    def _count_unit(self, statistics: Array) -> float:
        """Return what a record adds to the statistics of its levels, summed over the outputs."""
        share = 1.0 / math.sqrt(1.0 + (len(statistics) > self._width))
        return share / math.sqrt(len(self.blocks)) * self.clip * math.sqrt(statistics.shape[-1])

    def _frequencies(self, statistics: Array) -> NDArray[np.float64]:
        """Return the released frequencies of all levels, which may be negative."""
        totals = np.asarray(statistics, np.float64)[: self._width].sum(axis=(1, 2))
        found: NDArray[np.float64] = self.problem.agents * totals / self._count_unit(statistics)
        return found

    def _recoded(self, shard: Shard, statistics: Array) -> Shard:
        """Return an agent's records in the coordinates; they are kept until the statistics change."""
        key = statistics.tobytes()
        known = _RECODED.get(shard)
        if known is not None and known[0] == key:
            return known[1]
        del known
        _RECODED.pop(shard, None)  # as large as the records
        scale = self.label_scale(statistics)
        labels = shard.y if scale is None else scale.labels(shard.y)
        recoded = replace(shard, x=self.coordinates(statistics).recode(shard.x), y=labels)
        _RECODED[shard] = key, recoded
        return recoded

    def _mean(self, values: Array, server: Server, t: int) -> Array:
        mean = values.mean(axis=0) if isinstance(server, FullState) else values / server.agents
        return in_precision_of(mean, self.rho(t))


def _build(config: AlgorithmConfig) -> Additive:
    if not config.blocks:
        raise InputError("additive needs features bins, which give every column of a table its own levels")
    if not isinstance(config.problem.feasible, Unconstrained):
        raise InputError("additive needs set all: its parameters belong to coordinates, not to features")
    if len(config.epsilon) != 1:
        raise ValueError("every run of additive has its own coordinates, so runs cannot share a batch")
    return Additive.from_config(config)


ADDITIVE = AlgorithmSpec(
    "an additive model of a table: noisy counts of every column, then noisy gradient descent with momentum",
    "c = Σ x + ξ;  z = w − η (f'(w; T_c x) + ξ);  w⁺ = mean of z + β (w − w⁻)",
    _build,
    modes=("certified",),
    backends=("numpy",),
    reference="Bassily, Smith and Thakurta, FOCS 2014, with Polyak's momentum, in coordinates from noisy marginals",
    step_kind=MomentumStep,
    min_rounds=2,  # the first releases counts
    counts_first=True,
    allows_aggregate_noise=True,
    batched=False,
    without_noise="optimum",
)
ALGORITHMS.register("additive")(ADDITIVE)
