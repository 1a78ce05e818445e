"""A model of a table explained: the effect of every column, with the standard error that the noise gives it.

Models of the feature map bins are additive: a score is a constant plus one number for every column. That number as a
function of the column's value is the column's effect. For two classes it is a difference of log-odds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.curve_noise import CurveNoise
from taciturn.data.feature_mapping import length_share
from taciturn.data.feature_maps.bins import KNOTS
from taciturn.data.schema import Categorical, Numeric, Schema
from taciturn.errors import InputError, shown
from taciturn.runs.folder import RunFolder
from taciturn.runs.json_record import Record
from taciturn.runs.records import RunLabel
from taciturn.types import Array, Classes, Target

LOG_ODDS, SCORE = "log-odds", "score"  # the units of an effect, besides those of the label
NOISE_LEVEL = 2.0  # standard errors; an effect that is no larger is within the noise
DIGITS = 6  # of a stored number


@dataclass(frozen=True, kw_only=True)
class ColumnEffect(Record):
    """The effect of one column on every output, at each of its levels.

    Examples
    --------
    >>> sex = ColumnEffect(column="sex", form="categories", names=("f", "m"), missing=False, shares=(0.75, 0.25),
    ...                    effect=((-0.5, 1.5),), error=((0.1, 0.8),))
    >>> sex.strength(), sex.is_noise()
    (0.8660254037844386, False)
    """

    column: str
    form: str  # numeric; ordered: categories in an order; categories
    names: tuple[str, ...]  # of the levels of a categorical column; empty for numbers
    missing: bool  # whether the last level of a numeric or ordered column stands for missing values
    shares: tuple[float, ...]  # of the levels: the effect is 0 on average under them
    effect: tuple[tuple[float, ...], ...]  # [outputs][levels]
    scale: str = "linear"  # of the column's axis: linear, log or asinh
    knots: tuple[float, ...] = ()  # of a numeric column: the values at which the effect is given
    error: tuple[tuple[float, ...], ...] | None = None  # [outputs][levels]; None: not known, or there is no noise

    def strength(self, output: int | None = None) -> float:
        """Return the standard deviation of the effect under the shares; without an output the largest of all."""
        squares = np.square(np.array(self.effect)) @ np.array(self.shares)
        return math.sqrt(float(squares.max() if output is None else squares[output]))

    def within_noise(self) -> NDArray[np.bool_]:
        """Return where the effect is at most two standard errors, [outputs, levels]."""
        effect = np.abs(np.array(self.effect))
        return np.zeros(effect.shape, bool) if self.error is None else effect <= NOISE_LEVEL * np.array(self.error)

    def is_noise(self) -> bool:
        """Return whether all of the effect is within the noise."""
        return bool(self.within_noise().all())

    def level_names(self) -> tuple[str, ...]:
        """Return the name of each level; the knots of a numeric column by their value."""
        return self.names or (*(f"{knot:.6g}" for knot in self.knots), *(("missing",) if self.missing else ()))


@dataclass(frozen=True, kw_only=True)
class RunEffects(RunLabel):
    """The effects of one run's model."""

    unit: str  # log-odds, score, or the label's own
    outputs: tuple[str, ...]  # what an effect is about: "yes over no", every class, or the label
    intercept: tuple[float, ...]  # [outputs]  the constant beside the effects
    released_shares: bool  # whether the shares are released frequencies; else all parts of a column count alike
    columns: tuple[ColumnEffect, ...]  # in the schema's order

    def by_strength(self) -> list[ColumnEffect]:
        """Return the columns, the strongest first."""
        return sorted(self.columns, key=lambda column: -column.strength())

    def column(self, name: str) -> ColumnEffect:
        """Return the effect of a column.

        Raises
        ------
        InputError
            If the model has no such column.
        """
        found = {column.column: column for column in self.columns}
        if name not in found:
            raise InputError(f"the model has no column '{name}': its columns are {', '.join(found)}")
        return found[name]


@dataclass(frozen=True, kw_only=True)
class EffectsRecord(Record):
    """The file `effects.json`: the effects of every run of a study."""

    runs: tuple[RunEffects, ...]

    def run(self, index: int) -> RunEffects:
        """Return the effects of one run.

        Raises
        ------
        InputError
            If there is no such run.
        """
        if not isinstance(index, int | np.integer) or not 0 <= index < len(self.runs):
            raise InputError(f"there is no run {shown(index)}: the runs are 0 to {len(self.runs) - 1} (taciturn show)")
        return self.runs[index]


