"""A federated run in a few figures."""

from __future__ import annotations

from typing import Any

from tacit.results.folder import RunFolder, read_lines


def federated(folder: RunFolder) -> dict[str, Any]:
    """Rounds, sites and bytes, from the public files of the run folder."""
    rows = list(read_lines(folder.path / "rounds.jsonl"))
    answered: dict[str, int] = {}
    for row in rows:
        for site in row["answered"]:
            answered[site] = answered.get(site, 0) + 1
    return {
        "rounds": len(rows),
        "answered": answered,
        "rejected": sum(len(row["rejected"]) for row in rows),
        "bytes_up": sum(row["bytes_up"] for row in rows),
        "bytes_down": sum(row["bytes_down"] for row in rows),
    }
