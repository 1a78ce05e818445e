"""Benchmarks of one round: dense and MNIST records, many runs together, many agents."""

from __future__ import annotations

from taciturn.algorithms.server import SumsState
from taciturn.research.bench.benchmark import BENCHMARKS, Benchmark, Report
from taciturn.research.bench.inputs import RECORDS, SMALL, dense, mnist
from taciturn.research.bench.measured_rounds import (
    NUMPY_PRODUCTS,
    TORCH_PRODUCTS,
    grid,
    missing_packages,
    one_round,
    pooled_rounds,
    products,
    taciturn_rounds,
)
from taciturn.research.bench.timing import Options, fastest, time_interleaved
from taciturn.training.simulate import Round

DENSE_ROUND = "dense-round"


def run_dense_round(options: Options) -> Report:
    """Time ten agents with MNIST's shape."""
    return one_round(DENSE_ROUND, dense(SMALL if options.small else RECORDS), options)


BENCHMARKS.register(DENSE_ROUND)(
    Benchmark(
        "one round on dense uniform records of MNIST's shape, with the same comparisons as mnist-round",
        "a minute",
        run_dense_round,
        goals={"ratio_to_matmul": 0.33, "ratio_to_floor": 1.5},
    )
)


MNIST_ROUND = "mnist-round"


def run_mnist_round(options: Options) -> Report:
    """Time ten agents in file order."""
    return one_round(MNIST_ROUND, mnist(options), options)


BENCHMARKS.register(MNIST_ROUND)(
    Benchmark(
        "one round on MNIST, compared with bare matrix products, the plain round and other libraries' gradients",
        "a minute",
        run_mnist_round,
        goals={"ratio_to_matmul": 0.18, "ratio_to_floor": 4.0},
    )
)


BATCH = "batch"
EPSILONS, SEEDS = (0.05, 0.1, 1.0, 5.0), 10
TACITURN_BATCH, ALONE = "Taciturn's round, 40 runs", "Taciturn's round, one run"


def run_batch(options: Options) -> Report:
    """Time a round of all runs, and the two products as wide as all of them."""
    given = mnist(options)
    budgets, seeds = grid(EPSILONS, SEEDS)
    candidates = {
        TACITURN_BATCH: taciturn_rounds(given.shards, budgets, seeds),
        **products(given.x, len(budgets) * given.shape[-1]),
        ALONE: taciturn_rounds(given.shards),
    }
    timings = time_interleaved(candidates, options, burst=1)
    own = timings[TACITURN_BATCH].best
    figures = {
        "ratio_to_matmul": own / fastest(timings, NUMPY_PRODUCTS, TORCH_PRODUCTS),
        "runs": len(budgets),
        "cost_of_a_run_alone": own / len(budgets) / timings[ALONE].best,
        "data": given.what,
    }
    title = f"One objp round of {len(budgets)} runs at once (10 seeds x 4 budgets), {len(given.shards)} agents"
    notes = (f"records: {given.what}", "cost_of_a_run_alone: a run of the batch, as a share of one run alone")
    return Report(BATCH, title, figures, timings, notes=(*notes, *missing_packages("torch")))


BENCHMARKS.register(BATCH)(
    Benchmark(
        "40 runs side by side, compared with matrix products of the same width",
        "a minute",
        run_batch,
        goals={"ratio_to_matmul": 0.5},
    )
)


AGENTS = "agents"
MANY, FEW, RECORDS_EACH, FEATURES, CLASSES = 10_000, 100, 100, 100, 10
SMALL_AGENTS = 20  # agents
TACITURN_AGENTS, TACITURN_SUMS = "Taciturn's round", "Taciturn's round of dpgd, --simulate sums"


def run_agents(options: Options) -> Report:
    """Time a round of all agents, and the products over all their records."""
    agents = SMALL_AGENTS if options.small else MANY
    options.watch("making records")
    given = dense(agents * RECORDS_EACH, FEATURES, agents, CLASSES)
    play = taciturn_rounds(given.shards)
    candidates = {TACITURN_AGENTS: play, TACITURN_SUMS: pooled_rounds(given.shards), **products(given.x, CLASSES)}
    timings = time_interleaved(candidates, options, burst=1)
    few = dense(FEW * RECORDS_EACH, FEATURES, FEW, CLASSES)
    state = {FEW: server_bytes(taciturn_rounds(few.shards)()), agents: server_bytes(play())}
    multiplied = fastest(timings, NUMPY_PRODUCTS, TORCH_PRODUCTS)
    figures = {
        "seconds_per_round": timings[TACITURN_AGENTS].best,
        "ratio_to_matmul": timings[TACITURN_AGENTS].best / multiplied,
        "ratio_to_matmul_of_sums": timings[TACITURN_SUMS].best / multiplied,
        "microseconds_per_agent": timings[TACITURN_AGENTS].best / agents * 1e6,
        "agents": agents,
        "data": given.what,
        "server_bytes": {str(p): size for p, size in state.items()},
    }
    title = f"One objp round, {agents:,} agents with {RECORDS_EACH} records of {FEATURES} features each"
    said = ", ".join(f"{size:,} bytes for {p:,} agents" for p, size in state.items())
    notes = (f"records: {given.what}", f"state of the server: {said}", *missing_packages("torch"))
    return Report(AGENTS, title, figures, timings, notes=notes)


def server_bytes(done: Round) -> int:
    """Return the bytes that the server keeps between rounds."""
    server = done.state.server
    assert isinstance(server, SumsState)
    return int(server.z.nbytes + server.lam.nbytes)


BENCHMARKS.register(AGENTS)(
    Benchmark(
        "10,000 agents: seconds of a round, and bytes of the server's state",
        "a minute",
        run_agents,
        goals={"ratio_to_matmul": 2.0, "ratio_to_matmul_of_sums": 2.0},
    )
)
