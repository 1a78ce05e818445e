"""The metrics of a run as other programs take them: by name and round, with the owner's figures named as such."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from taciturn.errors import InputError
from taciturn.export.target import ExportRequest
from taciturn.reporting.curves import run_label
from taciturn.runs.folder import read_lines
from taciturn.runs.records import MetricsRow

LABELS = ("run", "algorithm", "epsilon", "seed", "round")
OWNERS = "local_only/"  # goes before the name of a metric that is computed from private records without noise


class MetricSeries(NamedTuple):
    """One run of a folder."""

    number: int  # among the folder's runs
    algorithm: str
    epsilon: float
    seed: int | None  # None: its noise has none
    rows: list[tuple[int, dict[str, float]]]  # round -> name -> value

    @property
    def label(self) -> str:
        """What the run is called."""
        return run_label(self.algorithm, self.epsilon) + ("" if self.seed is None else f", seed {self.seed}")

    @property
    def seeded(self) -> dict[str, int]:
        """Its seed by that name; nothing where its noise has none."""
        return {} if self.seed is None else {"seed": self.seed}

    @property
    def folder_name(self) -> str:
        """What a folder of it is called."""
        budget = "no-noise" if self.epsilon == float("inf") else f"epsilon-{self.epsilon:g}"
        return f"{self.number}-{self.algorithm}-{budget}" + ("" if self.seed is None else f"-seed-{self.seed}")


def read_metrics(request: ExportRequest) -> list[MetricSeries]:
    """The runs asked for, with every figure that was measured and may be taken along."""
    private = private_names(request)
    found: dict[int, list[MetricsRow]] = {}
    for row in request.folder.read_metrics(request.with_local):
        found.setdefault(row.run, []).append(row)
    if not found:
        raise InputError(f"{request.folder.path} has no evaluated round yet: there is nothing to export")
    if request.run is not None and request.run not in found:
        raise InputError(
            f"there is no run {request.run} in {request.folder.path}: its runs are 0 to {max(found)} (taciturn show)"
        )
    chosen = found if request.run is None else {request.run: found[request.run]}
    return [_metrics(number, rows, private) for number, rows in sorted(chosen.items())]


def private_names(request: ExportRequest) -> tuple[str, ...]:
    """The metrics that are for the owner of the records alone."""
    if not request.folder.has_local:
        return ()
    first = next(read_lines(request.folder.local_metrics), {})
    return tuple(name for name in first if name not in LABELS)


def said_about(request: ExportRequest) -> list[str]:
    """What to say about the owner's figures, where there are any."""
    private = private_names(request)
    if not private:
        return []
    names = ", ".join(private)
    if request.with_local:
        return [f"with {names} under {OWNERS}: computed from private records without noise, for their owner alone"]
    return [f"without {names}: computed from private records without noise (--with-local takes them along)"]


def _metrics(number: int, rows: Sequence[MetricsRow], private: Sequence[str]) -> MetricSeries:
    first = rows[0]
    values = [
        (
            int(row["round"]),
            {
                f"{OWNERS if name in private else ''}{name}": float(value)
                for name, value in row.items()
                if name not in LABELS and value is not None
            },
        )
        for row in rows
    ]
    return MetricSeries(number, first["algorithm"], float(first["epsilon"]), first.get("seed"), values)
