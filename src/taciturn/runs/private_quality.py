"""Private quality: what noisy sums of measures say about a model, with the errors of the noise and of sampling.

Every measure here is a function f of the sums that does not change when all sums are multiplied by one number. With
its gradient g in the sums, the delta method gives both errors: the variance of the noise is sigma^2 sum g^2, and that
of sampling is the sum over records of (g v)^2, where v is a record's vector. For histograms the latter is the sum over
cells of count g^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.objectives.private_measures import (
    CONFUSION,
    COUNTS,
    LABEL_SQUARES,
    LABELS,
    LOSS,
    RECORDS,
    RELIABILITY,
    SCORES,
    SIZES,
    SQUARES,
    MeasureLayout,
)
from taciturn.runs.json_record import Record
from taciturn.types import Range, Target

Sums: TypeAlias = NDArray[np.floating[Any]]
LEAST_RECORDS = 3.0  # standard errors of the noise: with fewer records nothing can be said
FLATTEST = 0.5  # the least slope by which the error of a corrected calibration error is divided


@dataclass(frozen=True, kw_only=True)
class Estimate(Record):
    """A measure and its standard errors. They are independent: add their squares for the error of both."""

    value: float
    noise: float  # of the noise that was added
    sampling: float | None = None  # of the choice of the records; None: not known

    @property
    def error(self) -> float:
        """The standard error of noise and sampling together."""
        return math.hypot(self.noise, self.sampling or 0.0)


@dataclass(frozen=True, kw_only=True)
class PrivateBin(Record):
    """The records whose predicted probability is in (low, high], and the share of them for which it came true."""

    low: float
    high: float
    records: float  # with noise, so it may be negative
    observed: Estimate | None  # None: too few records to tell


@dataclass(frozen=True, kw_only=True)
class PrivateClassification(Record):
    """A classifier on held-out records, measured with noise. What too few records leave open is None."""

    records: Estimate
    error: Estimate | None
    log_loss: Estimate | None = (
        None  # each record's is clipped at `loss_limit`; None too: the loss has no probabilities
    )
    auroc: Estimate | None = None  # with two classes
    calibration_error: Estimate | None = None  # corrected for what the noise adds
    calibration_by_chance: float | None = None  # of a perfectly calibrated model on as many records without noise
    baseline_error: Estimate | None = None  # of always predicting the most frequent class
    baseline_log_loss: Estimate | None = None  # of predicting the class frequencies
    loss_limit: float | None = None
    confusion: tuple[tuple[float, ...], ...] | None = None  # rows: true class, columns: predicted class
    confusion_noise: float | None = None  # standard error of each of them
    reliability: tuple[PrivateBin, ...] | None = None  # of the second of two, or of the predicted class


@dataclass(frozen=True, kw_only=True)
class PrivateRegression(Record):
    """A regression on held-out records, measured with noise, in the label's unit."""

    records: Estimate
    rmse: Estimate | None  # of predictions that are cut to the declared range, as the next one
    mae: Estimate | None = None
    r2: Estimate | None = None
    baseline_rmse: Estimate | None = None  # of always predicting the mean label


PrivateQuality: TypeAlias = PrivateClassification | PrivateRegression


class NoisySums(NamedTuple):
    """The sums of an evaluation over agents."""

    layout: MeasureLayout
    values: Sums  # [D]  in units
    sigma: float  # standard deviation of the noise of each, in units

    @property
    def parts(self) -> dict[str, Sums]:
        """The sums of every part, over what one record adds at most."""
        weights = self.layout.weights()
        return {name: values / weights[name] for name, values in self.layout.split(self.values).items()}

    def noise_of(self, part: str) -> float:
        """Return the standard deviation of the noise of a part, in records."""
        return self.sigma / self.layout.weights()[part]


def estimate_quality(sums: NoisySums, target: Target) -> PrivateQuality:
    """Return what the noisy sums of measures over held-out records say about the model.

    Parameters
    ----------
    sums
        The sums.
    target
        What the label is.

    Examples
    --------
    >>> from taciturn.types import Classes
    >>> layout = MeasureLayout(2, probabilities=False)
    >>> values = np.zeros(layout.size)
    >>> values[:2] = 90.0, 10.0
    >>> found = estimate_quality(NoisySums(layout, values, 1.0), Classes(("no", "yes")))
    >>> found.error.value, round(found.error.noise, 4), round(found.error.sampling, 4)
    (0.1, 0.0091, 0.031)
    """
    return _regression(sums, target) if isinstance(target, Range) else _classification(sums)


