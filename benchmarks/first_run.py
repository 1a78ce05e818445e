"""Test error and time of `taciturn run` without arguments, over five seeds, compared with no noise.

    taciturn bench first-run

Writes benchmarks/results/first_run.json and docs/images/first_run.png, which the tour shows. Seconds of training are
those of the machine; the file also has their ratio to the bare matrix products of all rounds, measured in the same run.

Takes minutes.
"""

from __future__ import annotations

import math
import os
import tempfile

import numpy as np
from benchmarks.program import DOCS, arguments, spread, write_results

import taciturn
from taciturn.reporting.figures.run_figure import figure
from taciturn.reporting.figures.style import save
from taciturn.research.bench.timing import median_seconds

SEEDS, CALLS = 5, 50


def errors(run: taciturn.Run) -> dict[str, dict[str, float]]:
    """Mean, best and worst test error of each budget."""
    groups: dict[str, list[float]] = {}
    for entry in run.runs:
        groups.setdefault(f"{entry['algorithm']} {entry['epsilon']}", []).append(entry["test_error"])
    return {label: spread(found) for label, found in groups.items()}


def training() -> dict[str, float]:
    """Seconds of the default run's training, and over those of its bare matrix products."""
    with tempfile.TemporaryDirectory() as folder:
        alone = taciturn.run(out=f"{folder}/r")
        seconds, rounds, (features, outputs) = alone.runs[0]["seconds"], alone.runs[0]["rounds"], alone.w.shape
    x = np.random.default_rng(0).random((6000, features))
    z, r = np.zeros((features, outputs)), np.zeros((6000, outputs))
    products = 10 * rounds * (median_seconds(lambda: x @ z, CALLS) + median_seconds(lambda: x.T @ r, CALLS))
    return {"seconds": round(seconds, 1), "over_its_matrix_products": round(seconds / products, 2)}


def main() -> None:
    """Train, draw, write."""
    given = arguments(__doc__, "first_run").parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = taciturn.run(total_epsilon=(1.0, math.inf), seeds=SEEDS, evaluate_every=3, out=f"{folder}/r")
        save(figure([run.folder]), DOCS / "images" / "first_run.png")
        result = {
            "what": "taciturn run without arguments (mnist14, 10 agents, total epsilon 1), and without noise; 5 seeds",
            "rounds": run.runs[0]["rounds"],
            "test_error": errors(run),
            "training": training() | {"cores": os.cpu_count()},
        }
    write_results(given.out, result, show=True)


if __name__ == "__main__":
    main()
