"""Metrics as a CSV file: every row, and in its name whether it holds what is the owner's alone."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from tacit.dashboard.find import Found
from tacit.results.folder import RunFolder

COLUMNS = (
    *("folder", "run", "algorithm", "epsilon", "seed", "round", "test_error", "train_objective"),
    *("consensus_residual", "noise", "rho", "eta", "seconds", "bytes_up", "bytes_down"),
)


def csv_name(found: Sequence[Found], local: bool) -> str:
    """What the file is called."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", found[0].name) if len(found) == 1 else f"{len(found)}-runs"
    return f"{name.strip('-.') or 'run'}{'-local-only' if local else ''}.csv"


def holds_local(found: Sequence[Found]) -> bool:
    """Whether some of these runs have figures computed without noise."""
    return any(RunFolder(one.path).has_local for one in found)


def csv_rows(found: Sequence[Found], local: bool) -> Iterator[str]:
    """The text, run by run."""
    yield ",".join(COLUMNS) + "\n"
    for one in found:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writerows({"folder": one.name, **row} for row in RunFolder(one.path).read_metrics(local))
        yield text.getvalue()
