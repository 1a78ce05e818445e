"""How a job ended, left in the run folder for whoever started it."""

from __future__ import annotations

import json

from tacit.errors import InputError
from tacit.federation.coordinator import FAILED
from tacit.results.files import to_json, write_text
from tacit.results.folder import RunFolder


def write_outcome(folder: RunFolder, leg: int, outcome: str, reason: str = "") -> None:
    """Replace what was there."""
    found = {"leg": leg, "outcome": outcome, "reason": reason}
    write_text(folder.checkpoints / "outcome.json", to_json(found) + "\n")


def read_outcome(folder: RunFolder, leg: int) -> str | None:
    """How this leg ended; None while it goes on. What failed at the coordinator is an error here too."""
    try:
        found = json.loads((folder.checkpoints / "outcome.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if found["leg"] != leg:
        return None
    if found["outcome"] == FAILED:
        raise InputError(found["reason"])
    return str(found["outcome"])
