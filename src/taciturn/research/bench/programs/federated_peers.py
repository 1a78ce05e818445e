"""Other federated systems on the same task: Flower's simulation and APPFL's IIADMM, if they are installed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from taciturn.research.bench import flower_program as flower
from taciturn.research.bench import peers as appfl
from taciturn.research.bench.benchmark import BENCHMARKS, Benchmark, Report
from taciturn.research.bench.inputs import Input, mnist
from taciturn.research.bench.measured_rounds import taciturn_rounds
from taciturn.research.bench.timing import Options, Timing, time_interleaved

NAME = "peers"
TACITURN, FLOWER, APPFL = "Taciturn's objp", "Flower, simulated, FedAvg", "APPFL, IIADMM"
INSTALL = "pip install torch 'flwr[simulation]' appfl"


def run(options: Options) -> Report:
    """Time a round on MNIST with ten clients, one full-batch step each."""
    given = mnist(options)
    candidates: dict[str, Callable[[], object]] = {TACITURN: taciturn_rounds(given.shards)}
    if appfl.installed():
        candidates[APPFL] = appfl.rounds(given.shards)
    timings = time_interleaved(candidates, options)
    if flower.installed():
        timings[FLOWER] = _flower(given, options)
    own = timings[TACITURN].best
    figures: dict[str, object] = {
        "speedup_over_flower": timings[FLOWER].best / own if FLOWER in timings else None,
        "speedup_over_appfl": timings[APPFL].best / own if APPFL in timings else None,
        "data": given.what,
    }
    agents, records, features, classes = given.shape
    title = f"One round, {agents} clients, {records:,} records x {features} features, {classes} classes, one step"
    return Report(NAME, title, figures, timings, notes=(f"records: {given.what}", *_notes(timings)))


def _flower(given: Input, options: Options) -> Timing:
    """Time rounds that follow each other in a separate process; the first one warms up."""
    options.watch(f"Flower's simulation, {options.repeats + 1} rounds")
    with tempfile.TemporaryDirectory() as folder:
        found = flower.seconds_of_rounds(given.shards, options.repeats + 1, Path(folder))[1:]
    return Timing(min(found), median(found), len(found))


def _notes(timings: dict[str, Timing]) -> list[str]:
    said = {
        FLOWER: "Flower: federated averaging, no noise, one Ray worker a core, records kept by the workers; it looks "
        "for answers every 0.1 s, and its rounds were timed after the others'",
        APPFL: "APPFL: its trainers, data loaders and aggregator in one process, output perturbation at epsilon 1, "
        "and without the garbage collections it makes by default",
    }
    lacking = [name for name in said if name not in timings]
    return [said[name] for name in said if name in timings] + [
        f"{name.split(',')[0]} is not installed: left out ({INSTALL}, in a separate environment)" for name in lacking
    ]


BENCHMARKS.register(NAME)(
    Benchmark("a round in Flower's simulation and in APPFL, where they are installed", "minutes", run, alone=False)
)
