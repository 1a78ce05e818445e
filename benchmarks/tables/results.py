"""Metrics, and the file of results, into which every finished cell goes at once."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
from benchmarks.program import read_results, rounded
from benchmarks.tables.splits import WORK
from numpy.typing import NDArray
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score, root_mean_squared_error

from taciturn.core.locks import locked
from taciturn.research.bench.machine import versions

DELTA = 1e-6
DIGITS = 6
PACKAGES = ("taciturn", "diffprivlib", "interpret-core", "scikit-learn", "numpy")
METRICS = {True: ("auroc", "log_loss", "brier"), False: ("rmse",)}  # by whether it is a classification


def quality(y: NDArray[np.float64], predicted: NDArray[np.float64], classes: bool) -> dict[str, float]:
    """Return the metrics of predictions on test records."""
    if not classes:
        return {"rmse": float(root_mean_squared_error(y, predicted))}
    return {
        "auroc": float(roc_auc_score(y, predicted)),
        "log_loss": float(log_loss(y, predicted, labels=[0, 1])),
        "brier": float(brier_score_loss(y, predicted)),
    }


class Point(NamedTuple):
    """What is averaged over splits: a method on a table with a budget."""

    table: str
    method: str
    epsilon: float  # infinite: no privacy


class Results:
    """The results of all cells so far, in a file that several processes may add to."""

    def __init__(self, place: Path) -> None:
        """Read the file, if there is one."""
        self.place = place
        self.time: dict[str, Any] = {}
        self.points: dict[Point, dict[int, dict[str, float]]] = {}
        self._read()

    def has(self, point: Point, split: int) -> bool:
        """Whether a cell is finished."""
        return split in self.points.get(point, {})

    def add(self, point: Point, split: int, found: dict[str, float]) -> None:
        """Put in a cell."""
        with self._writing():
            self.points.setdefault(point, {})[split] = rounded(found, DIGITS)

    def add_time(self, found: dict[str, Any]) -> None:
        """Put in the times, in place of earlier ones."""
        with self._writing():
            self.time = found

    def shared_splits(self, table: str) -> frozenset[int]:
        """Return the splits that every point of a table has, so that its points can be compared."""
        each = [frozenset(splits) for point, splits in self.points.items() if point.table == table]
        return frozenset.intersection(*each) if each else frozenset()

    def values(self, point: Point, metric: str, splits: Collection[int] | None = None) -> list[float]:
        """Return a metric on each of some splits, or on all that the point has."""
        found = self.points.get(point, {})
        return [entry[metric] for split, entry in found.items() if splits is None or split in splits]

    def mean(self, point: Point, metric: str, splits: Collection[int] | None = None) -> float | None:
        """Return the mean over the splits; None if there is no cell."""
        found = self.values(point, metric, splits)
        return fmean(found) if found else None

    def deviation(self, point: Point, metric: str, splits: Collection[int] | None = None) -> float | None:
        """Return the standard deviation over the splits; None for fewer than two."""
        found = self.values(point, metric, splits)
        return stdev(found) if len(found) > 1 else None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Take in what other processes wrote, then write, a point a line."""
        WORK.mkdir(parents=True, exist_ok=True)
        with locked(WORK / "lock", "another process writes the results", timeout=60.0):
            self._read()
            yield
            head = json.dumps(
                {
                    "what": "models on tables, with privacy and without, on random 80/20 splits",
                    "delta": DELTA,
                    "versions": versions(PACKAGES),
                    "time": self.time,
                },
                indent=1,
            )
            lines = ",\n".join("  " + json.dumps(self._entry(point)) for point in sorted(self.points))
            text = head.removesuffix("\n}") + f',\n "points": [\n{lines}\n ]\n}}\n'
            self.place.write_text(text, encoding="utf-8")

    def _read(self) -> None:
        if not self.place.exists():
            return
        document = read_results(self.place)
        self.time = document["time"]
        self.points = {
            Point(entry["table"], entry["method"], float(entry["epsilon"])): {
                int(split): found for split, found in entry["splits"].items()
            }
            for entry in document["points"]
        }

    def _entry(self, point: Point) -> dict[str, Any]:
        splits = dict(sorted(self.points[point].items()))
        means, deviations = {}, {}
        for name in next(iter(splits.values())):
            mean, deviation = self.mean(point, name), self.deviation(point, name)
            means[name] = rounded(mean, DIGITS)
            deviations[name] = rounded(deviation, DIGITS)
        epsilon = "inf" if math.isinf(point.epsilon) else point.epsilon
        names = {"table": point.table, "method": point.method, "epsilon": epsilon}
        return {**names, "mean": means, "deviation": deviations, "splits": splits}
