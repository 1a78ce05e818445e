"""A whole study's runs side by side: 10 seeds at 4 budgets share every pass over the records."""

from __future__ import annotations

from tacit.bench.base import BENCHMARKS, Benchmark
from tacit.bench.inputs import mnist
from tacit.bench.options import Options
from tacit.bench.others import NUMPY_PRODUCTS, TORCH_PRODUCTS, products, without
from tacit.bench.report import Report
from tacit.bench.rounds import grid, tacit_rounds
from tacit.bench.timing import fastest, interleaved

NAME = "batch"
EPSILONS, SEEDS = (0.05, 0.1, 1.0, 5.0), 10
TACIT, ALONE = "Tacit's round, 40 runs", "Tacit's round, one run"


def run(options: Options) -> Report:
    """A round of all runs beside the two products as wide as all of them."""
    given = mnist(options)
    budgets, seeds = grid(EPSILONS, SEEDS)
    candidates = {
        TACIT: tacit_rounds(given.shards, budgets, seeds),
        **products(given.x, len(budgets) * given.shape[-1]),
        ALONE: tacit_rounds(given.shards),
    }
    timings = interleaved(candidates, options, burst=1)
    own = timings[TACIT].best
    figures = {
        "ratio_to_matmul": own / fastest(timings, NUMPY_PRODUCTS, TORCH_PRODUCTS),
        "runs": len(budgets),
        "cost_of_a_run_alone": own / len(budgets) / timings[ALONE].best,
        "data": given.what,
    }
    title = f"One objp round of {len(budgets)} runs at once (10 seeds x 4 budgets), {len(given.shards)} agents"
    notes = (f"records: {given.what}", "cost_of_a_run_alone: a run of the batch, as a share of one by itself")
    return Report(NAME, title, figures, timings, notes=(*notes, *without("torch")))


BENCHMARKS.register(NAME)(Benchmark("40 runs side by side beside matrix products of the same width", run))
