"""Benchmarks: Taciturn and comparable libraries on the same data in the same run; one file for each benchmark."""

from __future__ import annotations

from dataclasses import replace

from taciturn.kernels.library import level
from taciturn.research.bench.benchmark import BENCHMARKS, Benchmark, Report
from taciturn.research.bench.machine import observed
from taciturn.research.bench.timing import Options, Watch

UNBUILT = "the compiled part of Taciturn was not built: it runs on numpy"
TRIAL = "at this small size the numbers mean nothing"

__all__ = ["BENCHMARKS", "Benchmark", "Options", "Report", "Watch", "run"]


def run(name: str, options: Options | None = None) -> Report:
    """Run one benchmark by name, and record what else the machine did meanwhile."""
    benchmark = BENCHMARKS[name]
    with observed() as machine:
        report = benchmark.run(options or Options())
    if not benchmark.alone:
        machine.others = None
    warnings = (machine.warning(), "" if level() else UNBUILT, TRIAL if options and options.small else "")
    goals = {} if options and options.small else benchmark.goals
    return replace(report, machine=machine.facts(), notes=(*report.notes, *filter(None, warnings)), goals=goals)