def _classification(sums: NoisySums) -> PrivateClassification:
    layout, parts, sigma = sums.layout, sums.parts, sums.noise_of(COUNTS)
    n, wrong = float(parts[COUNTS].sum()), float(parts[COUNTS][1])
    records = Estimate(value=n, noise=math.sqrt(2.0) * sigma)
    if _too_few(n, records.noise):
        return PrivateClassification(records=records, error=None)
    cells = _cells(sums)
    labels = parts[SCORES].reshape(2, -1).sum(axis=1) if layout.classes == 2 else cells.confusion.sum(axis=1)
    of_label = cells.noise * math.sqrt(cells.of_label)
    without_probabilities = PrivateClassification(
        records=records,
        error=_share(wrong, n, sigma),
        auroc=_auroc(parts[SCORES].reshape(2, -1), cells.noise) if layout.classes == 2 else None,
        baseline_error=_baseline_error(labels, of_label),
        confusion=tuple(tuple(row) for row in np.round(cells.confusion, 2).tolist()),
        confusion_noise=cells.confusion_noise,
    )
    if not layout.probabilities:
        return without_probabilities
    corrected, by_chance = _calibration(layout, cells, n)
    return replace(
        without_probabilities,
        log_loss=_log_loss(sums, n, cells),
        loss_limit=layout.loss_limit,
        baseline_log_loss=_entropy(labels, of_label),
        calibration_error=corrected,
        calibration_by_chance=by_chance,
        reliability=_bins(layout, cells),
    )


def _too_few(records: float, noise: float) -> bool:
    """Return whether nothing can be said about so few records, counted with noise of this standard deviation."""
    return records < max(1.0, LEAST_RECORDS * noise)


def _unit(value: float) -> float:
    """Return the nearest number from 0 to 1."""
    return min(1.0, max(0.0, value))


def _share(part: float, n: float, noise: float) -> Estimate:
    """Return the share of n records that a part of them is, where both parts were counted with noise.

    Its errors are those at the nearest possible share: noise can make a part negative or larger than n.
    """
    share = _unit(part / n)
    likely = (share * n + 1.0) / (n + 2.0)  # not 0, where the part is empty
    return Estimate(
        value=share,
        noise=noise * math.hypot(1.0 - share, share) / n,
        sampling=math.sqrt(likely * (1.0 - likely) / n),
    )


class _Cells(NamedTuple):
    """Histograms of a classifier. In a bin, a hit is a record for which the predicted class came true."""

    hits: Sums  # [M]
    misses: Sums  # [M]
    noise: float  # of each cell of the histogram from which labels are counted
    bin_noise: float  # of each hit and miss
    of_label: int  # cells that are added to count a label
    confusion: Sums  # [K, K]
    confusion_noise: float


def _cells(sums: NoisySums) -> _Cells:
    layout, parts = sums.layout, sums.parts
    if layout.classes == 2:
        by_label, noise = parts[SCORES].reshape(2, -1), sums.noise_of(SCORES)
        half = by_label.shape[1] // 2  # the second class is predicted above 1/2, which is the end of a bin
        confusion = np.stack([by_label[:, :half].sum(axis=1), by_label[:, half:].sum(axis=1)], axis=1)
        return _Cells(by_label[1], by_label[0], noise, noise, 2 * half, confusion, noise * math.sqrt(half))
    k, noise = layout.classes, sums.noise_of(CONFUSION)
    confusion = parts[CONFUSION].reshape(k, k)
    if not layout.probabilities:
        return _Cells(np.zeros(0), np.zeros(0), noise, 0.0, k, confusion, noise)
    hits, misses = parts[RELIABILITY].reshape(2, -1)
    return _Cells(hits, misses, noise, sums.noise_of(RELIABILITY), k, confusion, noise)


def _middles(layout: MeasureLayout) -> Sums:
    """Return the probability that stands for each bin."""
    return (layout.edges[1:] + layout.edges[:-1]) / 2.0


def _log_loss(sums: NoisySums, n: float, cells: _Cells) -> Estimate:
    limit, sigma = sums.layout.loss_limit, sums.noise_of(LOSS)
    mean = limit * float(sums.parts[LOSS][0]) / n
    return Estimate(
        value=min(limit, max(0.0, mean)),
        noise=sigma * math.hypot(limit, math.sqrt(2.0) * mean) / n,
        sampling=math.sqrt(_loss_variance(sums.layout, cells, min(limit, max(0.0, mean))) / n),
    )


