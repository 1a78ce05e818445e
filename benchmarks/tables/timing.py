"""From a CSV file to a report: seconds over those of scikit-learn's plain fit of the same file."""

from __future__ import annotations

import math
import shutil
import sys
import time
from statistics import median
from typing import Any

from benchmarks.tables.own_runs import call, run_command
from benchmarks.tables.splits import TABLES, WORK

TABLE, EPSILONS, REPEATS = "adult", (1.0, math.inf), 5
SCIKIT_LEARN = "scikit-learn"
PLAIN_FIT = """
import sys
import pandas
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

frame = pandas.read_csv(sys.argv[1])
y = frame.pop(sys.argv[2])
numbers, others = make_column_selector(dtype_include="number"), make_column_selector(dtype_exclude="number")
encoder = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), others))
make_pipeline(encoder, LogisticRegression(max_iter=1000)).fit(frame, y)
"""


def measure() -> dict[str, Any]:
    """Return medians of fresh processes that take turns, and what they are over scikit-learn's.

    Taciturn's noise is what a user gets who sets nothing: the operating system's.
    """
    source, folder = TABLES[TABLE], WORK / "timed"
    path = source.write_whole()
    commands = {SCIKIT_LEARN: [sys.executable, "-c", PLAIN_FIT, str(path), source.schema.label]}
    for epsilon in EPSILONS:
        command = run_command(source, path, len(source.rows), source.parties, epsilon)
        commands[f"taciturn, epsilon {epsilon:g}"] = [*command, "--out", str(folder)]
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(REPEATS):
        for name, command in commands.items():
            shutil.rmtree(folder, ignore_errors=True)
            began = time.perf_counter()
            call(command)
            seconds[name].append(time.perf_counter() - began)
        print("time:", ", ".join(f"{name}: {found[-1]:.2f} s" for name, found in seconds.items()), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    middle = {name: median(found) for name, found in seconds.items()}
    return {
        "table": TABLE,
        "parties": source.parties,
        "processes": REPEATS,
        "seconds": {name: round(value, 3) for name, value in middle.items()},
        "over_scikit_learn": {name: round(value / middle[SCIKIT_LEARN], 3) for name, value in middle.items()},
    }
