"""The run folders of a grid that have ended, read together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tacit.results.folder import RunFolder
from tacit.sweeps.folder import SweepFolder
from tacit.sweeps.grid import Grid, Point
from tacit.sweeps.rows import private_test
from tacit.views.compare import predicts_numbers


@dataclass(frozen=True)
class Ended:
    """What a sweep and a frontier know of their runs alike."""

    folder: SweepFolder
    grid: Grid

    @property
    def path(self) -> Path:
        """The folder of all of it."""
        return self.folder.path

    @cached_property
    def regression(self) -> bool:
        """Whether the runs predict numbers rather than classes."""
        return bool(self.ended) and predicts_numbers([folder for _, folder in self.ended])

    @cached_property
    def private(self) -> bool:
        """Whether test errors are computed from private records, and are for their owner alone."""
        return any(private_test(folder) for _, folder in self.ended)

    @cached_property
    def ended(self) -> list[tuple[Point, RunFolder]]:
        """The points whose runs came to an end, with their folders."""
        found = [(point, RunFolder(self.folder.run(point))) for point in self.grid.points]
        return [(point, folder) for point, folder in found if folder.finished]
