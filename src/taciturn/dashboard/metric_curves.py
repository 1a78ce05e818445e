"""Curves of a run's metrics, down-sampled for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from taciturn.dashboard.replies import READ_ERRORS
from taciturn.reporting.curves import BAND, first_of_labels, full_label, run_label
from taciturn.reporting.evaluation_tables import REACH, evaluation_points
from taciturn.reporting.tables import effect_rows
from taciturn.runs.effects import NOISE_LEVEL, ColumnEffect, RunEffects, read_effects
from taciturn.runs.folder import RunFolder
from taciturn.runs.metrics_log import METRICS, MetricsLog, Series
from taciturn.runs.records import RunLabel
from taciturn.types import Array

POINTS = 600  # of a line, at most: more than a chart on a page is wide
MOST_RUNS = 8  # settings whose effects are shown
MOST_POINTS = 60  # levels of a column that are drawn
NOISE_UNITS = {"uploads": "parameter units"}  # by what a method's noise is added to, if that is not gradients


@dataclass(frozen=True)
class MetricCurve:
    """One line of a chart: mean over seeds, with the band between two percentiles if there are several seeds."""

    label: str
    algorithm: str
    unit: str  # of the noise; empty for other metrics
    seeds: int
    rounds: list[int]  # [n]
    mean: list[float]  # [n]
    low: list[float] | None = None  # [n]
    high: list[float] | None = None  # [n]


@dataclass(frozen=True)
class MetricChart:
    """The lines of one metric; `local` says that they are for the data owner only."""

    local: bool
    lines: list[MetricCurve]


@dataclass(frozen=True)
class ChartsReply:
    """The chart of every metric that was measured, by its name."""

    charts: dict[str, MetricChart]


def downsample(lines: Sequence[Array], points: int = POINTS) -> npt.NDArray[np.intp]:
    """Return the indices to keep of lines over the same n rounds.

    These are the first, the last, and in every interval the minimum and maximum of each line.

    Parameters
    ----------
    lines : sequence of arrays [n]
        Values of each line.
    points : int
        Upper limit of the number of indices.

    Examples
    --------
    >>> downsample([np.array([0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0])], points=4)
    array([0, 1, 3, 7])
    """
    n = len(lines[0])
    if n <= points:
        return np.arange(n)
    intervals = (points - 2) // (2 * len(lines))
    edges = np.linspace(1, n - 1, intervals + 1).astype(int)  # between the first index and the last
    kept = [np.array([0, n - 1])]
    for line in lines:
        for low, high in pairwise(edges):
            values = line[low:high]
            kept.append(low + np.array([values.argmin(), values.argmax()]))
    return np.unique(np.concatenate(kept))


def metric_charts(folder: RunFolder, metrics: MetricsLog) -> ChartsReply:
    """Return a chart for every measured metric, with a line per algorithm and epsilon.

    Parameters
    ----------
    folder : RunFolder
        Its ledger says what the noise of each method is added to, and so its unit.
    metrics : MetricsLog
        The run's metrics so far.
    """
    noise_on = _noise_on(folder)
    charts = {metric: _chart(metrics, metric, noise_on) for metric in METRICS}
    charts["private_error"] = _private_chart(folder)
    return ChartsReply({metric: chart for metric, chart in charts.items() if chart.lines})


def _noise_on(folder: RunFolder) -> dict[str, str]:
    """Read what each method adds noise to from the ledger's header; curves are shown even if it cannot be read."""
    try:
        return {name: method.noise_on for name, method in folder.read_header().method_facts.items()}
    except READ_ERRORS:
        return {}


def noise_unit(noise_on: str | None) -> str:
    """Return the unit of a method's noise.

    Parameters
    ----------
    noise_on : str or None
        What the noise is added to, by the ledger's header; None if the header does not say.

    Examples
    --------
    >>> noise_unit("uploads"), noise_unit("objectives")
    ('parameter units', 'gradient units')
    """
    if noise_on is None:
        return "units of what the noise is added to"
    return NOISE_UNITS.get(noise_on, "gradient units")


def _chart(metrics: MetricsLog, metric: str, noise_on: Mapping[str, str]) -> MetricChart:
    groups: dict[str, tuple[RunLabel, list[Series]]] = {}
    local = False
    for run, label in metrics.public.labels.items():
        series, own = metrics.series(run, metric)
        if series is not None:
            groups.setdefault(run_label(label.algorithm, label.epsilon), (label, []))[1].append(series)
            local = local or own
    units = {label.algorithm: noise_unit(noise_on.get(label.algorithm)) for label, _ in groups.values()}
    return MetricChart(
        local,
        [
            _curve(name, label.algorithm, units[label.algorithm] if metric == "noise" else "", seeds)
            for name, (label, seeds) in groups.items()
        ],
    )


def _private_chart(folder: RunFolder) -> MetricChart:
    """Return the errors of private evaluations, of the first seed of each setting, with 95 % intervals."""
    lines, rows = [], folder.read_evaluations()
    algorithms = {run_label(row.algorithm, row.epsilon): row.algorithm for row in rows}
    for label, points in evaluation_points(rows).items():
        mean = [_shown(one.value) for _, one in points]
        low = [_shown(max(0.0, one.value - REACH * one.error)) for _, one in points]
        high = [_shown(one.value + REACH * one.error) for _, one in points]
        lines.append(MetricCurve(label, algorithms[label], "", 1, [t for t, _ in points], mean, low, high))
    return MetricChart(local=False, lines=lines)


def _shown(value: float) -> float:
    """Return a value with five digits: a chart shows no more."""
    return float(f"{value:.5g}")


def _curve(label: str, algorithm: str, unit: str, seeds: Sequence[Series]) -> MetricCurve:
    rounds = reduce(np.intersect1d, [series.rounds for series in seeds])  # some seeds may be a round ahead
    values = np.array([series.values[np.searchsorted(series.rounds, rounds)] for series in seeds])  # [seeds, n]
    lines = [values.mean(axis=0), *(np.percentile(values, BAND, axis=0) if len(seeds) > 1 else ())]
    kept = downsample(lines) if len(rounds) else np.arange(0)
    shown = [[_shown(value) for value in line[kept]] for line in lines]
    return MetricCurve(label, algorithm, unit, len(seeds), rounds[kept].astype(int).tolist(), *shown)


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
    return EffectsReply([_run(run) for run in first_of_labels(read_effects(folder).runs)[:MOST_RUNS]])


def _run(run: RunEffects) -> RunEffectsReply:
    about = run.outputs[0] if len(run.outputs) == 1 else "every class, relative to the mean of all"
    lines = [_line(cells, column) for cells, column in zip(effect_rows(run), run.by_strength(), strict=True)]
    return RunEffectsReply(full_label(run), f"on {about}, in {run.unit}", lines)


def _line(cells: tuple[str, ...], column: ColumnEffect) -> EffectLine:
    output = max(range(len(column.effect)), key=column.strength)
    numeric = column.form == "numeric"
    count = len(column.knots) if numeric else min(len(column.names), MOST_POINTS)
    place = np.array(column.knots) if numeric else np.arange(count, dtype=np.float64)
    if column.scale == "log":
        place = np.log(place)
    elif column.scale == "asinh":
        place = np.arcsinh(place)
    place = (place - place[0]) / max(float(place[-1] - place[0]), 1e-12)
    errors = [] if column.error is None else [NOISE_LEVEL * value for value in column.error[output][:count]]
    return EffectLine(cells, numeric, place.tolist(), list(column.effect[output][:count]), errors)
