"""Candidates timed in turns, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

from tacit.bench.options import Options

PAUSE = 0.05  # seconds: the threads of the candidate before stop looking for work meanwhile


class Timing(NamedTuple):
    """Seconds of one candidate over its calls."""

    best: float
    median: float
    calls: int

    def scaled(self, factor: float) -> Timing:
        """What so many times the work would take."""
        return self._replace(best=factor * self.best, median=factor * self.median)


def interleaved(
    candidates: Mapping[str, Callable[[], Any]], options: Options, burst: int = 5, pause: float = PAUSE
) -> dict[str, Timing]:
    """Every candidate once to warm up, then in turns; in a turn `burst` calls follow each other."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(options.repeats + 1):
        for name, work in candidates.items():
            options.watch(f"turn {turn} of {options.repeats}: {name}" if turn else f"warming up: {name}")
            time.sleep(0.0 if options.small else pause)
            calls = [seconds(work) for _ in range(burst if turn else 1)]
            taken[name] += calls if turn else []
    return {name: Timing(min(found), median(found), len(found)) for name, found in taken.items()}


def seconds(work: Callable[[], Any]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def fastest(timings: Mapping[str, Timing], *names: str) -> float:
    """The best time among those of these candidates that were timed."""
    return min(timings[name].best for name in names if name in timings)
