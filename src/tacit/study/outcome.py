"""What a finished study leaves: the model, the averages and the summary."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.errors import PrivacyViolation
from tacit.privacy.guarantee import overspent
from tacit.privacy.ledger import VIOLATION
from tacit.privacy.totals import ledger_totals
from tacit.privacy.trust import AGENTS
from tacit.problems import LOSSES
from tacit.problems.passes import scores
from tacit.problems.quality import assess
from tacit.results.files import read_arrays, to_json, write_arrays, write_text
from tacit.results.folder import RunFolder
from tacit.study.batches import Batch
from tacit.study.build import Study
from tacit.study.pooled import for_all_agents
from tacit.types import Array, Classes, Dataset
from tacit.version import VERSION

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
        "tacit": VERSION,
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
            row["quality"] = assess(found, dataset.test.y, dataset.target, loss)
        runs.append(row)
    return runs
