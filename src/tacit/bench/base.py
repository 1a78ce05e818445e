"""What a benchmark is, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.bench.options import Options
from tacit.bench.report import Report
from tacit.registry import Registry


@dataclass(frozen=True)
class Benchmark:
    """A benchmark by name: what it compares, and how to run it."""

    summary: str
    run: Callable[[Options], Report]
    alone: bool = True  # whether it works in this process alone, so that all other work on the machine is others'
    long: bool = False  # so long that only who names it means it


BENCHMARKS: Registry[Benchmark] = Registry("benchmark", "tacit.bench.programs")
