"""What `taciturn run` with no argument gives, over five seeds and beside no noise: figures and picture of the README.

    python -m benchmarks.first_run

Writes benchmarks/results/first_run.json and docs/images/first_run.png. Seconds of training are this machine's; with
them stands their ratio to the bare matrix products of all rounds, measured in the same run.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

import taciturn
from taciturn.reporting.figures.run_figure import figure
from taciturn.reporting.figures.style import save

SEEDS = 5


def errors(run: taciturn.Run) -> dict[str, dict[str, float]]:
    """Mean, best and worst test error of each budget."""
    groups: dict[str, list[float]] = {}
    for entry in run.runs:
        groups.setdefault(f"{entry['algorithm']} {entry['epsilon']}", []).append(entry["test_error"])
    return {label: {"mean": fmean(e), "min": min(e), "max": max(e)} for label, e in groups.items()}


def training() -> dict[str, float]:
    """Seconds of the default run's training, and over those of its bare matrix products."""
    with tempfile.TemporaryDirectory() as folder:
        alone = taciturn.run(out=f"{folder}/r")
        seconds, rounds, (features, outputs) = alone.runs[0]["seconds"], alone.runs[0]["rounds"], alone.w.shape
    x = np.random.default_rng(0).random((6000, features))
    z, r = np.zeros((features, outputs)), np.zeros((6000, outputs))
    products = 10 * rounds * (_seconds(lambda: x @ z) + _seconds(lambda: x.T @ r))
    return {"seconds": round(seconds, 1), "over_its_matrix_products": round(seconds / products, 2)}


def _seconds(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(50):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)


def main() -> None:
    """Train, draw, write."""
    with tempfile.TemporaryDirectory() as folder:
        run = taciturn.run(total_epsilon=(1.0, math.inf), seeds=SEEDS, evaluate_every=3, out=f"{folder}/r")
        save(figure([run.folder]), Path("docs/images/first_run.png"))
        result = {
            "what": "taciturn run without arguments (mnist14, 10 agents, total epsilon 1), and without noise; 5 seeds",
            "rounds": run.runs[0]["rounds"],
            "test_error": errors(run),
            "training": training() | {"cores": os.cpu_count()},
        }
    Path("benchmarks/results/first_run.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
