"""The end of a run: model, summary, settlement with the budget ledger, and signature."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.core.storage import read_arrays, to_json, write_arrays, write_text
from taciturn.errors import InputError, LedgerWarning, PrivacyViolation
from taciturn.objectives import LOSSES
from taciturn.objectives.metrics import quality_metrics
from taciturn.objectives.passes import scores
from taciturn.planning.study import Batch, Study
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.composition import StudyCost, cost_of, max_cost, total_cost
from taciturn.privacy.ledger import VIOLATION, ledger_totals, releases
from taciturn.privacy.signatures import HEX_ID, Signable
from taciturn.privacy.trust import AGENTS
from taciturn.reporting.statements import overspent
from taciturn.runs.folder import RunFolder
from taciturn.training.central import for_all_agents
from taciturn.types import Array, Classes, Dataset
from taciturn.version import VERSION

AVERAGES = ("w_plain", "w_weighted", "z_smooth", "z_nonsmooth", "z_strong")


def finish(study: Study, folder: RunFolder, **more: Any) -> None:
    """Write `averages.npz`, `model.npz` and, last, `summary.json`, which marks the end and holds `more`."""
    settings, dataset, plan = study.settings, study.dataset, [part.batch for part in study.parts]
    totals = ledger_totals(folder.read_ledger())
    _refuse_overspent(folder, totals)
    stored = [read_arrays(folder.checkpoints / f"{batch.algorithm}.npz") for batch in plan]
    if settings.averages:
        agents = len(dataset.agents)
        means = {
            name: np.concatenate([_average(name, arrays[f"mean_{name}"], agents) for arrays in stored])
            for name in AVERAGES
            if settings.trust == AGENTS or name.startswith("w")  # noise on a sum does not cover what one agent sent
        }
        write_arrays(folder.averages, {name: _single(mean) for name, mean in means.items()})
    w = np.concatenate([_runs_first(arrays["w"]) for arrays in stored])
    write_arrays(folder.model, {"w": _single(w), **_index(plan), **_names(dataset)})
    runs, private = _results(study, folder, w), study.private_metrics
    ended = time.strftime("%Y-%m-%dT%H:%M:%S%z")  # with the folder's name it tells how long all rounds took
    if private:
        names = (*private, "quality") if "test_error" in private else private
        kept = [{name: run.pop(name) for name in names if name in run} for run in runs]
        own = {"ended": ended, "data": folder.read_start()["data"], "runs": kept}
        write_text(folder.local / folder.summary.name, to_json(own) + "\n")
        runs = [{**run, **dict.fromkeys(private), "private_test": "test_error" in private} for run in runs]
    summary = {
        "taciturn": VERSION,
        **({"ended": ended} if study.facts is None else {}),
        "mode": settings.mode,
        "privacy": totals,
        "data": folder.read_start(local=False)["data"],
        "runs": runs,
        **more,
    }
    write_text(folder.summary, to_json(summary) + "\n")


def _refuse_overspent(folder: RunFolder, totals: Mapping[str, Any]) -> None:
    """Stop before a model is written where a run's ledger adds up to more than its budget; it cannot go on then."""
    over = next(filter(overspent, totals["runs"]), None)
    if over is not None:
        reason = (
            f"the ledger of {over['algorithm']} adds up to epsilon {float(over['spent_epsilon']):.4g}, more than its "
            f"budget of {float(over['total_epsilon']):g}: nothing of the run may be shown"
        )
        folder.chain.append([{"kind": VIOLATION, "algorithm": over["algorithm"], "reason": reason}])
        raise PrivacyViolation(reason)


def _runs_first(array: Array) -> Array:
    """[..., J, R, K] -> [R, ..., J, K]."""
    return np.moveaxis(array, -2, 0)


def _average(name: str, mean: Array, agents: int) -> Array:
    first = _runs_first(mean)
    return for_all_agents(first, agents) if name.startswith("z") else first


def _single(array: Array) -> Array:
    """Without the axis of runs where there is only one."""
    return array[0] if len(array) == 1 else array


def _index(plan: list[Batch]) -> dict[str, Any]:
    labels = [label for batch in plan for label in batch.labels()]
    return {name: np.array([label[name] for label in labels]) for name in labels[0] if name != "run"}


def _names(dataset: Dataset) -> dict[str, Any]:
    names: dict[str, Any] = {"feature_names": np.array(dataset.features)}
    if isinstance(dataset.target, Classes):
        return names | {"classes": np.array(dataset.target.names)}
    return names | {
        "classes": np.array([], dtype=str),
        "label_range": np.array([dataset.target.low, dataset.target.high]),
    }


def _results(study: Study, folder: RunFolder, w: Array) -> list[dict[str, Any]]:
    """One entry for each run: its last row of metrics, and its quality on the test records."""
    dataset, loss = study.dataset, LOSSES[study.settings.loss]()
    last = {row["run"]: row for row in folder.read_metrics()}
    runs = []
    for r, parameters in enumerate(w):
        row = {name: value for name, value in last[r].items() if name not in {"round", "run"}}
        row["rounds"] = last[r]["round"]
        if dataset.test is not None:
            found = np.concatenate([scores(parameters[:, None, :], block.x)[:, 0] for block in dataset.test.blocks()])
            row["quality"] = quality_metrics(found, dataset.test.y, dataset.target, loss)
        runs.append(row)
    return runs


def settle(ledger: str, folder: RunFolder) -> None:
    """Replace the study's reservation in the ledger it names by what its own ledger says was spent.

    After a crash it may have been done already, by the same lines; by others, it is refused.
    """
    if not ledger:
        return
    cost, head = ledger_cost(folder.read_ledger()), folder.chain.hashes()[-1]
    account, reservation = BudgetLedger.open(Path(ledger)), folder.read_start()["reservation"]
    if not account.is_settled_by(reservation, head):
        account.settle(reservation, cost, head)


def settle_violated(ledger: str, folder: RunFolder) -> None:
    """End the reservation of a study that a privacy violation stopped: what it drew beyond its plan is not forgotten.

    It cannot go on, and its ledger may not know everything: the whole plan stays spent, or more if its ledger has more.
    """
    rows = folder.read_ledger() if ledger else []
    if any(row["kind"] == VIOLATION for row in rows):
        account, reservation = BudgetLedger.open(Path(ledger)), folder.read_start()["reservation"]
        account.record_violation(reservation, ledger_cost(rows), folder.chain.hashes()[-1])


def sign(folder: RunFolder) -> None:
    """Sign a run's ledger as it stands with this machine's key; a run is not lost where that cannot be done."""
    try:
        signable(folder).sign()
    except OSError as error:
        warnings.warn(
            f"{folder.ledger} was not signed ({error.strerror or error}): 'taciturn ledger sign {folder.path}' signs it",
            LedgerWarning,
            stacklevel=2,
        )


def signable(folder: RunFolder) -> Signable:
    """A run's ledger, for those who sign it or check who did."""
    identity = folder.read_start(local=False).get("id", "")
    if identity and not HEX_ID.fullmatch(str(identity)):
        raise InputError(f"{folder.start} is damaged: the run's id must have 32 hexadecimal digits")
    return Signable(folder.chain, "run", identity, "ended" if folder.finished else "paused")


def ledger_cost(ledger: Iterable[Mapping[str, Any]]) -> StudyCost:
    """What the releases of a study's ledger cost a ledger over studies: of every run the most of its agents."""
    return total_cost(max_cost(map(cost_of, agents.values())) for agents in releases(ledger).values())
