"""How fast it is: Tacit and its peers on the same data, in the same run; one file for each benchmark."""

from __future__ import annotations

from dataclasses import replace

from tacit.bench.base import BENCHMARKS, Benchmark
from tacit.bench.machine import observed
from tacit.bench.options import Options, Watch
from tacit.bench.report import Report

__all__ = ["BENCHMARKS", "Benchmark", "Options", "Report", "Watch", "run"]


def run(name: str, options: Options | None = None) -> Report:
    """One benchmark by name, with what the machine did meanwhile."""
    benchmark = BENCHMARKS[name]
    with observed() as machine:
        report = benchmark.run(options or Options())
    if not benchmark.alone:
        machine.others = None
    busy = machine.warning()
    return replace(report, machine=machine.facts(), notes=(*report.notes, *([busy] if busy else [])))
