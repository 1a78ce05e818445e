"""The algorithms and budgets of runs in one list, the lowest test error first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from taciturn.core.storage import format_bytes
from taciturn.reporting.curves import by_label, run_label
from taciturn.reporting.intervals import Interval, interval, mean_words
from taciturn.reporting.side_by_side import folder_names, predicts_numbers
from taciturn.reporting.tables import format_epsilon, format_error
from taciturn.runs.folder import RunFolder
from taciturn.runs.records import MethodFacts, RunResult, RunSummary

HEADINGS = ("method", "budget", "test error", "seeds", "rounds", "sent up", "total ε", "δ", "promise")
WORDS = frozenset({"method", "promise"})  # the columns that hold text


@dataclass(frozen=True)
class Ranked:
    """One algorithm and budget of a run, over its seeds."""

    run: str  # name of its folder
    algorithm: str
    epsilon: float  # as given
    mode: str
    central: bool  # whether it is a reference in which a trusted curator holds all records
    guarantee: str  # of the algorithm in certified mode, as its ledger says
    seeds: tuple[int, ...]  # one for each run; empty where the noise has no seed
    errors: tuple[float, ...]  # one for each seed; empty where they are not known
    unknown: str  # why they are not known
    own: bool  # whether they come from private records, and are for their owner only
    rounds: int
    bytes_up: float
    spent: float  # total epsilon at delta by the ledger, of the seed that spent most
    pure: float | None  # the same at delta 0
    delta: float
    repeated: bool = False  # whether another run has the same algorithm and budget

    @property
    def error(self) -> Interval | None:
        """The mean test error over seeds; without noise all seeds give the same model and count once."""
        if not self.errors:
            return None
        identical = math.isinf(self.epsilon) and len(set(self.errors)) == 1
        return interval(self.errors[:1] if identical else self.errors)

    @property
    def simulated(self) -> bool:
        """Whether it has a budget that protects no one, because its noise comes from seeds."""
        return bool(self.seeds) and self.mode == "certified" and math.isfinite(self.epsilon)

    @property
    def method(self) -> str:
        """The name of the algorithm in tables."""
        return self._qualified(self.algorithm)

    @property
    def label(self) -> str:
        """The algorithm and its budget, as in figures."""
        return self._qualified(run_label(self.algorithm, self.epsilon))

    @property
    def promise(self) -> str:
        """Its privacy guarantee in one line."""
        if math.isinf(self.epsilon):
            return "none: there is no noise"
        if self.mode == "paper":
            return "none in total: its epsilon is nominal, of one update"
        return self.guarantee

    def _qualified(self, name: str) -> str:
        return (f"{self.run}: " if self.repeated else "") + name + (" (central)" if self.central else "")

    def to_json(self) -> dict[str, object]:
        """Return the row as values for other programs."""
        return {
            "run": self.run,
            "algorithm": self.algorithm,
            "epsilon": self.epsilon,
            "central": self.central,
            "test_error": self.error._asdict() if self.error else None,
            "seeds": dict(zip(map(str, self.seeds), self.errors, strict=True)) if self.errors and self.seeds else {},
            "rounds": self.rounds,
            "bytes_up": self.bytes_up,
            "spent_epsilon": self.spent,
            "pure_epsilon": self.pure,
            "delta": self.delta,
            "promise": self.promise,
        }


def ranking(folders: Sequence[RunFolder]) -> list[Ranked]:
    """Return all algorithms and budgets of finished runs, the lowest error first, unknown errors last.

    Raises
    ------
    InputError
        If a run has not ended, or if some runs predict classes and some numbers.
    """
    rows = [row for name, folder in zip(folder_names(folders), folders, strict=True) for row in _rows(name, folder)]
    predicts_numbers(folders)
    times = Counter(row.label for row in rows)
    named = [replace(row, repeated=times[row.label] > 1) for row in rows]
    return sorted(named, key=lambda row: row.error.mean if row.error else math.inf)


def _rows(name: str, folder: RunFolder) -> Iterator[Ranked]:
    summary, methods = folder.read_summary(), folder.read_header().method_facts
    unknown = MethodFacts(noise_on="gradients", scales_records=False, central=False)
    for label, group in by_label(summary.runs).items():
        runs = {i for i, one in enumerate(summary.runs) if run_label(one.algorithm, one.epsilon) == label}
        yield _row(name, summary, group, runs, methods.get(group[0].algorithm, unknown))


def _row(name: str, summary: RunSummary, group: Sequence[RunResult], runs: set[int], method: MethodFacts) -> Ranked:
    first, errors = group[0], [entry.test_error for entry in group if entry.test_error is not None]
    known = len(errors) == len(group)
    spent = [run for run in summary.privacy.runs if run.run in runs]
    pure = [agent.pure_epsilon for run in spent for agent in run.agents]
    finite = [epsilon for epsilon in pure if epsilon is not None]
    return Ranked(
        run=name,
        algorithm=first.algorithm,
        epsilon=first.epsilon,
        mode=summary.mode,
        central=method.central,
        guarantee=method.promise,
        seeds=tuple(entry.seed for entry in group if entry.seed is not None),
        errors=tuple(errors) if known else (),
        unknown=format_error(replace(first, test_error=None)),
        own=bool(first.private_test) and known,
        rounds=max(entry.rounds for entry in group),
        bytes_up=max(entry.bytes_up for entry in group),
        spent=max((run.spent_epsilon for run in spent), default=math.inf),
        pure=max(finite) if finite and len(finite) == len(pure) else None,
        delta=summary.privacy.delta,
    )


def cells(row: Ranked, regression: bool) -> tuple[str, ...]:
    """Return a row as text, under HEADINGS."""
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
    """Return the delta at which the total holds; 0 where it holds without one."""
    if math.isinf(row.spent):
        return "–"
    return "0" if row.pure is not None and row.pure <= row.spent * (1.0 + 1e-9) else f"{row.delta:g}"


def promises(rows: Sequence[Ranked]) -> list[tuple[str, str]]:
    """Return the guarantee of every algorithm once; a run without noise counts only if its algorithm has no other."""
    noisy = {row.algorithm for row in rows if math.isfinite(row.epsilon)}
    shown = [row for row in rows if math.isfinite(row.epsilon) or row.algorithm not in noisy]
    return list(dict.fromkeys((row.algorithm, row.promise) for row in shown))


def seeds_range(rows: Sequence[Ranked]) -> str:
    """Return over how many seeds the means are taken, as "5" or "3 to 5"; empty if every row has one."""
    several = sorted({row.error.n for row in rows if row.error and row.error.n > 1})
    return " to ".join(dict.fromkeys(str(n) for n in (several[:1] + several[-1:])))
