"""Timing: options, candidates that take turns, and how times are written."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, TypeAlias

Watch: TypeAlias = Callable[[str], None]
"""Called between two measurements with a description of the next."""


def ignore_progress(text: str) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class Options:
    """Options of a benchmark."""

    small: bool = False  # a size for trying it out: its numbers mean nothing
    repeats: int = 9  # turns of every candidate
    data_dir: str = ""  # folder of the data sets; empty: TACITURN_DATA, else taciturn in the user's cache folder
    watch: Watch = ignore_progress


PAUSE = 0.05  # seconds: the threads of the candidate before stop looking for work meanwhile


class Timing(NamedTuple):
    """Seconds of the calls of one candidate."""

    best: float
    median: float
    calls: int

    def scaled(self, factor: float) -> Timing:
        """Return the timing of so many times the work."""
        return self._replace(best=factor * self.best, median=factor * self.median)


def time_interleaved(
    candidates: Mapping[str, Callable[[], Any]], options: Options, burst: int = 5, pause: float = PAUSE
) -> dict[str, Timing]:
    """Call every candidate once to warm up, then in turns; in a turn `burst` calls follow each other."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(options.repeats + 1):
        for name, work in candidates.items():
            options.watch(f"turn {turn} of {options.repeats}: {name}" if turn else f"warming up: {name}")
            time.sleep(0.0 if options.small else pause)
            calls = [seconds(work) for _ in range(burst if turn else 1)]
            taken[name] += calls if turn else []
    return {name: Timing(min(found), median(found), len(found)) for name, found in taken.items()}


def seconds(work: Callable[[], Any]) -> float:
    """Return how long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median_seconds(work: Callable[[], Any], calls: int) -> float:
    """Return the median duration of so many calls."""
    return median(seconds(work) for _ in range(calls))


def fastest(timings: Mapping[str, Timing], *names: str) -> float:
    """Return the best time among those of these candidates that were timed."""
    return min(timings[name].best for name in names if name in timings)


def format_seconds(value: float) -> str:
    """Return a time with its unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1.0:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"
