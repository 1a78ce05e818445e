"""How time and memory of a round grow with agents, records, features, classes, local updates and runs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from taciturn.research.bench.benchmark import BENCHMARKS, Benchmark, Growth, Report
from taciturn.research.bench.inputs import dense
from taciturn.research.bench.measured_rounds import taciturn_rounds
from taciturn.research.bench.timing import Options, time_interleaved

NAME = "growth"
STEPS = (1, 2, 4, 8, 16)  # times the base, one factor at a time


@dataclass(frozen=True)
class Size:
    """A round's size; the base is small enough to be doubled four times."""

    agents: int = 10
    records: int = 20_000
    features: int = 200
    classes: int = 10
    local_updates: int = 1
    runs: int = 1

    def rounds(self) -> Callable[[], Any]:
        """Return a function that runs a round of this size."""
        shards = dense(self.records, self.features, self.agents, self.classes).shards
        return taciturn_rounds(shards, [1.0] * self.runs, range(1, self.runs + 1), self.local_updates)


FACTORS = {"agents": "P", "records": "I", "features": "J", "classes": "K", "local_updates": "E", "runs": "runs"}
TINY = Size(agents=2, records=60, features=5, classes=3)


def run(options: Options) -> Report:
    """Vary all factors, one at a time."""
    base = TINY if options.small else Size()
    grown = tuple(_grow(base, factor, options) for factor in FACTORS)
    figures = {
        "base": asdict(base),
        "seconds_exponents": {one.factor: one.seconds_exponent for one in grown},
        "bytes_exponents": {one.factor: one.bytes_exponent for one in grown},
    }
    title = f"Growth of an objp round around P = {base.agents}, I = {base.records:,}, J = {base.features}"
    notes = (
        f"one factor at a time, else as in the title, K = {base.classes}, E = 1, one run; I counts the records of all",
        "memory: what numpy has allocated at the peak of making the records and two rounds",
    )
    return Report(NAME, title, figures, growth=grown, notes=notes)


def _grow(base: Size, factor: str, options: Options) -> Growth:
    sizes = {step * getattr(base, factor): replace(base, **{factor: step * getattr(base, factor)}) for step in STEPS}
    memory = tuple(_peak(size, f"{FACTORS[factor]} = {value}: memory", options) for value, size in sizes.items())
    candidates = {f"{FACTORS[factor]} = {value}": size.rounds() for value, size in sizes.items()}
    timings = time_interleaved(candidates, options, pause=0.0)
    seconds = tuple(timing.best for timing in timings.values())
    values, meaning = tuple(sizes), factor.replace("_", " ")
    powers = exponent(values, seconds), exponent(values, memory)
    return Growth(FACTORS[factor], meaning, values, seconds, memory, *powers)


def _peak(size: Size, what: str, options: Options) -> float:
    options.watch(what)
    tracemalloc.start()
    try:
        play = size.rounds()
        play(), play()
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def exponent(values: tuple[int, ...], found: tuple[float, ...]) -> float:
    """Return the slope of the straight line through the logarithms."""
    return float(np.polyfit(np.log(values), np.log(found), 1)[0])


BENCHMARKS.register(NAME)(Benchmark("how time and memory of a round grow with P, I, J, K, E and runs", "a minute", run))
