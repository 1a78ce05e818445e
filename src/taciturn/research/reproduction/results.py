"""The folder of a reproduction: its plan, the traces of each finished stage, and the summary."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from taciturn.core.locks import locked
from taciturn.core.storage import make_folder, read_arrays, to_json, write_arrays, write_text
from taciturn.errors import CorruptFile, InputError
from taciturn.research.reproduction.published import FinalErrors, Group, StageTime, Summary
from taciturn.types import Array

LOCK = ".lock"


class StoredStage(TypedDict):
    """A `Stage` as JSON."""

    name: str
    algorithm: str
    cases: list[tuple[float | str, int, str, float]]  # a `PaperCase` each
    outp_noise: str
    local_updates: int


class StoredPlan(TypedDict):
    """What is read from plan.json beside the facts that go into the summary as they are."""

    stages: list[StoredStage]


@dataclass(frozen=True)
class ReproductionFolder:
    """Everything that a reproduction writes."""

    path: Path

    @property
    def plan(self) -> Path:
        """What is computed, on which records and on which device."""
        return self.path / "plan.json"

    @property
    def summary(self) -> Path:
        """The results in compact form, from which every figure and table is drawn."""
        return self.path / "summary.json"

    @property
    def figures(self) -> Path:
        """Folder of the figures."""
        return self.path / "figures"

    def traces(self, stage: str) -> Path:
        """Test error and noise of every run of a stage at every evaluated round; exists once it has finished."""
        return self.path / "stages" / f"{stage}.npz"

    def checkpoint(self, stage: str) -> Path:
        """The state from which an interrupted stage continues."""
        return self.path / "checkpoint" / f"{stage}.npz"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for one process; the lock ends with the process."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.plan.is_file() and any(file.name != LOCK for file in self.path.iterdir()):
            raise InputError(f"{self.path} exists and is not a reproduction; choose another --out")
        with locked(self.path / LOCK, f"{self.path} is being worked on by another process"):
            yield

    def begin(self, plan: Mapping[str, object]) -> None:
        """Write the plan, or check that the folder has the same one."""
        text = to_json(plan) + "\n"
        if self.plan.is_file():
            there, here = self.read_plan(), json.loads(text)
            differ = [name for name in here if there.get(name) != here[name]]
            if differ:
                raise InputError(
                    f"{self.path} holds another reproduction than this one ({_difference(there, here, differ)}):"
                    " choose another --out"
                )
        for name in ("stages", "checkpoint"):
            make_folder(self.path / name, exist_ok=True)
        write_text(self.plan, text)

    def read_plan(self) -> StoredPlan:
        """Return the plan."""
        return cast(StoredPlan, _read(self.plan))

    def read_summary(self) -> Summary:
        """Return the summary of a finished reproduction."""
        if not self.summary.is_file():
            raise InputError(f"{self.path} is not a finished reproduction: it has no {self.summary.name}")
        found = _read(self.summary)
        if not {"data", "quick", "rounds", "seeds", "stages", "groups"} <= found.keys():
            raise InputError(f"{self.summary} is not the summary of a reproduction")
        return cast(Summary, found)

    def write_summary(self, summary: Summary) -> None:
        """Write the last file of a reproduction."""
        write_text(self.summary, to_json(summary) + "\n")

    def end_stage(self, stage: str, traces: Mapping[str, Array]) -> None:
        """Write a stage's traces and remove its checkpoint."""
        write_arrays(self.traces(stage), traces)
        self.checkpoint(stage).unlink(missing_ok=True)

    def read_traces(self, stage: str) -> dict[str, Array]:
        """Return `rounds` [n], `test_error` [n, R], `noise` [n, R] and the seconds that the stage took."""
        return read_arrays(self.traces(stage))


def _difference(there: Mapping[str, object], here: Mapping[str, object], names: list[str]) -> str:
    """Describe the first difference between two plans."""
    name = names[0]
    if isinstance(here[name], (str, int, float, bool)):
        return f"its {name} is {there.get(name)}, not {here[name]}"
    return f"its {name} differ"


def _read(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorruptFile(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise CorruptFile(f"{path} cannot be read: it does not contain a JSON object")
    return found


POINTS = 150  # of a curve


def summarise(folder: ReproductionFolder) -> Summary:
    """Return the data for figures and tables."""
    plan = folder.read_plan()
    groups: list[Group] = []
    stages: list[StageTime] = []
    for stage in plan["stages"]:
        traces = folder.read_traces(stage["name"])
        groups += _groups(stage, traces)
        seconds = round(float(traces["seconds"]), 2)
        stages.append({"name": stage["name"], "runs": len(stage["cases"]), "seconds": seconds})
    facts = {name: value for name, value in plan.items() if name != "stages"}
    return cast(Summary, facts | {"stages": stages, "groups": groups})


GroupKey: TypeAlias = tuple[float | str, str, float]
"""Epsilon, penalty and the scale of the step."""


def _groups(stage: StoredStage, traces: Mapping[str, Array]) -> list[Group]:
    members: dict[GroupKey, list[int]] = {}
    for r, case in enumerate(stage["cases"]):
        epsilon, _, penalty, eta_scale = case
        members.setdefault((epsilon, penalty, eta_scale), []).append(r)
    return [_group(stage, traces, key, np.array(runs)) for key, runs in members.items()]


def _group(stage: StoredStage, traces: Mapping[str, Array], key: GroupKey, runs: NDArray[np.intp]) -> Group:
    rounds, error, noise = traces["rounds"], traces["test_error"][:, runs], traces["noise"][:, runs]
    low, high = np.percentile(error, (20, 80), axis=1)
    shown = _thinned(len(rounds))
    epsilon, penalty, eta_scale = key
    return {
        "stage": stage["name"],
        "algorithm": stage["algorithm"],
        "epsilon": epsilon,
        "penalty": penalty,
        "outp_noise": stage["outp_noise"] or None,
        "local_updates": stage["local_updates"],
        "eta_scale": eta_scale if stage["algorithm"] != "outp" else None,
        "seeds": len(runs),
        "event": json.loads(str(traces["events"][runs[0]])) | {"updates": int(rounds[-1]) * stage["local_updates"]},
        "final": _final_errors(int(rounds[-1]), error[-1]),
        "curve": {
            "round": [int(t) for t in rounds[shown]],
            "mean": [_short(v) for v in error.mean(axis=1)[shown]],
            "low": [_short(v) for v in low[shown]],
            "high": [_short(v) for v in high[shown]],
            "noise": [float(f"{v:.4g}") for v in noise.mean(axis=1)[shown]],
        },
    }


def _final_errors(t: int, last: Array) -> FinalErrors:
    low, high = np.percentile(last, (20, 80))
    return {
        "round": t,
        "best": _short(last.min()),
        "mean": _short(last.mean()),
        "low": _short(low),
        "high": _short(high),
        "worst": _short(last.max()),
    }


def _thinned(count: int) -> NDArray[np.intp]:
    """Return at most POINTS indices of a trace, evenly spread, including the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(POINTS, count)).round().astype(np.intp))


def _short(value: float) -> float:
    return round(float(value), 5)
