"""The metrics of a run for other programs: by name and round, with those for the data owner marked as such."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from taciturn.errors import InputError
from taciturn.export.target import ExportRequest
from taciturn.reporting.curves import full_label
from taciturn.runs.folder import read_lines
from taciturn.runs.records import MetricsRow

LABELS = ("run", "algorithm", "epsilon", "seed", "round")
LOCAL_PREFIX = "local_only/"  # of the name of a metric computed from private records without noise


class MetricSeries(NamedTuple):
    """The metrics of one run of a folder."""

    number: int  # among the folder's runs
    algorithm: str
    epsilon: float
    seed: int | None  # None: hardened noise, which has no seed
    rows: list[tuple[int, dict[str, float]]]  # round, value by name

    @property
    def label(self) -> str:
        """The run's name for people."""
        return full_label(self)

    @property
    def seed_setting(self) -> dict[str, int]:
        """The seed as a setting; empty if there is none."""
        return {} if self.seed is None else {"seed": self.seed}

    @property
    def folder_name(self) -> str:
        """The run's name as the name of a folder."""
        budget = "no-noise" if self.epsilon == float("inf") else f"epsilon-{self.epsilon:g}"
        return f"{self.number}-{self.algorithm}-{budget}" + ("" if self.seed is None else f"-seed-{self.seed}")


def read_metrics(request: ExportRequest) -> list[MetricSeries]:
    """Return the metrics of the requested runs that were measured and may be exported.

    Raises
    ------
    InputError
        If no round has been evaluated yet, or the requested run does not exist.
    """
    path, local = request.folder.path, local_names(request)
    found: dict[int, list[MetricsRow]] = {}
    for row in request.folder.read_metrics(request.with_local):
        found.setdefault(row.run, []).append(row)
    if not found:
        raise InputError(f"{path} has no evaluated round yet, so there is nothing to export")
    if request.run is not None and request.run not in found:
        raise InputError(f"there is no run {request.run} in {path}: its runs are 0 to {max(found)} (taciturn show)")
    wanted = sorted(found) if request.run is None else [request.run]
    return [_series(number, found[number], local) for number in wanted]


def local_names(request: ExportRequest) -> tuple[str, ...]:
    """Return the names of the metrics that are for the data owner only."""
    if not request.folder.has_local:
        return ()
    first = next(read_lines(request.folder.local_metrics), {})
    return tuple(name for name in first if name not in LABELS)


def local_note(request: ExportRequest) -> list[str]:
    """Return a message about metrics for the data owner only, if there are any."""
    if not (names := ", ".join(local_names(request))):
        return []
    if request.with_local:
        return [f"with {names} under {LOCAL_PREFIX}: computed from private records without noise, for their owner only"]
    return [f"without {names}: computed from private records without noise (--with-local includes them)"]


def _series(number: int, rows: Sequence[MetricsRow], local: Sequence[str]) -> MetricSeries:
    def values(row: MetricsRow) -> dict[str, float]:
        measured = {name: value for name, value in vars(row).items() if name not in LABELS and value is not None}
        return {f"{LOCAL_PREFIX if name in local else ''}{name}": float(value) for name, value in measured.items()}

    first = rows[0]
    series = [(row.round, values(row)) for row in rows]
    return MetricSeries(number, first.algorithm, first.epsilon, first.seed, series)
