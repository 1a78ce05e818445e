"""One round on records without zeros or a grid: nothing to save but what the round itself wastes."""

from __future__ import annotations

from tacit.bench.base import BENCHMARKS, Benchmark
from tacit.bench.inputs import RECORDS, SMALL, dense
from tacit.bench.one_round import one_round
from tacit.bench.options import Options
from tacit.bench.report import Report

NAME = "dense-round"


def run(options: Options) -> Report:
    """Ten agents, MNIST's shape."""
    return one_round(NAME, dense(SMALL if options.small else RECORDS), options)


BENCHMARKS.register(NAME)(Benchmark("the same on dense uniform records of the same shape", run))
