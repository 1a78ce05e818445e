"""The runs of a sweep as rows, read from their run folders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tacit.errors import InputError
from tacit.results.folder import RunFolder
from tacit.sweeps.grid import Point

MEASURES = (
    "rounds",
    "test_error",
    "train_objective",
    "consensus_residual",
    "noise",
    "seconds",
    "bytes_up",
    "bytes_down",
)


def rows_of(point: Point, folder: RunFolder, local: bool) -> list[dict[str, Any]]:
    """One row for each run: its settings, seed and measures; not local: those that anybody may see."""
    summary = folder.read_summary(local)
    spent = {run["run"]: run["spent_epsilon"] for run in summary["privacy"]["runs"]}
    rows = [
        {
            "point": point.name,
            "run": index,
            **point.values,
            "algorithm": entry["algorithm"],
            "epsilon": float(entry["epsilon"]),
            "seed": entry.get("seed"),  # hardened noise has none
            **{name: entry[name] for name in MEASURES},
            "spent_epsilon": float(spent.get(index, math.inf)),
        }
        for index, entry in enumerate(summary["runs"])
    ]
    if local and any(row["test_error"] is None for row in rows):
        raise InputError(f"{folder.path} has no test errors to compare: is its local-only folder gone?")
    return rows


def private_test(folder: RunFolder) -> bool:
    """Whether the test error comes from private records, and is the owner's alone."""
    return any(_private(entry) for entry in folder.read_summary(local=False)["runs"])


def _private(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("private_test"))
