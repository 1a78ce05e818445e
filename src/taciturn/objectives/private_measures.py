"""Measures of a model on held-out records: whole numbers whose sum over records is released with noise.

A record adds a vector of parts. With classes these are right or wrong, the log loss, and histograms; with numbers a
count, the two errors, and moments of the label. A part has a weight: its length is at most that many units. A unit is
`2**bits` whole numbers, and fractions of it are rounded towards 0. So the length of a record's vector is at most the
root of the sum of the squared weights, in units, whatever the record and the model are.

The right and the wrong predictions have numbers of their own, because adding up the cells of a histogram adds up the
noise of all of them (docs/explanation/private-evaluation.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taciturn.objectives.losses import Loss
from taciturn.objectives.metrics import log_losses
from taciturn.types import Array, slices

Integers = NDArray[np.int64]
Cells = NDArray[np.intp]

COUNTS, LOSS, SCORES, CONFUSION, RELIABILITY = "counts", "loss", "scores", "confusion", "reliability"
RECORDS, SQUARES, SIZES, LABELS, LABEL_SQUARES = "records", "squares", "sizes", "labels", "label squares"
SCORE_EDGES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)  # of the second class
LARGEST_EDGES = (0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)  # of the likeliest of more than two
LOSS_BEYOND_CHANCE = 3.0  # a log loss is clipped at that of guessing, ln K, plus this


@dataclass(frozen=True)
class MeasurePart:
    """One part of a record's vector.

    Parameters
    ----------
    name : str
        What it measures.
    size : int
        How many numbers it has.
    weight : float
        The most that it adds to the length of the vector, in units: 1 or 1/2.
    """

    name: str
    size: int
    weight: float = 1.0


@dataclass(frozen=True)
class MeasureLayout:
    """What the numbers of a measurement are. It follows from public facts.

    Parameters
    ----------
    classes : int
        K; 0 if the label is a number.
    probabilities : bool
        Whether the loss has a probability model.

    Examples
    --------
    >>> MeasureLayout(2, probabilities=True).size, round(MeasureLayout(2, probabilities=True).length, 4)
    (35, 1.7321)
    """

    classes: int
    probabilities: bool

    @classmethod
    def of(cls, outputs: int, classes: bool, loss: Loss) -> MeasureLayout:
        """Return the layout for K outputs of a model with this loss; `classes`: whether the label is a class."""
        known = classes and loss.probabilities(np.zeros((1, outputs))) is not None
        return cls(outputs if classes else 0, known)

    @cached_property
    def parts(self) -> tuple[MeasurePart, ...]:
        """The parts of a record's vector, in order."""
        k = self.classes
        if k == 0:
            moments = (MeasurePart(LABELS, 1, 0.5), MeasurePart(LABEL_SQUARES, 1, 0.5))
            return (MeasurePart(RECORDS, 1), MeasurePart(SQUARES, 1), MeasurePart(SIZES, 1), *moments)
        counts, loss = MeasurePart(COUNTS, 2), [MeasurePart(LOSS, 1)] * self.probabilities
        if k == 2:
            return (counts, *loss, MeasurePart(SCORES, 2 * (len(SCORE_EDGES) + 1)))
        bins = [MeasurePart(RELIABILITY, 2 * (len(LARGEST_EDGES) + 1), 0.5)] * self.probabilities
        return (counts, *loss, MeasurePart(CONFUSION, k * k, 0.5), *bins)

    @property
    def size(self) -> int:
        """How many numbers a measurement has."""
        return sum(part.size for part in self.parts)

    @property
    def length(self) -> float:
        """The greatest length of one record's vector, in units."""
        return math.sqrt(sum(part.weight**2 for part in self.parts))

    @property
    def loss_limit(self) -> float:
        """The value at which a record's log loss is clipped; public."""
        return math.log(max(2, self.classes)) + LOSS_BEYOND_CHANCE

    @property
    def edges(self) -> NDArray[np.float64]:
        """The ends of the bins of a predicted probability, increasing from the least to 1."""
        inner = SCORE_EDGES if self.classes == 2 else LARGEST_EDGES
        least = 0.0 if self.classes == 2 else 1.0 / max(1, self.classes)  # the largest of K is not smaller
        return np.array([max(least, end) for end in (0.0, *inner, 1.0)])

    def weights(self) -> dict[str, float]:
        """Return the weight of every part by its name."""
        return {part.name: part.weight for part in self.parts}

    def split(self, values: Array) -> dict[str, Array]:
        """Return the parts of a vector by their names, where every part has its own numbers.

        Parameters
        ----------
        values
            Numbers [D].
        """
        own = slices(part.size for part in self.parts)
        return {part.name: values[place] for part, place in zip(self.parts, own, strict=True)}


