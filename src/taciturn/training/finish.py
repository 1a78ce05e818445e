"""The end of a run: model, summary, settlement with the budget ledger, and signature of the ledger."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from taciturn.algorithms.curve_noise import CurveNoise, KnownCurveNoise
from taciturn.core.storage import read_arrays, to_json, write_arrays, write_text
from taciturn.data import read_schema
from taciturn.data.feature_maps import BINS
from taciturn.errors import CorruptFile, LedgerWarning, PrivacyViolation
from taciturn.objectives import LOSSES
from taciturn.objectives.passes import scores
from taciturn.planning.study import Batch, Study, StudyPart
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.signatures import HEX_ID, Signable
from taciturn.privacy.trust import AGENTS
from taciturn.runs.effects import EffectsRecord, contrasts, run_effects
from taciturn.runs.folder import RunFolder
from taciturn.runs.private_quality import PrivateQuality
from taciturn.runs.quality import Quality, measure_quality
from taciturn.runs.records import (
    FederationNote,
    MetricsRow,
    PrivacyTotals,
    RunResult,
    RunSummary,
    ViolationEntry,
)
from taciturn.training.central import broadcast_to_agents
from taciturn.types import Array, Classes, Dataset, Target
from taciturn.version import VERSION

logger = logging.getLogger(__name__)
AVERAGES = ("w_plain", "w_weighted", "z_smooth", "z_nonsmooth", "z_strong")


def finish(study: Study, folder: RunFolder, federation: FederationNote | None = None) -> None:
    """Write `averages.npz`, `model.npz`, `effects.json` and, last, `summary.json`, which marks the end of the run.

    Parameters
    ----------
    study
        The study, after training.
    folder
        Its run folder, with the last checkpoint of every batch, the metrics and the ledger.
    federation
        What the summary says of the federation, in a federated study.

    Raises
    ------
    PrivacyViolation
        If the ledger adds up to more than the budget of a run; no model is written then.
    """
    totals = folder.read_ledger().totals
    _refuse_overspent(folder, totals)
    stored = [read_arrays(folder.checkpoints / part.batch.checkpoint) for part in study.parts]
    if study.settings.averages:
        _write_averages(study, folder, stored)
    w = np.concatenate([_runs_first(arrays["w"]) for arrays in stored])
    labels = _label_arrays([part.batch for part in study.parts])
    write_arrays(folder.model, {"w": _single(w), **labels, **_names(study.dataset)})
    if (effects := study_effects(study, folder, stored)) is not None:
        write_text(folder.effects, to_json(effects) + "\n")
    runs, private = _results(study, folder, w), study.private_metrics
    ended = time.strftime("%Y-%m-%dT%H:%M:%S%z")  # with the folder's name it tells how long all rounds took
    if private:
        test_is_private = "test_error" in private
        hidden = (*private, "quality") if test_is_private else private
        own = [{name: run[name] for name in hidden if name in run} for run in runs]
        local = {"ended": ended, "data": folder.read_start().data, "runs": own}
        write_text(folder.local / folder.summary.name, to_json(local) + "\n")
        runs = [replace(run.without(hidden), private_test=test_is_private) for run in runs]
    summary = RunSummary(
        taciturn=VERSION,
        ended=ended if study.facts is None else None,
        mode=study.settings.mode,
        privacy=totals,
        data=folder.read_start(local=False).data,
        runs=tuple(runs),
        federation=federation,
    )
    write_text(folder.summary, to_json(summary) + "\n")


def _refuse_overspent(folder: RunFolder, totals: PrivacyTotals) -> None:
    """Raise before a model is written if a run's ledger adds up to more than its budget; it cannot continue."""
    over = next((run for run in totals.runs if run.overspent), None)
    if over is not None:
        reason = (
            f"the ledger of {over.algorithm} adds up to epsilon {over.spent_epsilon:.4g}, more than its "
            f"budget of {over.total_epsilon:g}: nothing of the run may be shown"
        )
        folder.chain.append([ViolationEntry(algorithm=over.algorithm, reason=reason)])
        raise PrivacyViolation(reason)


def _write_averages(study: Study, folder: RunFolder, stored: Sequence[Mapping[str, Array]]) -> None:
    """Write the theorems' averages; noise on a sum does not cover what one agent sent."""
    agents = len(study.dataset.agents)
    names = [name for name in AVERAGES if study.settings.trust == AGENTS or name.startswith("w")]
    means = {
        name: np.concatenate([_average(name, arrays[f"mean_{name}"], agents) for arrays in stored]) for name in names
    }
    write_arrays(folder.averages, {name: _single(mean) for name, mean in means.items()})


def _runs_first(array: Array) -> Array:
    """Return [..., J, R, K] as [R, ..., J, K]."""
    return np.moveaxis(array, -2, 0)


def _average(name: str, mean: Array, agents: int) -> Array:
    first = _runs_first(mean)
    return broadcast_to_agents(first, agents) if name.startswith("z") else first


def _single(array: Array) -> Array:
    """Return the array without its axis of runs if there is only one."""
    return array[0] if len(array) == 1 else array


def _label_arrays(plan: Sequence[Batch]) -> dict[str, Array]:
    labels = [label for batch in plan for label in batch.labels()]
    return {name: np.array([label[name] for label in labels]) for name in labels[0] if name != "run"}


