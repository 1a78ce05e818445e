"""Labels of runs, and their metrics as curves: the mean over seeds, with a band between two percentiles."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from taciturn.runs.records import MetricsRow
from taciturn.types import Array

BAND = (20, 80)  # percentiles, as in the paper's figures
MAX_POINTS = 800  # of a curve; more cannot be seen


class Labelled(Protocol):
    """A record of one run: `MetricsRow`, `RunResult` or `RunLabel`."""

    @property
    def algorithm(self) -> str: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def seed(self) -> int | None: ...


L = TypeVar("L", bound=Labelled)


class Curve(NamedTuple):
    """One line of a plot, over n rounds."""

    label: str
    rounds: Array  # [n]
    mean: Array  # [n]
    low: Array  # [n]
    high: Array  # [n]
    seeds: int


def run_label(algorithm: str, epsilon: float) -> str:
    """Return the name of a setting in figures and tables.

    >>> run_label("objp", 1.0), run_label("objp", math.inf)
    ('objp, ε = 1', 'objp, no noise')
    """
    return f"{algorithm}, no noise" if math.isinf(epsilon) else f"{algorithm}, ε = {epsilon:g}"


def full_label(entry: Labelled) -> str:
    """Return the name of one run, with its seed where its noise has one."""
    seed = "" if entry.seed is None else f", seed {entry.seed}"
    return run_label(entry.algorithm, entry.epsilon) + seed


def by_label(runs: Iterable[L]) -> dict[str, list[L]]:
    """Return the runs of each algorithm and epsilon by its label, in their order."""
    groups: dict[str, list[L]] = {}
    for entry in runs:
        groups.setdefault(run_label(entry.algorithm, entry.epsilon), []).append(entry)
    return groups


def first_of_labels(runs: Iterable[L]) -> list[L]:
    """Return the first entry with each algorithm and epsilon."""
    return [group[0] for group in by_label(runs).values()]


def curves(rows: Iterable[MetricsRow], metric: str, prefix: str = "") -> list[Curve]:
    """Return one curve for each algorithm and epsilon, over its seeds.

    Parameters
    ----------
    rows
        Rows of metrics. Those in which the metric is None are left out.
    metric
        Name of a field of `MetricsRow`.
    prefix
        Text before each label.
    """
    values: dict[str, dict[int, dict[int | None, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        value = getattr(row, metric)
        if value is not None:
            values[prefix + run_label(row.algorithm, row.epsilon)][row.round][row.seed] = value
    return [_curve(label, by_round) for label, by_round in values.items()]


def _curve(label: str, by_round: Mapping[int, Mapping[int | None, float]]) -> Curve:
    rounds = np.array(sorted(by_round))
    if len(rounds) > MAX_POINTS:
        rounds = rounds[np.unique(np.linspace(0, len(rounds) - 1, MAX_POINTS).round().astype(int))]
    seeds = list(dict.fromkeys(seed for values in by_round.values() for seed in values))
    spread = np.array([[by_round[int(t)].get(seed, np.nan) for seed in seeds] for t in rounds])  # [n, seeds]
    percentile = np.nanpercentile if np.isnan(spread).any() else np.percentile  # nanpercentile is much slower
    low, high = percentile(spread, BAND, axis=1)
    return Curve(label, rounds.astype(float), np.nanmean(spread, axis=1), low, high, len(seeds))