def summed_measures(scores: Array, y: Array, layout: MeasureLayout, loss: Loss, bits: int) -> Integers:
    """Return the sum of the records' vectors, exactly.

    Every record's vector depends on its own scores and label only. Scores that are not finite count as some scores.

    Parameters
    ----------
    scores
        Scores of one model, [n, K].
    y
        One-hot labels [n, K], or values within [0, 1], [n, 1].
    layout
        What the numbers are.
    loss
        The model's loss, which gives the probabilities.
    bits
        A unit is 2^bits.

    Returns
    -------
    array of int64, [D]

    Examples
    --------
    >>> from taciturn.objectives.losses import Softmax
    >>> layout = MeasureLayout(3, probabilities=True)
    >>> found = summed_measures(np.eye(3)[[0, 1]], np.eye(3)[[0, 2]], layout, Softmax(), bits=1)
    >>> found[:2].tolist(), len(found) == layout.size
    ([2, 2], True)
    """
    unit = 2.0**bits
    with np.errstate(over="ignore", invalid="ignore"):
        parts = _class_parts(scores, y, layout, loss) if layout.classes else _number_parts(scores, y)
        sums = [_summed(parts[part.name], part, unit) for part in layout.parts]
    return np.concatenate(sums)


def _summed(values: Array | Cells, part: MeasurePart, unit: float) -> Integers:
    """Return the sum of one part: cells are counted, and values within [0, 1] are rounded towards 0 and added."""
    if values.dtype.kind == "i":
        return np.bincount(values, minlength=part.size).astype(np.int64) * int(part.weight * unit)
    known = np.clip(np.nan_to_num(values, nan=1.0, posinf=1.0, neginf=0.0), 0.0, 1.0)
    return np.array([np.floor(known * (part.weight * unit)).astype(np.int64).sum()])


def _class_parts(scores: Array, y: Array, layout: MeasureLayout, loss: Loss) -> dict[str, Array | Cells]:
    labels, predicted = y.argmax(axis=1), scores.argmax(axis=1)
    wrong = (labels != predicted).astype(np.intp)
    parts: dict[str, Array | Cells] = {COUNTS: wrong}
    chances = loss.probabilities(scores)
    if layout.probabilities and chances is not None:
        parts[LOSS] = log_losses(chances, labels) / layout.loss_limit
    inner = layout.edges[1:-1]
    if layout.classes == 2:
        ranking = 1.0 / (1.0 + np.exp(scores[:, 0] - scores[:, 1])) if chances is None else chances[:, 1]
        parts[SCORES] = labels * (len(inner) + 1) + np.searchsorted(inner, ranking)
    else:
        parts[CONFUSION] = labels * layout.classes + predicted
        if layout.probabilities and chances is not None:
            parts[RELIABILITY] = wrong * (len(inner) + 1) + np.searchsorted(inner, chances.max(axis=1))
    return parts


def _number_parts(scores: Array, y: Array) -> dict[str, Array | Cells]:
    values = y[:, 0].astype(np.float64)
    errors = np.clip(np.nan_to_num(scores[:, 0]), 0.0, 1.0) - values  # a prediction outside the declared range is cut
    return {
        RECORDS: np.zeros(len(values), np.intp),
        SQUARES: errors**2,
        SIZES: np.abs(errors),
        LABELS: values,
        LABEL_SQUARES: values**2,
    }
