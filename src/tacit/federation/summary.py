"""A federated run in a few figures."""

from __future__ import annotations

import statistics
from typing import Any

from tacit.results.folder import RunFolder, read_lines


def federated(folder: RunFolder) -> dict[str, Any]:
    """Rounds, sites, time and bytes, from the run folder alone."""
    rows = list(read_lines(folder.path / "rounds.jsonl"))
    answered: dict[str, int] = {}
    for row in rows:
        for site in row["answered"]:
            answered[site] = answered.get(site, 0) + 1
    return {
        "rounds": len(rows),
        "answered": answered,
        "rejected": sum(len(row["rejected"]) for row in rows),
        "ms_per_round": statistics.median(row["ms"] for row in rows) if rows else None,
        "bytes_up": sum(row["bytes_up"] for row in rows),
        "bytes_down": sum(row["bytes_down"] for row in rows),
    }
