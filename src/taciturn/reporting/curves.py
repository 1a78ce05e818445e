"""Metrics as curves: mean over seeds with the band between two percentiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from taciturn.types import Array

BAND = (20, 80)  # percentiles, as in the paper's figures
POINTS = 800  # more than a picture can show


class Curve(NamedTuple):
    """One line of a plot."""

    label: str
    rounds: Array  # [n]
    mean: Array  # [n]
    low: Array  # [n]
    high: Array  # [n]
    seeds: int


def run_label(algorithm: str, epsilon: float | str) -> str:
    """What a run is called in pictures and tables."""
    return f"{algorithm}, no noise" if float(epsilon) == np.inf else f"{algorithm}, ε = {float(epsilon):g}"


def full_label(entry: Mapping[str, Any]) -> str:
    """What one run is called among those that differ in their seed alone; hardened noise has none."""
    seed = f", seed {entry['seed']}" if "seed" in entry else ""
    return run_label(entry["algorithm"], entry["epsilon"]) + seed


def curves(rows: Iterable[Mapping[str, Any]], metric: str, prefix: str = "") -> list[Curve]:
    """One curve for each algorithm and epsilon, over its seeds; values that are not there are left out."""
    values: dict[str, dict[int, dict[int | None, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row[metric] is not None:
            label = prefix + run_label(row["algorithm"], row["epsilon"])
            values[label][row["round"]][row.get("seed")] = float(row[metric])  # hardened noise has one run of a setting
    return [_curve(label, by_round) for label, by_round in values.items()]


def _curve(label: str, by_round: Mapping[int, Mapping[int | None, float]]) -> Curve:
    rounds = np.array(sorted(by_round))
    if len(rounds) > POINTS:
        rounds = rounds[np.unique(np.linspace(0, len(rounds) - 1, POINTS).round().astype(int))]
    seeds = list(dict.fromkeys(seed for values in by_round.values() for seed in values))
    spread = np.array([[by_round[int(t)].get(seed, np.nan) for seed in seeds] for t in rounds])  # [n, seeds]
    percentile = np.nanpercentile if np.isnan(spread).any() else np.percentile  # the first takes row by row
    low, high = percentile(spread, BAND, axis=1)
    return Curve(label, rounds.astype(float), np.nanmean(spread, axis=1), low, high, len(seeds))
