"""Curves of runs, down-sampled for the page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from taciturn.reporting.curves import BAND, run_label
from taciturn.runs.metrics_log import METRICS, MetricsLog, Series
from taciturn.types import Array

POINTS = 600  # of a line, at most: more than a chart on a page is wide


def kept(lines: Sequence[Array], points: int = POINTS) -> npt.NDArray[np.intp]:
    """The places to keep of lines over the same n rounds: first and last, and each line's extremes in every stretch."""
    n = len(lines[0])
    if n <= points:
        return np.arange(n)
    stretches = (points - 2) // (2 * len(lines))
    edges = np.linspace(1, n - 1, stretches + 1).astype(int)  # between the first place and the last one
    found = [np.array([0, n - 1])]
    for line in lines:
        for low, high in pairwise(edges):
            stretch = line[low:high]
            found.append(low + np.array([stretch.argmin(), stretch.argmax()]))
    return np.unique(np.concatenate(found))


class Lines(NamedTuple):
    """What stands in one chart, and whether it is the owner's alone."""

    local: bool
    lines: list[dict[str, Any]]


def charts(metrics: MetricsLog) -> dict[str, Any]:
    """Every metric that was measured, with a line for each algorithm and epsilon."""
    found = {metric: _lines(metrics, metric) for metric in METRICS}
    return {metric: made._asdict() for metric, made in found.items() if made.lines}


def _lines(metrics: MetricsLog, metric: str) -> Lines:
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
        "label": label, "unit": "gradient units", "algorithm": label.split(",")[0],
        "seeds": len(seeds),
        "rounds": rounds[places].astype(int).tolist(),
        "mean": _short(mean[places]),
    }
    return line | {name: _short(edge[places]) for name, edge in zip(("low", "high"), band, strict=False)}


def _short(values: Array) -> list[float]:
    """Five digits: a chart shows no more."""
    return [float(f"{value:.5g}") for value in values]
