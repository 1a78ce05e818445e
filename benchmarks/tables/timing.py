"""From a CSV file to a report: wall and processor time over those of scikit-learn's plain fit of the same file."""

from __future__ import annotations

import math
import resource
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
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

    Processor time depends less on what else the machine does.
    Taciturn's noise is what a user gets who sets nothing: the operating system's.
    """
    source, folder = TABLES[TABLE], WORK / "timed"
    path = source.write_whole()
    commands = {SCIKIT_LEARN: [sys.executable, "-c", PLAIN_FIT, str(path), source.schema.label]}
    for epsilon in EPSILONS:
        command = run_command(source, path, len(source.rows), source.parties, epsilon)
        commands[f"taciturn, epsilon {epsilon:g}"] = [*command, "--out", str(folder)]
    wall: dict[str, list[float]] = {name: [] for name in commands}
    processor: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(REPEATS):
        for name, command in commands.items():
            shutil.rmtree(folder, ignore_errors=True)
            began, used = time.perf_counter(), _processor_seconds()
            call(command)
            wall[name].append(time.perf_counter() - began)
            processor[name].append(_processor_seconds() - used)
        last = (f"{name}: {wall[name][-1]:.2f} s, processor {processor[name][-1]:.2f} s" for name in commands)
        print("time:", "; ".join(last), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "table": TABLE,
        "parties": source.parties,
        "processes": REPEATS,
        "seconds": _medians(wall),
        "over_scikit_learn": _ratios(wall),
        "processor_seconds": _medians(processor),
        "processor_over_scikit_learn": _ratios(processor),
    }


def _processor_seconds() -> float:
    """Return the processor time of all child processes that have ended: of all their threads, user and system."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: round(median(found), 3) for name, found in seconds.items()}


def _ratios(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    base = median(seconds[SCIKIT_LEARN])
    return {name: round(median(found) / base, 3) for name, found in seconds.items()}
