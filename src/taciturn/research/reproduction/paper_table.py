"""The final errors of a reproduction beside the paper's, as rows, as Markdown and as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict

from taciturn.reporting.tables import markdown_table
from taciturn.research.reproduction.published import (
    ALGORITHMS,
    PENALTY_NAMES,
    ROUNDS,
    SEEDS,
    Group,
    Summary,
    epsilons,
    find,
    group_name,
    has_scales,
    in_table_order,
    published_error,
)

HEADINGS = ("algorithm", "epsilon", "penalty", "seeds", "best, %", "mean, %", "paper, %", "difference")
LEFT = {"algorithm", "penalty"}
Error: TypeAlias = Literal["best", "mean", "low", "high", "worst"]


class ComparedGroup(TypedDict):
    """A group beside the paper, errors in %; paper and difference are None if the paper gives no number."""

    name: str
    algorithm: str
    epsilon: float | str
    penalty: str
    outp_noise: str | None
    local_updates: int
    eta_scale: float | None
    seeds: int
    rounds: int
    best: float | None
    mean: float | None
    low: float | None
    high: float | None
    worst: float | None
    paper: float | None
    difference: float | None


def rows(summary: Summary) -> list[tuple[str, ...]]:
    """Return one row for each group, under HEADINGS; unknown cells are empty."""
    return [
        (
            group_name(summary, group),
            "∞" if math.isinf(float(group["epsilon"])) else f"{float(group['epsilon']):g}",
            "" if group["penalty"] == "dynamic" else PENALTY_NAMES.get(group["penalty"], str(group["penalty"])),
            str(group["seeds"]),
            *(_text(value) for value in (_percent(group, "best"), _percent(group, "mean"), _paper(summary, group))),
            _text(_difference(summary, group), "+"),
        )
        for group in in_table_order(summary)
    ]


def markdown(summary: Summary) -> str:
    """Return the rows as a GitHub table, followed by the notes."""
    return "\n".join([markdown_table(HEADINGS, rows(summary), LEFT), "", *notes(summary)]) + "\n"


def comparison(summary: Summary) -> list[ComparedGroup]:
    """Return one record for each group."""
    return [
        {
            "name": group_name(summary, group),
            "algorithm": group["algorithm"],
            "epsilon": group["epsilon"],
            "penalty": group["penalty"],
            "outp_noise": group["outp_noise"],
            "local_updates": group["local_updates"],
            "eta_scale": group["eta_scale"],
            "seeds": group["seeds"],
            "rounds": group["final"]["round"],
            "best": _percent(group, "best"),
            "mean": _percent(group, "mean"),
            "low": _percent(group, "low"),
            "high": _percent(group, "high"),
            "worst": _percent(group, "worst"),
            "paper": _paper(summary, group),
            "difference": _difference(summary, group),
        }
        for group in in_table_order(summary)
    ]


def ordering(summary: Summary) -> dict[float, bool]:
    """Return, for each epsilon at which all three ran, whether ObjPM < ObjP < OutP in the mean final error."""
    found: dict[float, bool] = {}
    for epsilon in epsilons([summary]):
        groups = [find(summary, algorithm, epsilon) for algorithm in ALGORITHMS]
        means = [_percent(group, "mean") for group in groups if group]
        outp, objp, objpm = means if len(means) == len(ALGORITHMS) else (None, None, None)
        if outp is not None and objp is not None and objpm is not None:
            found[epsilon] = objpm < objp < outp
    return found


def notes(summary: Summary) -> list[str]:
    """Return the sentences that a reader needs to interpret the numbers."""
    found = [f"The paper's numbers are the best of {SEEDS} seeds after {ROUNDS:,} rounds; difference: best less paper."]
    if summary["data"] == "femnist":
        found.append("The paper drew another sample of FEMNIST's writers: the numbers are not on the same records.")
    if summary["quick"] or summary["rounds"] < ROUNDS:
        fewer = f"{summary['rounds']:,} rounds instead of {ROUNDS:,}"
        found.append(f"These are {fewer}: only the ordering of the algorithms is to be compared.")
    if has_scales(summary):
        found.append("a is the scale of the step η = a/√t: the paper's text has a = 1, the figures show the largest.")
    if _compares_without_noise(summary):
        found.append("The paper does not say how many local updates E were used for its error without noise (∞).")
    return found


def _compares_without_noise(summary: Summary) -> bool:
    groups: Sequence[Group] = summary["groups"]
    return any(math.isinf(float(group["epsilon"])) and _paper(summary, group) is not None for group in groups)


def _paper(summary: Summary, group: Group) -> float | None:
    return published_error(summary["data"], group)


def _percent(group: Group, name: Error) -> float | None:
    share = group["final"][name]
    return None if share is None else round(100.0 * float(share), 6)


def _difference(summary: Summary, group: Group) -> float | None:
    best, paper = _percent(group, "best"), _paper(summary, group)
    return None if best is None or paper is None else round(best - paper, 6)


def _text(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{round(value, 2) + 0.0:{sign}.2f}"
