"""How fast it is: Tacit and its peers on the same data, in the same run; one file for each benchmark."""

from __future__ import annotations

from dataclasses import replace

from tacit.bench.base import BENCHMARKS, Benchmark
from tacit.bench.machine import observed
from tacit.bench.options import Options, Watch
from tacit.bench.report import Report
from tacit.kernels.library import level

UNBUILT = "the compiled part of Tacit was not built: it runs on numpy"
TRIAL = "at this size, for trying it out, the numbers mean nothing"

__all__ = ["BENCHMARKS", "Benchmark", "Options", "Report", "Watch", "run"]


def run(name: str, options: Options | None = None) -> Report:
    """One benchmark by name, with what the machine did meanwhile."""
    benchmark = BENCHMARKS[name]
    with observed() as machine:
        report = benchmark.run(options or Options())
    if not benchmark.alone:
        machine.others = None
    warnings = (machine.warning(), "" if level() else UNBUILT, TRIAL if options and options.small else "")
    return replace(report, machine=machine.facts(), notes=(*report.notes, *filter(None, warnings)))
