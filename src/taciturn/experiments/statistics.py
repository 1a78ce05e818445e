"""Means over repeated runs with their uncertainty, and differences of two settings that share everything else.

The unit that is repeated is the seed of the noise; where the partition's seed is swept, it is that one, and the noise
seeds of a partition are averaged first, for runs on one partition are not independent of each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from taciturn.reporting.intervals import LEVEL, Interval, interval

UNITS = {"seed": "seed", "partition_key": "partition"}  # how the repeated unit is called

Row: TypeAlias = Mapping[str, Any]
At: TypeAlias = tuple[tuple[str, Any], ...]
"""The settings that some runs have in common: names and values."""


@dataclass(frozen=True)
class Comparison:
    """The test error of `second` minus that of `first`, paired over the repeated unit."""

    setting: str
    first: Any
    second: Any
    at: At  # the settings both share
    difference: Interval
    simultaneous: Interval  # wide enough for all comparisons of the sweep to hold at once (Bonferroni)
    comparisons: int  # how many those are; exact ones do not count
    unit: str  # what is repeated: seed or partition_key
    exact: bool  # both without noise: no seed changes anything

    @property
    def _certain(self) -> bool:
        return self.exact and self.difference.mean != 0.0

    @property
    def told_apart(self) -> bool:
        """Whether the difference is more than chance by its own interval."""
        low, high = self.difference.low, self.difference.high
        return self._certain or (low is not None and high is not None and not low <= 0.0 <= high)

    @property
    def among_all(self) -> bool:
        """Whether it still is with all comparisons in view."""
        low, high = self.simultaneous.low, self.simultaneous.high
        return self._certain or (low is not None and high is not None and not low <= 0.0 <= high)


def repeated_unit(varied: Iterable[str]) -> str:
    """What is repeated in a sweep over these settings."""
    return "partition_key" if "partition_key" in varied else "seed"


def summaries(rows: Sequence[Row], settings: Sequence[str], unit: str) -> dict[At, Interval]:
    """The mean test error of all runs that share these settings, over the repeated unit."""
    groups = grouped(rows, settings)
    return {
        at: interval(list(_by_unit(found[:1] if _alike(found, unit) else found, unit).values()))
        for at, found in groups.items()
    }


def _alike(rows: Sequence[Row], unit: str) -> bool:
    """Whether these runs are the same whatever their seed: without noise, and, as it shows, without random samples."""
    same = len({row["test_error"] for row in rows}) <= 1
    return unit == "seed" and same and all(math.isinf(row["epsilon"]) for row in rows)


def comparisons(rows: Sequence[Row], settings: Sequence[str], by: Sequence[str], unit: str) -> list[Comparison]:
    """Every pair of values of each setting in `by`, at equal other `settings`."""
    pairs = [pair for name in by for pair in _pairs(rows, settings, name, unit)]
    uncertain = sum(not exact for *_, exact in pairs)
    level = 1.0 - (1.0 - LEVEL) / max(1, uncertain)
    return [
        Comparison(name, a, b, at, interval(differences), interval(differences, level), uncertain, unit, exact)
        for name, a, b, at, differences, exact in pairs
    ]


def _pairs(
    rows: Sequence[Row], settings: Sequence[str], by: str, unit: str
) -> Iterable[tuple[str, Any, Any, At, list[float], bool]]:
    others = [name for name in settings if name != by]
    for at, mine in grouped(rows, others).items():
        groups = {dict(key)[by]: found for key, found in grouped(mine, [by]).items()}
        for a, b in itertools.combinations(groups, 2):
            exact = _alike(groups[a], unit) and _alike(groups[b], unit)
            differences = _differences(groups[a], groups[b], unit)
            if differences:
                yield by, a, b, at, differences[:1] if exact else differences, exact


def _differences(first: Sequence[Row], second: Sequence[Row], unit: str) -> list[float]:
    """Second minus first for every seed or partition both have; without noise one seed stands for all."""
    a, b = _by_unit(first, unit), _by_unit(second, unit)
    if _alike(first, unit):
        a = dict.fromkeys(b, next(iter(a.values())))
    elif _alike(second, unit):
        b = dict.fromkeys(a, next(iter(b.values())))
    return [b[one] - a[one] for one in a if one in b]


def grouped(rows: Sequence[Row], settings: Sequence[str]) -> dict[At, list[Row]]:
    """The rows that share these settings, by their values."""
    groups: dict[At, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple((name, row[name]) for name in settings), []).append(row)
    return groups


def _by_unit(rows: Sequence[Row], unit: str) -> dict[Any, float]:
    """The mean test error of each seed, or of each partition."""
    found: dict[Any, list[float]] = {}
    for row in rows:
        found.setdefault(row[unit], []).append(row["test_error"])
    return {one: fmean(errors) for one, errors in found.items()}
