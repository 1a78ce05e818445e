"""Mean test errors over repeated runs, and paired differences between settings, with confidence intervals.

The repeated unit is the noise seed. Where partition keys are swept it is the partition: its noise seeds are averaged
first, because runs on one partition are not independent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from taciturn.experiments.run_rows import RunRow
from taciturn.reporting.intervals import LEVEL, Interval, interval

UNIT_NAMES = {"seed": "seed", "partition_key": "partition"}

Condition: TypeAlias = tuple[tuple[str, Any], ...]
"""Names and values of the settings that a group of runs shares."""


@dataclass(frozen=True)
class Comparison:
    """The test error of `second` minus that of `first`, paired over the repeated unit."""

    setting: str
    first: Any
    second: Any
    at: Condition  # the settings that both share
    difference: Interval
    simultaneous: Interval  # wide enough for all comparisons of the sweep to hold at once (Bonferroni)
    comparisons: int  # how many those are, without exact ones
    unit: str  # the repeated unit: seed or partition_key
    exact: bool  # both are without noise, so that no seed changes the result

    @property
    def significant(self) -> bool:
        """Whether the difference's own interval excludes zero."""
        return self._excludes_zero(self.difference)

    @property
    def significant_overall(self) -> bool:
        """Whether the interval that holds for all comparisons at once excludes zero."""
        return self._excludes_zero(self.simultaneous)

    def _excludes_zero(self, found: Interval) -> bool:
        if self.exact:
            return self.difference.mean != 0.0
        return found.low is not None and found.high is not None and not found.low <= 0.0 <= found.high


class _Pairs(NamedTuple):
    """Differences between two values of a setting, one for each repetition."""

    setting: str
    first: Any
    second: Any
    at: Condition
    differences: list[float]
    exact: bool


def repeated_unit(varied: Iterable[str]) -> str:
    """Return the repeated unit of a sweep over these settings.

    >>> repeated_unit(["clip", "partition_key"]), repeated_unit(["clip"])
    ('partition_key', 'seed')
    """
    return "partition_key" if "partition_key" in varied else "seed"


def mean_errors(rows: Sequence[RunRow], settings: Sequence[str], unit: str) -> dict[Condition, Interval]:
    """Return the mean test error, with its interval, of each group of runs that shares these settings.

    Parameters
    ----------
    rows : sequence of RunRow
        Runs that have a test error.
    settings : sequence of str
        The settings by which runs are grouped.
    unit : str
        The repeated unit, "seed" or "partition_key".
    """
    return {
        at: interval(list(_mean_by_unit(group[:1] if _deterministic(group, unit) else group, unit).values()))
        for at, group in group_rows(rows, settings).items()
    }


def compare_values(
    rows: Sequence[RunRow], settings: Sequence[str], compared: Sequence[str], unit: str
) -> list[Comparison]:
    """Compare every pair of values of each setting in `compared`, at equal values of the other `settings`.

    The simultaneous intervals have level 1 - 0.05 / m for m comparisons that are not exact (Bonferroni).
    """
    found = [pairs for setting in compared for pairs in _pairs(rows, settings, setting, unit)]
    uncertain = sum(not pairs.exact for pairs in found)
    level = 1.0 - (1.0 - LEVEL) / max(1, uncertain)
    return [
        Comparison(p.setting, p.first, p.second, p.at, interval(p.differences), interval(p.differences, level),
                   uncertain, unit, p.exact)
        for p in found
    ]  # fmt: skip


def group_rows(rows: Sequence[RunRow], settings: Sequence[str]) -> dict[Condition, list[RunRow]]:
    """Group rows by their values of these settings."""
    groups: dict[Condition, list[RunRow]] = {}
    for row in rows:
        groups.setdefault(tuple((name, row.setting(name)) for name in settings), []).append(row)
    return groups


def _deterministic(rows: Sequence[RunRow], unit: str) -> bool:
    """Whether the seed does not matter: no noise and, by the equal errors, no random samples."""
    equal = len({row.test_error for row in rows}) <= 1
    return unit == "seed" and equal and all(math.isinf(row.epsilon) for row in rows)


def _pairs(rows: Sequence[RunRow], settings: Sequence[str], setting: str, unit: str) -> Iterator[_Pairs]:
    others = [name for name in settings if name != setting]
    for at, group in group_rows(rows, others).items():
        by_value = {key[0][1]: found for key, found in group_rows(group, [setting]).items()}
        for first, second in itertools.combinations(by_value, 2):
            exact = all(_deterministic(by_value[value], unit) for value in (first, second))
            differences = _differences(by_value[first], by_value[second], unit)
            if differences:
                yield _Pairs(setting, first, second, at, differences[:1] if exact else differences, exact)


def _differences(first: Sequence[RunRow], second: Sequence[RunRow], unit: str) -> list[float]:
    """Return second minus first for every repetition that both have; a deterministic run counts for all seeds."""
    a, b = _mean_by_unit(first, unit), _mean_by_unit(second, unit)
    if _deterministic(first, unit):
        a = dict.fromkeys(b, next(iter(a.values())))
    elif _deterministic(second, unit):
        b = dict.fromkeys(a, next(iter(b.values())))
    return [b[repetition] - a[repetition] for repetition in a if repetition in b]


def _mean_by_unit(rows: Sequence[RunRow], unit: str) -> dict[Any, float]:
    """Return the mean test error of each seed or partition."""
    found: dict[Any, list[float]] = {}
    for row in rows:
        found.setdefault(row.setting(unit), []).append(row.error)
    return {repetition: fmean(errors) for repetition, errors in found.items()}
