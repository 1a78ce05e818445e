"""The dashboard's reply about a model's effects: one line for each column, with points to draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taciturn.reporting.curves import full_label, run_label
from taciturn.reporting.effect_tables import effect_rows
from taciturn.runs.effects import NOISE_LEVEL, ColumnEffect, RunEffects, read_effects
from taciturn.runs.folder import RunFolder

MOST_RUNS = 8  # settings that are shown
MOST_POINTS = 60  # levels of a column that are drawn


@dataclass(frozen=True)
class EffectLine:
    """One column: cells of a table, and the points of its effect on the output that it affects most."""

    cells: tuple[str, ...]
    line: bool  # whether the points are connected
    place: list[float]  # from 0 to 1
    effect: list[float]
    error: list[float]  # two standard errors; empty: not known


@dataclass(frozen=True)
class RunEffectsReply:
    """The effects of one run, the strongest column first."""

    label: str
    about: str
    columns: list[EffectLine]


@dataclass(frozen=True)
class EffectsReply:
    """The effects of the first run of every setting; none for models that are not additive, or not trained yet."""

    effect_runs: list[RunEffectsReply]


def effects_reply(folder: RunFolder) -> EffectsReply:
    """Return the effects of a study's models."""
    if not (folder.finished and folder.effects.is_file()):
        return EffectsReply([])
    first: dict[str, RunEffects] = {}
    for run in read_effects(folder).runs:
        first.setdefault(run_label(run.algorithm, run.epsilon), run)
    return EffectsReply([_run(run) for run in list(first.values())[:MOST_RUNS]])


def _run(run: RunEffects) -> RunEffectsReply:
    about = run.outputs[0] if len(run.outputs) == 1 else "every class, relative to the mean of all"
    lines = [_line(cells, column) for cells, column in zip(effect_rows(run), run.by_strength(), strict=True)]
    return RunEffectsReply(full_label(run), f"on {about}, in {run.unit}", lines)


def _line(cells: tuple[str, ...], column: ColumnEffect) -> EffectLine:
    output = max(range(len(column.effect)), key=column.strength)
    numeric = column.form == "numeric"
    count = min(len(column.knots) if numeric else len(column.names), MOST_POINTS if not numeric else len(column.knots))
    place = np.array(column.knots) if numeric else np.arange(count, dtype=np.float64)
    if column.scale == "log":
        place = np.log(place)
    elif column.scale == "asinh":
        place = np.arcsinh(place)
    place = (place - place[0]) / max(float(place[-1] - place[0]), 1e-12)
    errors = [] if column.error is None else [NOISE_LEVEL * value for value in column.error[output][:count]]
    return EffectLine(cells, numeric, place.tolist(), list(column.effect[output][:count]), errors)
