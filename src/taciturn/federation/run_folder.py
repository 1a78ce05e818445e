"""The run folder of a federated study, at the coordinator and at every site."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.core.storage import flushed_size, move_folder, write_arrays
from taciturn.federation.agreement import Agreement
from taciturn.objectives.metrics import test_error
from taciturn.planning.study import Study
from taciturn.reporting.report import write_report
from taciturn.runs.folder import RunFolder, append_lines, read_lines
from taciturn.runs.records import FederationNote, LedgerEntry, MetricsRow
from taciturn.training.finish import finish, sign
from taciturn.training.setup import initial_files
from taciturn.types import Array, Dataset, Shard


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


def study_of(agreement: Agreement, data: str = "", test: Shard | None = None) -> Study:
    """The study as the run folder knows it; nobody's records are in it. A site gives its own `data`."""
    settings = agreement.outline.settings
    if data:
        settings = replace(settings, data=data)
    facts = agreement.facts._replace(test="none") if data else agreement.facts  # the test records are the coordinator's
    names = (agreement.features, agreement.target)
    dataset = Dataset(agreement.terms.name, agreement.terms.agents, (), test, *names, features_by=settings.features)
    return Study(settings, dataset, agreement.outline.problem, agreement.outline.parts, facts)


def begin_books(
    path: Path,
    study: Study,
    reservation: str = "",
    files: Mapping[str, str] | None = None,
    ledger: Sequence[LedgerEntry] = (),
) -> RunFolder:
    """A new run folder, whole or not at all: it is made beside its place."""
    begun, aside = initial_files(study, reservation), path.with_name(f".{path.name}.new")
    header = replace(begun.header, doubts=(*(begun.header.doubts or ()), "carried"))
    shutil.rmtree(aside, ignore_errors=True)  # what a crash left
    RunFolder.create(aside, {**begun.files, **(files or {})}, [header, *begun.plans, *ledger], begun.local)
    move_folder(aside, path)
    return RunFolder.open(path)


def round_row(study: Study, t: int, w: Array, residual: float, sent: tuple[int, int], test: Shard | None) -> MetricsRow:
    """One round's line of metrics; `sent`: bytes up and down so far. It is public, so it tells no time."""
    part = study.parts[0]
    algorithm = part.algorithm
    return MetricsRow(
        **part.batch.labels()[0],
        round=t,
        test_error=float(test_error(w, test, study.dataset.target)[0]) if test else None,
        train_objective=None,
        consensus_residual=residual,
        noise=float(_magnitude(algorithm)),
        rho=float(algorithm.rho(t)[0, 0]),
        eta=float(part.eta(t)[0, 0]),
        seconds=None,
        bytes_up=sent[0],
        bytes_down=sent[1],
    )


def record_round(folder: RunFolder, row: MetricsRow) -> None:
    """Add a round's line."""
    append_lines(folder.metrics, [row])


def close_books(study: Study, folder: RunFolder, w: Array, title: str, lines: Sequence[str]) -> None:
    """The model, the summary and the report of a study that has ended; `lines` say what its federation came to."""
    file = folder.checkpoints / f"{study.parts[0].batch.algorithm}.npz"
    if not file.exists():
        write_arrays(file, {"w": w})
    flushed_size(folder.metrics)  # they are on the disk before a summary says that they are complete
    finish(study, folder, FederationNote(title=title, lines=tuple(lines)))
    sign(folder)
    write_report(folder)
    folder.hide_times()


def _magnitude(algorithm: Any) -> float:
    """The expected size of the noise in one number of a gradient."""
    return float(np.asarray(algorithm.release.mechanism.magnitude)[0])
