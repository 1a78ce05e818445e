"""Metrics as curves: mean over seeds with the band between two percentiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tacit.types import Array

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


def curves(rows: Iterable[Mapping[str, Any]], metric: str, prefix: str = "") -> list[Curve]:
    """One curve for each algorithm and epsilon, over its seeds; values that are not there are left out."""
    values: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row[metric] is not None:
            values[prefix + run_label(row["algorithm"], row["epsilon"])][row["round"]][row["seed"]] = float(row[metric])
    return [_curve(label, by_round) for label, by_round in values.items()]


def _curve(label: str, by_round: Mapping[int, Mapping[int, float]]) -> Curve:
    rounds = np.array(sorted(by_round))
    if len(rounds) > POINTS:
        rounds = rounds[np.unique(np.linspace(0, len(rounds) - 1, POINTS).round().astype(int))]
    spread = [list(by_round[int(t)].values()) for t in rounds]
    low, high = (np.array([np.percentile(values, q) for values in spread]) for q in BAND)
    seeds = max(len(values) for values in spread)
    return Curve(label, rounds.astype(float), np.array([np.mean(values) for values in spread]), low, high, seeds)
