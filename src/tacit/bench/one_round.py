"""One round among ten agents beside its peers; the benchmarks differ in the records they give it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.bench.inputs import Input
from tacit.bench.options import Options
from tacit.bench.others import (
    NUMPY_PRODUCTS,
    SQUARE,
    TORCH_PRODUCTS,
    gradients,
    products,
    read,
    square_product,
    without,
)
from tacit.bench.plain import Pair, plain_rounds
from tacit.bench.report import Report
from tacit.bench.rounds import held_bytes, multiplications, tacit_rounds
from tacit.bench.timing import Timing, fastest, interleaved

TACIT, PLAIN, READ = "Tacit's round", "the plain round, float64", "reading the records once"
MULTIPLY = "multiplying at the machine's best pace"
CHECKED = 2  # rounds


def one_round(name: str, given: Input, options: Options) -> Report:
    """Time Tacit's round, the same round written the plain way, and the floors beneath them."""
    agents, records, features, classes = given.shape
    plain = [(np.asarray(shard.x, np.float64), np.asarray(shard.y, np.float64)) for shard in given.shards]
    candidates = {
        TACIT: tacit_rounds(given.shards),
        PLAIN: plain_rounds(plain),
        **products(given.x, classes),
        **gradients(given.x, given.labels, classes),
        READ: read(held_bytes(given.shards)),
        MULTIPLY: square_product(),
    }
    timings = interleaved(candidates, options)
    timings[MULTIPLY] = timings[MULTIPLY].scaled(multiplications(given.shards) / SQUARE**3)
    options.watch("comparing with the plain round")
    figures = _figures(timings) | {
        "difference_from_plain": difference(given, plain),
        "data": given.what,
        "agents": agents,
        "records": records,
        "features": features,
        "classes": classes,
        "held_bytes": held_bytes(given.shards),
    }
    title = f"One objp round, {agents} agents, {records:,} records x {features} features, {classes} classes"
    return Report(name, title, figures, timings, notes=_notes(given))


def _figures(timings: dict[str, Timing]) -> dict[str, Any]:
    """The floor is the larger of two: reading what is held once, and its multiplications at the machine's best pace."""
    own, multiplying = timings[TACIT].best, timings[MULTIPLY].best
    return {
        "ratio_to_matmul": own / fastest(timings, NUMPY_PRODUCTS, TORCH_PRODUCTS),
        "speedup_over_plain": timings[PLAIN].best / own,
        "ratio_to_floor": own / max(timings[READ].best, multiplying),
        "seconds_of_floor": {"reading": timings[READ].best, "multiplying": multiplying},
    }


def difference(given: Input, plain: list[Pair]) -> float:
    """How far the two models are apart after rounds without noise, relative to the largest parameter."""
    ours, theirs = tacit_rounds(given.shards, (math.inf,)), plain_rounds(plain, math.inf)
    for _ in range(CHECKED):
        w, expected = ours().w[:, 0], theirs()
    return float(np.abs(w - expected).max() / np.abs(expected).max())


def _notes(given: Input) -> tuple[str, ...]:
    return (
        f"records: {given.what}",
        "float32, mode paper, epsilon 1, one run; gradient, norms of every record, noise, update and dual",
        f"the best pace of multiplying is that of a product of two square matrices of {SQUARE} rows",
        "gradients alone have no agents, norms, noise or update: they bound a step that is not federated",
        *without("torch", "sklearn"),
    )
