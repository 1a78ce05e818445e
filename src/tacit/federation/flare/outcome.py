"""How a job ended, left in the run folder for whoever started it."""

from __future__ import annotations

import json

from tacit.results.files import to_json, write_text
from tacit.results.folder import RunFolder


def write_outcome(folder: RunFolder, leg: int, outcome: str) -> None:
    """Replace what was there."""
    write_text(folder.checkpoints / "outcome.json", to_json({"leg": leg, "outcome": outcome}) + "\n")


def read_outcome(folder: RunFolder, leg: int) -> str | None:
    """How this leg ended; None while it goes on."""
    try:
        found = json.loads((folder.checkpoints / "outcome.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(found["outcome"]) if found["leg"] == leg else None