def _loss_variance(layout: MeasureLayout, cells: _Cells, mean: float) -> float:
    """Return an estimate of the variance of a record's log loss from the bins; with several classes, an upper bound.

    The loss of a hit is known from its bin. With two classes this is true of a miss too; with more, the mean over the
    misses follows from the total, and a number in [low, high] has variance at most (mean - low) (high - mean).
    """
    middles = _middles(layout)
    hits, misses = np.maximum(cells.hits, 0.0), np.maximum(cells.misses, 0.0)
    total = float((hits + misses).sum())
    if total <= 0.0:
        return mean * (layout.loss_limit - mean)
    own = np.minimum(-np.log(middles), layout.loss_limit)
    if layout.classes == 2:
        other = np.minimum(-np.log1p(-middles), layout.loss_limit)
        return float(hits @ (own - mean) ** 2 + misses @ (other - mean) ** 2) / total
    wrong, least = float(misses.sum()), math.log(2.0)
    spread = float(hits @ (own - mean) ** 2)
    if wrong > 0.0:
        of_wrong = min(layout.loss_limit, max(least, (mean * total - float(hits @ own)) / wrong))
        spread += wrong * ((of_wrong - mean) ** 2 + (of_wrong - least) * (layout.loss_limit - of_wrong))
    return spread / total


def _auroc(by_label: Sums, noise: float) -> Estimate | None:
    """Return the probability that a positive is in a higher bin than a negative, counting the same bin half."""
    negatives, positives = by_label
    sizes = float(negatives.sum()), float(positives.sum())
    if _too_few(min(sizes), noise * math.sqrt(len(positives))):
        return None
    below = np.cumsum(negatives) - negatives / 2.0  # [M]  negatives below a record of the bin
    above = positives.sum() - np.cumsum(positives) + positives / 2.0
    area = float(positives @ below) / (sizes[0] * sizes[1])
    slopes = np.stack([above / sizes[1] - area, below / sizes[0] - area]) / np.array(sizes)[:, None]
    return _from_cells(_unit(area), by_label, slopes, noise)


def _from_cells(value: float, counts: Sums, slopes: Sums, noise: float) -> Estimate:
    """Return an estimate from noisy counts and its derivatives in them, by the delta method."""
    sampling = float((np.maximum(counts, 0.0) * slopes**2).sum())
    return Estimate(value=value, noise=noise * float(np.sqrt((slopes**2).sum())), sampling=math.sqrt(sampling))


def _baseline_error(labels: Sums, noise: float) -> Estimate | None:
    total = float(labels.sum())
    if _too_few(total, noise * math.sqrt(len(labels))):
        return None
    shares = labels / total
    best = shares.argmax()
    slopes = (shares[best] - (np.arange(len(labels)) == best)) / total
    return _from_cells(_unit(1.0 - float(shares[best])), labels, slopes, noise)


def _entropy(labels: Sums, noise: float) -> Estimate | None:
    """Return the log loss of predicting the class frequencies.

    Noise makes frequencies look more different than they are, so the entropy gets its second-order term back. Where
    all classes are equally frequent the first order vanishes, and this term is most of the error.
    """
    total = float(labels.sum())
    if _too_few(total, noise * math.sqrt(len(labels))):
        return None
    shares = np.maximum(labels / total, 1.0 / total)
    entropy = -float((shares / shares.sum()) @ np.log(shares / shares.sum()))
    found = _from_cells(entropy, labels, -(np.log(shares) + entropy) / total, noise)
    lost = float((1.0 / np.maximum(shares, noise / total)).sum() - len(labels)) * (noise / total) ** 2 / 2.0
    value = min(math.log(len(labels)), entropy + lost)
    return replace(found, value=value, noise=math.hypot(found.noise, lost * math.sqrt(2.0 / max(1, len(labels) - 1))))


