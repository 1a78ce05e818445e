"""Ten thousand agents with few records each: what an agent costs beside its records."""

from __future__ import annotations

from tacit.algorithms.server import Sums
from tacit.bench.base import BENCHMARKS, Benchmark
from tacit.bench.inputs import dense
from tacit.bench.options import Options
from tacit.bench.others import NUMPY_PRODUCTS, TORCH_PRODUCTS, products, without
from tacit.bench.report import Report
from tacit.bench.rounds import tacit_rounds
from tacit.bench.timing import fastest, interleaved
from tacit.engine.simulate import Round

NAME = "agents"
MANY, FEW, RECORDS, FEATURES, CLASSES = 10_000, 100, 100, 100, 10
SMALL = 20  # agents
TACIT = "Tacit's round"


def run(options: Options) -> Report:
    """A round of all agents beside the products over all their records."""
    agents = SMALL if options.small else MANY
    options.watch("making records")
    given = dense(agents * RECORDS, FEATURES, agents, CLASSES)
    play = tacit_rounds(given.shards)
    candidates = {TACIT: play, **products(given.x, CLASSES)}
    timings = interleaved(candidates, options, burst=1)
    few = dense(FEW * RECORDS, FEATURES, FEW, CLASSES)
    state = {FEW: server_bytes(tacit_rounds(few.shards)()), agents: server_bytes(play())}
    figures = {
        "seconds_per_round": timings[TACIT].best,
        "ratio_to_matmul": timings[TACIT].best / fastest(timings, NUMPY_PRODUCTS, TORCH_PRODUCTS),
        "microseconds_per_agent": timings[TACIT].best / agents * 1e6,
        "agents": agents,
        "data": given.what,
        "server_bytes": {str(p): size for p, size in state.items()},
    }
    title = f"One objp round, {agents:,} agents with {RECORDS} records of {FEATURES} features each"
    said = ", ".join(f"{size:,} bytes for {p:,} agents" for p, size in state.items())
    notes = (f"records: {given.what}", f"state of the server: {said}", *without("torch"))
    return Report(NAME, title, figures, timings, notes=notes)


def server_bytes(done: Round) -> int:
    """What the server keeps between rounds."""
    server = done.state.server
    assert isinstance(server, Sums)
    return int(server.z.nbytes + server.lam.nbytes)


BENCHMARKS.register(NAME)(Benchmark("10,000 agents: seconds of a round, and bytes of the server's state", run))
