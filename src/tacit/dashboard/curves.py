"""The curves of a run as the page draws them: few points, mean over seeds and the band between their percentiles."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from tacit.dashboard.downsample import kept
from tacit.results.growing import METRICS, Metrics, Series
from tacit.types import Array
from tacit.views.curves import BAND, run_label


class Lines(NamedTuple):
    """What stands in one chart, and whether it is the owner's alone."""

    local: bool
    lines: list[dict[str, Any]]


def charts(metrics: Metrics) -> dict[str, Any]:
    """Every metric that was measured, with a line for each algorithm and epsilon."""
    found = {metric: _lines(metrics, metric) for metric in METRICS}
    return {metric: made._asdict() for metric, made in found.items() if made.lines}


def _lines(metrics: Metrics, metric: str) -> Lines:
    groups: dict[str, list[Series]] = {}
    local = False
    for run, label in metrics.public.labels.items():
        series, own = metrics.series(run, metric)
        if series is not None:
            groups.setdefault(run_label(label.algorithm, label.epsilon), []).append(series)
            local = local or own
    return Lines(local, [_line(label, seeds) for label, seeds in groups.items()])


def _line(label: str, seeds: list[Series]) -> dict[str, Any]:
    rounds = reduce(np.intersect1d, [series.rounds for series in seeds])  # a round may be half written
    values = np.array([series.values[np.searchsorted(series.rounds, rounds)] for series in seeds])  # [seeds, n]
    mean = values.mean(axis=0)
    band = list(np.percentile(values, BAND, axis=0)) if len(seeds) > 1 else []
    places = kept([mean, *band]) if len(rounds) else np.arange(0)
    line = {
        "label": label,
        "seeds": len(seeds),
        "rounds": rounds[places].astype(int).tolist(),
        "mean": _short(mean[places]),
    }
    return line | {name: _short(edge[places]) for name, edge in zip(("low", "high"), band, strict=False)}


def _short(values: Array) -> list[float]:
    """Five digits: a chart shows no more."""
    return [float(f"{value:.5g}") for value in values]