def _calibration(layout: MeasureLayout, cells: _Cells, n: float) -> tuple[Estimate, float]:
    """Return the calibration error without what the noise adds to it, and that of a perfectly calibrated model.

    In a bin with h hits, m misses and middle p, the gap is h (1 - p) - m p. Noise makes the mean of its size larger.
    The corrected error is the one that would give the sum of sizes that was seen, if observed and predicted shares
    were equally far apart in every bin.
    """
    middles = _middles(layout)
    gaps = cells.hits * (1.0 - middles) - cells.misses * middles
    records = np.maximum(cells.hits + cells.misses, 0.0)
    by_chance = float(np.sqrt(2.0 / math.pi * records * middles * (1.0 - middles)).sum()) / n
    spreads, seen = cells.bin_noise * np.hypot(1.0 - middles, middles), float(np.abs(gaps).sum())
    if not cells.bin_noise:
        return Estimate(value=seen / n, noise=0.0), by_chance
    apart = _distance(records / spreads, spreads, seen)
    shifts = apart * records / spreads
    variance = float(spreads**2 @ (1.0 + shifts**2 - _mean_size(shifts) ** 2))
    slope = float(records @ np.maximum(FLATTEST, _slope(shifts)))
    size = float(records.sum()) / n
    return Estimate(value=min(1.0, apart * size), noise=size * math.sqrt(variance) / max(slope, 1.0)), by_chance


def _mean_size(shifts: Sums) -> Sums:
    """Return E|c + N(0, 1)| of every shift c of at least 0."""
    found: Sums = math.sqrt(2.0 / math.pi) * np.exp(-(shifts**2) / 2.0) + shifts * _slope(shifts)
    return found


def _slope(shifts: Sums) -> Sums:
    """Return the derivative of E|c + N(0, 1)| in c, which is P(|N(0, 1)| < c)."""
    return np.array([math.erf(c / math.sqrt(2.0)) for c in shifts.tolist()])


def _distance(records: Sums, spreads: Sums, seen: float) -> float:
    """Return the distance d of shares at which gaps of d times the records have, with noise, the size that was seen.

    Both are over the noise of each bin. The distance is 0 if noise alone is larger than what was seen.
    """
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if spreads @ _mean_size(middle * records) < seen else (low, middle)
    return low


def _bins(layout: MeasureLayout, cells: _Cells) -> tuple[PrivateBin, ...]:
    found = []
    for low, high, hits, misses in zip(layout.edges[:-1], layout.edges[1:], cells.hits, cells.misses, strict=True):
        n = float(hits + misses)
        few = _too_few(n, math.sqrt(2.0) * cells.bin_noise)
        observed = None if few else _share(float(hits), n, cells.bin_noise)
        found.append(PrivateBin(low=float(low), high=float(high), records=round(n, 2), observed=observed))
    return tuple(found)


def _regression(sums: NoisySums, target: Range) -> PrivateRegression:
    parts, sigma, unit = sums.parts, sums.noise_of(RECORDS), target.high - target.low
    n = float(parts[RECORDS][0])
    records = Estimate(value=n, noise=sigma)
    if _too_few(n, sigma):
        return PrivateRegression(records=records, rmse=None)
    names = (SQUARES, SIZES, LABELS, LABEL_SQUARES)
    square, size, label, label_square = (float(parts[name][0]) / n for name in names)
    square, size, variance = max(0.0, square), max(0.0, size), label_square - label**2
    square_noise, moment_noise = sigma * math.hypot(1.0, square) / n, sums.noise_of(LABELS) / n
    spread = moment_noise * math.hypot(1.0, 2.0 * label)
    spread = math.hypot(spread, sigma * abs(label_square - 2.0 * label**2) / n)
    known = variance > LEAST_RECORDS * spread
    return PrivateRegression(
        records=records,
        rmse=_root(unit, square, square_noise, math.sqrt(2.0 / n) * square),  # the variance of a normal error's square
        mae=Estimate(
            value=unit * size,
            noise=unit * sigma * math.hypot(1.0, size) / n,
            sampling=unit * math.sqrt(max(0.0, square - size**2) / n),
        ),
        r2=_r2(square, square_noise, variance, spread) if known else None,
        baseline_rmse=_root(unit, variance, spread, None) if known else None,
    )


def _root(unit: float, square: float, noise: float, sampling: float | None) -> Estimate:
    """Return the root of a mean square. Two of its errors reach as far as two of the square's do, next to 0 too."""
    root = math.sqrt(square)
    reach = max(math.sqrt(square + 2.0 * noise) - root, root - math.sqrt(max(0.0, square - 2.0 * noise)))
    spread = None if sampling is None else sampling / (2.0 * root) if root else 0.0
    return Estimate(value=unit * root, noise=unit * reach / 2.0, sampling=None if spread is None else unit * spread)


def _r2(square: float, square_noise: float, variance: float, spread: float) -> Estimate:
    ratio = square / variance
    return Estimate(value=1.0 - ratio, noise=math.hypot(square_noise, ratio * spread) / variance)
