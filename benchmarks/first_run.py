"""What `tacit run` with no argument gives, over five seeds: the figures and the picture of the README.

    python -m benchmarks.first_run

Writes benchmarks/results/first_run.json and docs/images/first_run.png. Times are ratios: one local update of all
agents (clipped gradient, noise, step) against its two bare matrix products, measured in the same run.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

import tacit
from tacit.settings.settings import SHOWCASE
from tacit.views.plots import figure
from tacit.views.style import save

SEEDS = 5


def errors(run: tacit.Run) -> dict[str, dict[str, float]]:
    """Mean, best and worst test error of each setting."""
    groups: dict[str, list[float]] = {}
    for entry in run.runs:
        groups.setdefault(f"{entry['algorithm']} {entry['epsilon']}", []).append(entry["test_error"])
    return {label: {"mean": fmean(e), "min": min(e), "max": max(e)} for label, e in groups.items()}


def update_ratio() -> float:
    """Seconds of one local update of one run over those of its bare matrix products, with R = 1."""
    with tempfile.TemporaryDirectory() as folder:
        alone = tacit.run(
            algorithm="objpm", total_epsilon=1, rounds=5, evaluate_every=5, averages=False, out=f"{folder}/r"
        )
        per_update = alone.runs[0]["seconds"] / (5 * 10)
    x = np.random.default_rng(0).random((6000, 196))
    z, r = np.zeros((196, 10)), np.zeros((6000, 10))
    return float(per_update) / (10 * (_seconds(lambda: x @ z) + _seconds(lambda: x.T @ r)))


def _seconds(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(50):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = tacit.run(seeds=SEEDS, out=f"{folder}/r", **SHOWCASE)
        save(figure([run.folder]), Path("docs/images/first_run.png"))
        result = {
            "what": "tacit run with no argument (mnist14, 10 agents), test error over seeds 1 to 5",
            "rounds": run.runs[0]["rounds"],
            "test_error": errors(run),
            "update_over_its_matrix_products": round(update_ratio(), 2),
        }
    Path("benchmarks/results/first_run.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