def _names(dataset: Dataset) -> dict[str, Array]:
    names: dict[str, Array] = {"feature_names": np.array(dataset.features)}
    if isinstance(dataset.target, Classes):
        return names | {"classes": np.array(dataset.target.names)}
    return names | {
        "classes": np.array([], dtype=str),
        "label_range": np.array([dataset.target.low, dataset.target.high]),
    }


def _results(study: Study, folder: RunFolder, w: Array) -> list[RunResult]:
    """Return the result of each run: its last row of metrics, and its quality on the test records."""
    last = {row.run: row for row in folder.read_metrics()}
    measured = {row.run: row.quality for row in folder.read_evaluations() if row.quality is not None}
    return [_result(study, last[r], measured.get(r), parameters) for r, parameters in enumerate(w)]


def _result(study: Study, last: MetricsRow, measured: PrivateQuality | None, w: Array) -> RunResult:
    measures = {name: value for name, value in vars(last).items() if name not in {"run", "round"}}
    return RunResult(**measures, rounds=last.round, quality=_quality(study, w), private_quality=measured)


def _quality(study: Study, w: Array) -> Quality | None:
    data, loss = study.dataset, LOSSES[study.settings.loss]()
    if data.test is None:
        return None
    found = np.concatenate([scores(w[:, None, :], block.x)[:, 0] for block in data.test.blocks()])
    return measure_quality(found, data.test.y, data.target, loss, parties=data.test_parties)


def settle(ledger: str, folder: RunFolder) -> None:
    """Replace the study's reservation in the budget ledger by what its own ledger says was spent.

    A second call, after a crash, changes nothing.

    Parameters
    ----------
    ledger
        Path of the budget ledger; empty: the study uses none.
    folder
        The finished run.

    Raises
    ------
    PrivacyViolation
        If the study spent more than it reserved.
    InputError
        If the reservation was settled from another ledger.
    """
    if not ledger:
        return
    own, head = folder.read_ledger(), folder.chain.hashes()[-1]
    budget, reservation = BudgetLedger.open(Path(ledger)), folder.read_start().reservation or ""
    if not budget.is_settled_by(reservation, head):
        budget.settle(reservation, own.cost, head, own.held_out_cost)
        logger.info("settled in %s", budget.path)


def settle_violated(ledger: str, folder: RunFolder) -> None:
    """End the reservation of a study that a privacy violation stopped.

    The study cannot continue, and its ledger may not have everything: the whole plan stays spent, or more if the ledger
    has more. Does nothing if there was no violation, or no budget ledger is used.
    """
    own = folder.read_ledger() if ledger else None
    if own is not None and own.violation:
        budget, reservation = BudgetLedger.open(Path(ledger)), folder.read_start().reservation or ""
        budget.record_violation(reservation, own.cost, folder.chain.hashes()[-1], own.held_out_cost)


def sign(folder: RunFolder) -> None:
    """Sign a run's ledger as it is with this machine's key; warn if the signature cannot be written."""
    try:
        signable(folder).sign()
    except OSError as error:
        warnings.warn(
            f"{folder.ledger} was not signed ({error.strerror or error}); sign it with "
            f"'taciturn ledger sign {folder.path}'",
            LedgerWarning,
            stacklevel=2,
        )


def signable(folder: RunFolder) -> Signable:
    """Return a run's ledger as an object that can be signed and verified.

    Raises
    ------
    CorruptFile
        If the id in start.json is not one.
    """
    identity = folder.read_start(local=False).id or ""
    if identity and not HEX_ID.fullmatch(identity):
        raise CorruptFile(f"{folder.start} is damaged: the id of the run must have 32 hexadecimal digits")
    return Signable(folder.chain, "run", identity, "ended" if folder.finished else "paused")


def study_effects(study: Study, folder: RunFolder, stored: Sequence[Mapping[str, Array]]) -> EffectsRecord | None:
    """Return the effects of every run, or None if the models are not additive in a table's columns.

    Parameters
    ----------
    study
        The study, after training.
    folder
        Its run folder, which has the table's schema.
    stored
        The last checkpoint of every batch: `w` and, where the method measured some, `server_statistics`.
    """
    settings = study.settings
    if settings.features != BINS:
        return None
    schema = read_schema(folder.stored_schema())
    log_odds = LOSSES[settings.loss]().probabilities(np.zeros((1, study.dataset.target.width))) is not None
    runs = [
        run_effects(label, w, schema, settings.intercept, log_odds, noise)
        for part, arrays in zip(study.parts, stored, strict=True)
        for noise in [_noise(part, arrays, schema.target)]
        for label, w in zip(part.batch.labels(), _runs_first(arrays["w"]), strict=True)
    ]
    return EffectsRecord(runs=tuple(runs))


def _noise(part: StudyPart, arrays: Mapping[str, Array], target: Target) -> CurveNoise | None:
    """Return the noise in a batch's curves, if its method knows it and its checkpoint has the statistics."""
    if not isinstance(part.algorithm, KnownCurveNoise) or "server_statistics" not in arrays:
        return None
    answered = tuple(map(int, arrays["answered"])) if "answered" in arrays else ()
    statistics, w = arrays["server_statistics"], arrays["w"]
    return part.algorithm.curve_noise(w[:, 0], statistics, int(arrays["round"]), contrasts(target), answered)
