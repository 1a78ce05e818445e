"""One round on MNIST: most pixels are 0, and all are whole multiples of 1/255."""

from __future__ import annotations

from tacit.bench.base import BENCHMARKS, Benchmark
from tacit.bench.inputs import mnist
from tacit.bench.one_round import one_round
from tacit.bench.options import Options
from tacit.bench.report import Report

NAME = "mnist-round"


def run(options: Options) -> Report:
    """Ten agents in file order."""
    return one_round(NAME, mnist(options), options)


BENCHMARKS.register(NAME)(
    Benchmark("one round on MNIST beside bare matrix products, the plain round and other libraries' gradients", run)
)
