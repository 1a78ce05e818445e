"""Results as rows of text, for the terminal and for pages."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.core.storage import format_bytes
from taciturn.reporting.curves import by_label, run_label
from taciturn.reporting.evaluation_tables import estimate_words
from taciturn.runs.effects import NOISE_LEVEL, ColumnEffect, RunEffects
from taciturn.runs.quality import RegressionQuality
from taciturn.runs.records import MethodFacts, RunResult

NO_ERROR = ("not public", "no test set")
SPREAD = ("lowest", "highest")  # columns with errors of several seeds
NOTHING = "–"  # a figure that is not public, or not known
SEED = "seed"
HEADINGS = ("", "run", SEED, "test error", "objective", "residual", "noise", "rounds", "seconds", "sent up")
GROUP_HEADINGS = ("run", "seeds", "test error", "lowest", "highest", "objective", "rounds", "seconds")


def rounds_done(runs: Sequence[RunResult], methods: Mapping[str, MethodFacts]) -> int | None:
    """Return the fewest rounds of the runs whose number of rounds the settings decide; None if there is none.

    Parameters
    ----------
    runs
        The results of a study.
    methods
        The facts of its algorithms, from the header of its ledger.
    """
    fixed = {name for name, method in methods.items() if method.rounds is not None}
    return min((entry.rounds for entry in runs if entry.algorithm not in fixed), default=None)


def format_error(entry: RunResult) -> str:
    """Return a test error as text: percent for classes, RMSE in the label's unit for numbers.

    Where only a private evaluation is known, that is shown, with its standard error.
    """
    if entry.test_error is None and entry.private_quality is not None:
        return estimate_words(entry.private_quality)
    if entry.test_error is None:
        return NO_ERROR[0 if entry.private_test else 1]
    return format_share(entry.test_error, isinstance(entry.quality, RegressionQuality))


def format_share(error: float, regression: bool, sign: str = "") -> str:
    """Return an error, or with `sign` "+" a difference of two errors, as text.

    >>> format_share(0.1234, regression=False), format_share(-2.5, regression=True, sign="+")
    ('12.34 %', '-2.5 RMSE')
    """
    return f"{format_digits(error, 4, sign)} RMSE" if regression else f"{100.0 * error:{sign}.2f} %"


def format_digits(value: float, digits: int, sign: str = "") -> str:
    """Return a number rounded to so many significant digits, without an exponent from 0.0001 to ten thousand million.

    >>> format_digits(-59412.3, 3), format_digits(0.5, 3, "+"), format_digits(7.6294e-5, 3)
    ('-59400', '+0.5', '7.63e-05')
    """
    return f"{float(f'{value:.{digits}g}'):{sign}.10g}"


def format_epsilon(value: float | None) -> str:
    """Return an epsilon with four digits, rounded up: what is shown is never below what was spent.

    >>> format_epsilon(1.00001), format_epsilon(math.inf), format_epsilon(None)
    ('1.0001', 'infinite', '–')
    """
    if value is None:
        return "–"
    if math.isinf(value) or value <= 0.0:
        return "infinite" if value > 0.0 else "0"
    unit = max(10.0 ** min(math.floor(math.log10(value)) - 3, -4), 1e-300)
    return f"{math.ceil(value / unit - 1e-6) * unit:.12g}"


def format_number(value: float | None, form: str) -> str:
    """Return a number in the given format, or a dash where it is not public."""
    return NOTHING if value is None else f"{value:{form}}"


def format_setting(value: Any) -> str:
    """Return the value of a setting as a user would write it.

    >>> format_setting([1.0, 0.5]), format_setting(True), format_setting(None)
    ('1, 0.5', 'on', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(format_setting(item) for item in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str]) -> str:
    """Return a Markdown table; the columns with the headings in `left` hold text, the others numbers."""
    rules = ["---" if heading in left else "---:" for heading in headings]
    lines = (headings, rules, *rows)
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |" for cells in lines)