def contrasts(target: Target) -> NDArray[np.float64]:
    """Return the matrix [outputs, K] that takes scores to what effects are about.

    Examples
    --------
    >>> contrasts(Classes(("no", "yes"))).tolist()
    [[-1.0, 1.0]]
    """
    if not isinstance(target, Classes):
        return np.array([[target.high - target.low]])
    if target.width == 2:
        return np.array([[-1.0, 1.0]])
    found: NDArray[np.float64] = np.eye(target.width) - 1.0 / target.width
    return found


def run_effects(
    label: RunLabel, w: Array, schema: Schema, intercept: bool, log_odds: bool, noise: CurveNoise | None
) -> RunEffects:
    """Return the effects of a model of bins.

    Parameters
    ----------
    label
        The run.
    w
        The model's parameters [J, K].
    schema
        The table's schema.
    intercept
        Whether the last feature is the intercept.
    log_odds
        Whether differences of scores are differences of log-odds.
    noise
        What the run released about its columns.
    """
    target, matrix = schema.target, contrasts(schema.target)
    level = length_share(intercept) / math.sqrt(len(schema.columns))
    w = np.asarray(w, np.float64)
    constant = matrix @ (length_share(intercept) * w[-1]) if intercept else np.zeros(len(matrix))
    if not isinstance(target, Classes):
        constant = constant + target.low
    columns, start = [], 0
    for i, rule in enumerate(schema.columns):
        width = len(KNOTS) + len(rule.features) - 1 if isinstance(rule, Numeric) else len(rule.values)
        effect = matrix @ (level * w[start : start + width]).T
        shares = _even_shares(rule) if noise is None else noise.shares[i]
        mean = effect @ shares
        constant = constant + mean
        errors = None if noise is None else noise.errors[i]
        columns.append(_column(rule, shares, effect - mean[:, None], errors))
        start += width
    return RunEffects(
        **vars(label),
        unit=schema.label if not isinstance(target, Classes) else LOG_ODDS if log_odds else SCORE,
        outputs=_outputs(schema),
        intercept=_rounded(constant),
        released_shares=noise is not None,
        columns=tuple(columns),
    )


def _outputs(schema: Schema) -> tuple[str, ...]:
    if not isinstance(schema.target, Classes):
        return (schema.label,)
    names = schema.target.names
    return (f"{names[1]} over {names[0]}",) if len(names) == 2 else names


def _column(
    rule: Numeric | Categorical,
    shares: NDArray[np.float64],
    effect: NDArray[np.float64],
    errors: NDArray[np.float64] | None,
) -> ColumnEffect:
    numeric = isinstance(rule, Numeric)
    return ColumnEffect(
        column=rule.name,
        form="numeric" if numeric else rule.block.kind,
        names=rule.values if isinstance(rule, Categorical) else (),
        missing=rule.block.missing,
        shares=_rounded(shares),
        effect=tuple(map(_rounded, effect)),
        scale=rule.scale if isinstance(rule, Numeric) else "linear",
        knots=_rounded(rule.unstretched(KNOTS)) if isinstance(rule, Numeric) else (),
        error=None if errors is None else tuple(map(_rounded, errors)),
    )


def _even_shares(rule: Numeric | Categorical) -> NDArray[np.float64]:
    """Return shares that give every part of a column's range equal weight; they depend on no record."""
    if isinstance(rule, Categorical):
        return np.full(len(rule.values), 1.0 / len(rule.values))
    shares = np.zeros(len(KNOTS) + len(rule.features) - 1)
    gaps = np.diff(KNOTS)
    shares[: len(gaps)] += gaps / 2.0
    shares[1 : len(KNOTS)] += gaps / 2.0
    return shares


def _rounded(values: Array) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in np.asarray(values, np.float64))


def read_effects(folder: RunFolder) -> EffectsRecord:
    """Return the effects of a finished study.

    Raises
    ------
    InputError
        If the study has not ended, or its models are not explained by effects.
    CorruptFile
        If the file is damaged.
    """
    folder.read_summary(local=False)
    if not folder.effects.is_file():
        raise InputError(
            f"{folder.path} has no effects: only models of tables with features bins are a sum of one curve for each "
            "column, and runs of earlier versions did not store them"
        )
    return EffectsRecord.from_json(folder.read_json(folder.effects.name), folder.effects)
