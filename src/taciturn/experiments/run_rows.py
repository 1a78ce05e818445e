"""Results of the runs of an experiment, one typed row for each, and the CSV files they are written to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taciturn.core.storage import write_text
from taciturn.errors import CorruptFile
from taciturn.experiments.grid import GridPoint
from taciturn.reporting.tables import csv_text
from taciturn.runs.folder import RunFolder

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


@dataclass(frozen=True)
class RunRow:
    """Settings, seed and results of one run; a result that is private or was not measured is None.

    Examples
    --------
    >>> row = RunRow("1-clip=2", 0, {"clip": 2.0}, "objp", 1.0, seed=1, test_error=0.25)
    >>> row.setting("clip"), row.setting("algorithm"), row.error
    (2.0, 'objp', 0.25)
    """

    point: str  # name of the grid point, which is also the name of its run folder
    run: int  # index within the run folder
    values: Mapping[str, object]  # the settings that vary between grid points
    algorithm: str
    epsilon: float  # as requested; infinite without noise
    seed: int | None = None  # None for hardened noise
    rounds: int = 0
    test_error: float | None = None
    train_objective: float | None = None
    consensus_residual: float | None = None
    noise: float | None = None
    seconds: float | None = None
    bytes_up: int = 0  # sent by all agents in all rounds
    bytes_down: int = 0
    spent_epsilon: float = math.inf  # by the ledger

    @property
    def error(self) -> float:
        """The test error.

        Raises
        ------
        CorruptFile
            If the row has none, because the run's local-only folder is missing.
        """
        if self.test_error is None:
            raise CorruptFile(f"{self.point} has no test errors to compare; is its local-only folder missing?")
        return self.test_error

    def setting(self, name: str) -> Any:
        """Return the value of a varied setting, or of `algorithm`, `epsilon` or `seed`."""
        return self.values[name] if name in self.values else getattr(self, name)

    def cells(self) -> dict[str, object]:
        """Return the row as cells of a CSV file, with the varied settings after point and run."""
        found = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return {name: found.pop(name) for name in ("point", "run")} | dict(found.pop("values")) | found


def read_rows(point: GridPoint, folder: RunFolder, local: bool) -> list[RunRow]:
    """Read the results of all runs in a run folder.

    Parameters
    ----------
    point : GridPoint
        The grid point that the folder belongs to.
    folder : RunFolder
        A run folder whose runs have finished.
    local : bool
        Whether to include figures from the local-only folder, which are for the owner of the records.
    """
    summary = folder.read_summary(local)
    spent = {run.run: run.spent_epsilon for run in summary.privacy.runs}
    return [
        RunRow(
            point=point.name,
            run=index,
            values=point.values,
            algorithm=entry.algorithm,
            epsilon=float(entry.epsilon),
            seed=entry.seed,
            **{name: getattr(entry, name) for name in MEASURES},
            spent_epsilon=float(spent.get(index, math.inf)),
        )
        for index, entry in enumerate(summary.runs)
    ]


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows to a CSV file; None becomes an empty cell and infinity `inf`."""
    plain = [{name: "inf" if value == math.inf else value for name, value in row.items()} for row in rows]
    write_text(path, csv_text(plain))
