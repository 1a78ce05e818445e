"""A model's effects as rows of text."""

from __future__ import annotations

import numpy as np

from taciturn.reporting.tables import format_digits
from taciturn.runs.effects import NOISE_LEVEL, ColumnEffect, RunEffects

KNOT_DIGITS = 4  # of a numeric column's levels
EFFECT_TEXTS = (0, 3, 5)  # the columns of EFFECT_HEADINGS that may take several lines
EFFECT_HEADINGS = ("column", "strength", "lowest", "at", "highest", "at", "noise")
LEVEL_HEADINGS = ("value", "share", "effect", "±", "")


def effect_rows(effects: RunEffects) -> list[tuple[str, ...]]:
    """Return a row for each column, the strongest first: the size of its effect, and where it is extreme."""
    rows: list[tuple[str, ...]] = []
    for column in effects.by_strength():
        values, names = np.array(column.effect), _levels(column)
        low, high = (np.unravel_index(place, values.shape)[1] for place in (values.argmin(), values.argmax()))
        share = float((np.array(column.shares) * column.within_noise()).sum() / len(values))
        noise = "not known" if column.error is None else f"{100.0 * share:.0f} % within"
        ends = (format_digits(values.min(), 3, "+"), names[low], format_digits(values.max(), 3, "+"), names[high])
        rows.append((column.column, format_digits(column.strength(), 3), *ends, noise))
    return rows


def _levels(column: ColumnEffect) -> tuple[str, ...]:
    """Return the name of each level, those of a numeric column rounded."""
    if column.names:
        return column.names
    rounded = (*(format_digits(knot, KNOT_DIGITS) for knot in column.knots), *column.level_names()[len(column.knots) :])
    return rounded if len(set(rounded)) == len(rounded) else column.level_names()


def level_rows(effects: RunEffects, column: ColumnEffect) -> list[tuple[str, ...]]:
    """Return a row for each output and level of a column; a star marks effects beyond the noise."""
    rows: list[tuple[str, ...]] = []
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
