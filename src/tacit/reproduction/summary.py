"""The traces of a reproduction in compact form: every group of runs that differ in their seed alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.reproduction.folder import ReproductionFolder
from tacit.types import Array

POINTS = 150  # of a curve


def summarise(folder: ReproductionFolder) -> dict[str, Any]:
    """What figures and tables are made from."""
    plan = folder.read_plan()
    groups: list[dict[str, Any]] = []
    stages = []
    for stage in plan["stages"]:
        traces = folder.read_traces(stage["name"])
        groups += _groups(stage, traces)
        seconds = round(float(traces["seconds"]), 2)
        stages.append({"name": stage["name"], "runs": len(stage["cases"]), "seconds": seconds})
    facts = {name: value for name, value in plan.items() if name != "stages"}
    return facts | {"stages": stages, "groups": groups}


def _groups(stage: Mapping[str, Any], traces: Mapping[str, Array]) -> list[dict[str, Any]]:
    members: dict[tuple[Any, ...], list[int]] = {}
    for r, case in enumerate(stage["cases"]):
        epsilon, _, penalty, eta_scale = case
        members.setdefault((epsilon, penalty, eta_scale), []).append(r)
    return [_group(stage, traces, key, np.array(runs)) for key, runs in members.items()]


def _group(
    stage: Mapping[str, Any], traces: Mapping[str, Array], key: tuple[Any, ...], runs: NDArray[np.intp]
) -> dict[str, Any]:
    rounds, error, noise = traces["rounds"], traces["test_error"][:, runs], traces["noise"][:, runs]
    low, high = np.percentile(error, (20, 80), axis=1)
    shown = _thinned(len(rounds))
    last = error[-1]
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
        "final": {
            "round": int(rounds[-1]),
            **{name: _short(value) for name, value in _spread(last).items()},
        },
        "curve": {
            "round": [int(t) for t in rounds[shown]],
            "mean": [_short(v) for v in error.mean(axis=1)[shown]],
            "low": [_short(v) for v in low[shown]],
            "high": [_short(v) for v in high[shown]],
            "noise": [float(f"{v:.4g}") for v in noise.mean(axis=1)[shown]],
        },
    }


def _spread(last: Array) -> dict[str, float]:
    low, high = np.percentile(last, (20, 80))
    return {
        "best": float(last.min()),
        "mean": float(last.mean()),
        "low": float(low),
        "high": float(high),
        "worst": float(last.max()),
    }


def _thinned(count: int) -> NDArray[np.intp]:
    """At most POINTS indices of a trace, the first and the last among them, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(POINTS, count)).round().astype(np.intp))


def _short(value: float) -> float:
    return round(float(value), 5)