def result_table(
    runs: Sequence[RunResult], shown: Collection[str] = HEADINGS
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and one row of text for each run.

    Parameters
    ----------
    runs
        The results.
    shown
        The headings of the wanted columns. The seed is left out where no run has one.
    """
    seeded = any(entry.seed is not None for entry in runs)
    columns = [i for i, name in enumerate(HEADINGS) if name in shown and (name != SEED or seeded)]
    rows = [_result_row(index, entry) for index, entry in enumerate(runs)]
    return tuple(HEADINGS[i] for i in columns), [tuple(row[i] for i in columns) for row in rows]


def _result_row(index: int, entry: RunResult) -> tuple[str, ...]:
    """Return the row of a run under HEADINGS."""
    return (
        str(index),
        run_label(entry.algorithm, entry.epsilon),
        "–" if entry.seed is None else str(entry.seed),
        format_error(entry),
        format_number(entry.train_objective, ".4f"),
        format_number(entry.consensus_residual, ".3g"),
        f"{entry.noise:.3g}",
        str(entry.rounds),
        format_number(entry.seconds, ".1f"),
        format_bytes(entry.bytes_up),
    )


def group_rows(runs: Sequence[RunResult]) -> list[tuple[str, ...]]:
    """Return one row for each algorithm and epsilon, with the mean over its seeds, under GROUP_HEADINGS."""
    rows = []
    for label, group in by_label(runs).items():
        first, errors = group[0], _known([entry.test_error for entry in group])
        objectives = _known([entry.train_objective for entry in group])
        spread = (fmean(errors), min(errors), max(errors)) if errors else (None, None, None)
        rows.append(
            (
                label,
                str(len(group)),
                *(format_error(replace(first, test_error=error)) for error in spread),
                format_number(fmean(objectives) if objectives else None, ".4f"),
                str(first.rounds),
                format_number(first.seconds, ".1f"),
            )
        )
    return rows


def _known(values: Sequence[float | None]) -> list[float]:
    """Return the values, or an empty list if one of them is not known."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def mean_error(group: Sequence[RunResult]) -> float | None:
    """Return the mean test error of some runs, or None if one of them is not known."""
    errors = _known([entry.test_error for entry in group])
    return fmean(errors) if errors else None


def has_seeds(runs: Sequence[RunResult]) -> bool:
    """Return whether a setting was run with several seeds."""
    return any(len(group) > 1 for group in by_label(runs).values())


KNOT_DIGITS = (3, 4, 5)  # of a numeric column's levels: the fewest that tell them apart
NEAR = 0.01  # of a column's range: knots this close are shown as one
TINY = 1e-12  # the weight of a knot without a share
EFFECT_TEXTS = (0, 3, 5)  # the columns of EFFECT_HEADINGS that may take several lines
EFFECT_HEADINGS = ("column", "strength", "lowest", "at", "highest", "at", "noise")
LEVEL_HEADINGS = ("value", "share", "effect", "±", "")


def effect_rows(effects: RunEffects) -> list[tuple[str, ...]]:
    """Return a row for each column, the strongest first: the size of its effect, and where it is extreme."""
    rows: list[tuple[str, ...]] = []
    for column in effects.by_strength():
        values, names = np.array(column.effect), _levels(column, KNOT_DIGITS[:1])
        low, high = (np.unravel_index(place, values.shape)[1] for place in (values.argmin(), values.argmax()))
        share = float((np.array(column.shares) * column.within_noise()).sum() / len(values))
        noise = "not known" if column.error is None else f"{100.0 * share:.0f} % within"
        ends = (format_digits(values.min(), 3, "+"), names[low], format_digits(values.max(), 3, "+"), names[high])
        rows.append((column.column, format_digits(column.strength(), 3), *ends, noise))
    return rows


def _levels(column: ColumnEffect, choices: Sequence[int] = KNOT_DIGITS) -> tuple[str, ...]:
    """Return the name of each level, those of a numeric column with the fewest of these digits that tell them apart."""
    if column.names:
        return column.names
    rounded: list[str] = []
    for digits in choices:
        rounded = [format_digits(knot, digits) for knot in column.knots]
        if len(set(rounded)) == len(rounded):
            break
    return (*rounded, *column.level_names()[len(column.knots) :])


def _without_near_knots(column: ColumnEffect) -> ColumnEffect:
    """Return the effect with knots that are within 1 % of the range as one: their share together, the widest error."""
    knots = column.knots
    if column.scale != "linear" or not knots:
        return column
    groups, start = [[0]], knots[0]
    for i, knot in enumerate(knots[1:], start=1):
        if knot - start < NEAR * (knots[-1] - knots[0]):
            groups[-1].append(i)
        else:
            groups.append([i])
            start = knot
    groups += [[i] for i in range(len(knots), len(column.shares))]  # missing values
    shares, effect = np.array(column.shares), np.array(column.effect)
    errors = None if column.error is None else np.array(column.error)
    weights = [np.maximum(shares[group], TINY) for group in groups]
    means = [np.average(effect[:, group], axis=1, weights=w) for group, w in zip(groups, weights, strict=True)]
    return replace(
        column,
        knots=tuple(knots[group[0]] for group in groups if group[0] < len(knots)),
        shares=tuple(float(shares[group].sum()) for group in groups),
        effect=_rows(means),
        error=None if errors is None else _rows([errors[:, group].max(axis=1) for group in groups]),
    )


def _rows(columns: Sequence[NDArray[np.float64]]) -> tuple[tuple[float, ...], ...]:
    """Return the rows of a matrix with these columns."""
    return tuple(map(tuple, np.stack(columns, axis=1).tolist()))


def level_rows(effects: RunEffects, column: ColumnEffect) -> list[tuple[str, ...]]:
    """Return a row for each output and level of a column; a star marks effects beyond the noise."""
    rows: list[tuple[str, ...]] = []
    column = _without_near_knots(column)
    noise = column.within_noise()
    for k, output in enumerate(effects.outputs):
        for i, name in enumerate(_levels(column)):
            error = None if column.error is None else NOISE_LEVEL * column.error[k][i]
            star = "*" if error is not None and not noise[k, i] else ""
            cells = (
                name,
                f"{100.0 * column.shares[i]:.1f} %",
                format_digits(column.effect[k][i], 3, "+"),
                "" if error is None else format_digits(error, 2),
                star,
            )
            rows.append(cells if len(effects.outputs) == 1 else (output, *cells))
    return rows


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as the text of a CSV file; the keys of the first are the header.

    >>> csv_text([{"column": "age", "effect": 0.5}])
    'column,effect\\nage,0.5\\n'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
