"""The algorithms and budgets of runs in one list, the lowest test error first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from taciturn.algorithms import ALGORITHMS
from taciturn.reporting.curves import run_label
from taciturn.reporting.intervals import Interval, interval, mean_words
from taciturn.reporting.side_by_side import folder_names, predicts_numbers
from taciturn.reporting.tables import by_label, format_bytes, format_epsilon, format_error
from taciturn.runs.folder import RunFolder

HEADINGS = ("method", "budget", "test error", "seeds", "rounds", "sent up", "total ε", "δ", "promise")
WORDS = frozenset({"method", "promise"})  # the columns that are text


@dataclass(frozen=True)
class Ranked:
    """One algorithm and budget of a run, over its seeds."""

    run: str  # what its folder is called
    algorithm: str
    epsilon: float  # as it was asked for
    mode: str
    seeds: tuple[int, ...]  # one for each run; none where the noise has no seed
    errors: tuple[float, ...]  # of every seed; none where they are not known
    unknown: str  # why they are not
    own: bool  # whether they come from private records, and are their owner's alone
    rounds: int
    bytes_up: float
    spent: float  # the total epsilon at delta by the ledger, of the seed that spent most
    pure: float | None  # the same at delta 0
    delta: float
    beside: bool = False  # whether another run has the same algorithm and budget

    @property
    def error(self) -> Interval | None:
        """The mean test error over seeds; without noise all seeds are one."""
        if not self.errors:
            return None
        alike = math.isinf(self.epsilon) and len(set(self.errors)) == 1
        return interval(self.errors[:1] if alike else self.errors)

    @property
    def central(self) -> bool:
        """Whether it is a reference in which a trusted curator holds all records."""
        return self.algorithm in ALGORITHMS and ALGORITHMS[self.algorithm].central

    @property
    def simulated(self) -> bool:
        """Whether it has a budget that its noise, which comes from seeds, keeps towards nobody."""
        return bool(self.seeds) and self.mode == "certified" and math.isfinite(self.epsilon)

    @property
    def method(self) -> str:
        """The algorithm as tables call it."""
        return self._named(self.algorithm)

    @property
    def label(self) -> str:
        """The algorithm and its budget, as pictures call them."""
        return self._named(run_label(self.algorithm, self.epsilon))

    @property
    def promise(self) -> str:
        """What privacy it promises, in one line."""
        if math.isinf(self.epsilon):
            return "none: there is no noise"
        if self.mode == "paper":
            return "none in total: its epsilon is nominal, of one update"
        return ALGORITHMS[self.algorithm].promise if self.algorithm in ALGORITHMS else "of a plugin"

    def _named(self, name: str) -> str:
        return (f"{self.run}: " if self.beside else "") + name + (" (central)" if self.central else "")


def ranking(folders: Sequence[RunFolder]) -> list[Ranked]:
    """All algorithms and budgets of ended runs; those whose error is not known come last."""
    rows = [row for name, folder in zip(folder_names(folders), folders, strict=True) for row in _rows(name, folder)]
    predicts_numbers(folders)
    times = Counter(row.label for row in rows)
    named = [replace(row, beside=times[row.label] > 1) for row in rows]
    return sorted(named, key=lambda row: row.error.mean if row.error else math.inf)


def _rows(name: str, folder: RunFolder) -> Iterator[Ranked]:
    summary = folder.read_summary()
    privacy = {run["run"]: run for run in summary["privacy"]["runs"]}
    numbered = [{**entry, "run": i} for i, entry in enumerate(summary["runs"])]
    for group in by_label(numbered).values():
        first, errors = group[0], [entry["test_error"] for entry in group]
        spent = [privacy[entry["run"]] for entry in group if entry["run"] in privacy]
        yield Ranked(
            name,
            first["algorithm"],
            float(first["epsilon"]),
            summary["mode"],
            tuple(entry["seed"] for entry in group if "seed" in entry),
            () if None in errors else tuple(errors),
            format_error({**first, "test_error": None}),
            bool(first.get("private_test")) and None not in errors,
            max(entry["rounds"] for entry in group),
            max(entry["bytes_up"] for entry in group),
            max((float(run["spent_epsilon"]) for run in spent), default=math.inf),
            _pure([agent["pure_epsilon"] for run in spent for agent in run["agents"]]),
            summary["privacy"]["delta"],
        )


def _pure(found: Sequence[float | str | None]) -> float | None:
    known = [float(value) for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else None


def cells(row: Ranked, regression: bool) -> tuple[str, ...]:
    """A row as text, under HEADINGS."""
    return (
        row.method,
        "no noise" if math.isinf(row.epsilon) else f"{row.epsilon:g}",
        mean_words(row.error, regression) if row.error else row.unknown,
        str(len(row.seeds) or "–"),
        str(row.rounds),
        format_bytes(row.bytes_up),
        format_epsilon(row.spent),
        _delta(row),
        row.promise,
    )


def _delta(row: Ranked) -> str:
    """The delta at which the total holds; 0 where it holds without one."""
    if math.isinf(row.spent):
        return "–"
    return "0" if row.pure is not None and row.pure <= row.spent * (1.0 + 1e-9) else f"{row.delta:g}"


def facts(row: Ranked) -> Mapping[str, Any]:
    """A row as values, for other programs."""
    return {
        "run": row.run,
        "algorithm": row.algorithm,
        "epsilon": row.epsilon,
        "central": row.central,
        "test_error": row.error._asdict() if row.error else None,
        "seeds": dict(zip(map(str, row.seeds), row.errors, strict=True)) if row.errors and row.seeds else {},
        "rounds": row.rounds,
        "bytes_up": row.bytes_up,
        "spent_epsilon": row.spent,
        "pure_epsilon": row.pure,
        "delta": row.delta,
        "promise": row.promise,
    }


def promises(rows: Sequence[Ranked]) -> list[tuple[str, str]]:
    """What every algorithm promises, each once; a run without noise speaks only for one that has no other."""
    noisy = {row.algorithm for row in rows if math.isfinite(row.epsilon)}
    told = [row for row in rows if math.isfinite(row.epsilon) or row.algorithm not in noisy]
    return list(dict.fromkeys((row.algorithm, row.promise) for row in told))


def repeated(rows: Sequence[Ranked]) -> str:
    """Over how many seeds the means are; empty where one seed is all there is."""
    several = sorted({row.error.n for row in rows if row.error and row.error.n > 1})
    return " to ".join(dict.fromkeys(str(n) for n in (several[:1] + several[-1:])))
