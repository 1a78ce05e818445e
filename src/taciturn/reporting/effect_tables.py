"""A model's effects as rows of text."""

from __future__ import annotations

import numpy as np

from taciturn.runs.effects import NOISE_LEVEL, ColumnEffect, RunEffects

EFFECT_HEADINGS = ("column", "strength", "lowest", "at", "highest", "at", "noise")
LEVEL_HEADINGS = ("value", "share", "effect", "±", "")


def effect_rows(effects: RunEffects) -> list[tuple[str, ...]]:
    """Return a row for each column, the strongest first: the size of its effect, and where it is extreme."""
    rows: list[tuple[str, ...]] = []
    for column in effects.by_strength():
        values, names = np.array(column.effect), column.level_names()
        low, high = (np.unravel_index(place, values.shape)[1] for place in (values.argmin(), values.argmax()))
        share = float((np.array(column.shares) * column.within_noise()).sum() / len(values))
        noise = "not known" if column.error is None else f"{100.0 * share:.0f} % within"
        ends = (f"{values.min():+.3g}", names[low], f"{values.max():+.3g}", names[high])
        rows.append((column.column, f"{column.strength():.3g}", *ends, noise))
    return rows


def level_rows(effects: RunEffects, column: ColumnEffect) -> list[tuple[str, ...]]:
    """Return a row for each output and level of a column; a star marks effects beyond the noise."""
    rows: list[tuple[str, ...]] = []
    noise = column.within_noise()
    for k, output in enumerate(effects.outputs):
        for i, name in enumerate(column.level_names()):
            error = None if column.error is None else NOISE_LEVEL * column.error[k][i]
            star = "*" if error is not None and not noise[k, i] else ""
            cells = (
                name,
                f"{100.0 * column.shares[i]:.1f} %",
                f"{column.effect[k][i]:+.3g}",
                "" if error is None else f"{error:.2g}",
                star,
            )
            rows.append(cells if len(effects.outputs) == 1 else (output, *cells))
    return rows
