"""Benchmarks: what one is, what it reports, and the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from taciturn.core.registry import Registry
from taciturn.core.storage import format_bytes
from taciturn.reporting.tables import markdown_table
from taciturn.research.bench.machine import MachineFacts
from taciturn.research.bench.timing import Options, Timing, format_seconds

TIMED = ("", "best", "median", "Taciturn takes")
GROWN = ("factor", "from", "to", "time ~", "memory ~", "longest round", "most memory")


class Growth(NamedTuple):
    """Times and memory of rounds at several values of one factor, all others being equal."""

    factor: str  # its letter
    meaning: str
    values: tuple[int, ...]
    seconds: tuple[float, ...]  # of a round
    bytes: tuple[float, ...]  # at the peak
    seconds_exponent: float  # time ~ value^exponent, fitted
    bytes_exponent: float


@dataclass(frozen=True)
class Report:
    """The result of one benchmark; the first timing, if there are any, is Taciturn's."""

    name: str
    title: str
    figures: Mapping[str, Any]  # what the benchmark promises, by name
    timings: Mapping[str, Timing] = field(default_factory=dict)
    growth: tuple[Growth, ...] = ()
    notes: tuple[str, ...] = ()
    machine: MachineFacts | None = None
    goals: Mapping[str, float] = field(default_factory=dict)  # the largest value that a figure should have

    def summary(self) -> dict[str, object]:
        """Return the report for JSON."""
        found: dict[str, object] = {"benchmark": self.name, "title": self.title, **self.figures}
        if self.timings:
            found["seconds"] = {name: timing._asdict() for name, timing in self.timings.items()}
        if self.growth:
            found["growth"] = [one._asdict() for one in self.growth]
        if self.goals:
            found["goals"] = {
                name: {"at_most": most, "met": self.figures[name] <= most} for name, most in self.goals.items()
            }
        return found | {"notes": list(self.notes), "machine": dict(self.machine or {})}

    def figure_rows(self) -> list[tuple[str, ...]]:
        """Return the headline numbers as text, each with its goal if one has; lists and objects are in JSON alone."""
        plain = {key: value for key, value in self.figures.items() if isinstance(value, int | float | str)}
        shown = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in plain.items()}
        if not self.goals:
            return list(shown.items())
        return [(key, text, self._goal(key)) for key, text in shown.items()]

    def _goal(self, key: str) -> str:
        """Return a figure's goal, and whether it is met."""
        if key not in self.goals:
            return ""
        return f"at most {self.goals[key]:g}: {'met' if self.figures[key] <= self.goals[key] else 'not met'}"

    def headings(self) -> tuple[str, ...]:
        """Return the headings of the table."""
        return GROWN if self.growth else TIMED

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table: each timing compared with Taciturn's best, or the growth."""
        if self.growth:
            return [_grown(one) for one in self.growth]
        own = next(iter(self.timings.values()), None)
        return [_timed(name, timing, own if i else None) for i, (name, timing) in enumerate(self.timings.items())]


def markdown(report: Report) -> str:
    """Return the report as a Markdown page."""
    headings, facts = report.headings(), report.machine
    lines = [f"# {report.title}", "", markdown_table(headings, report.rows(), headings[:1]), ""]
    columns = ("figure", "", "goal") if report.goals else ("figure", "")
    lines.append(markdown_table(columns, report.figure_rows(), ("figure", "goal")))
    return "\n".join([*lines, "", *(f"- {note}" for note in (*report.notes, *_where(facts))), ""])


def _timed(name: str, timing: Timing, own: Timing | None) -> tuple[str, ...]:
    ratio = f"{own.best / timing.best:.3g} x" if own else ""
    return name, format_seconds(timing.best), format_seconds(timing.median), ratio


def _grown(one: Growth) -> tuple[str, ...]:
    powers = (f"{one.factor}^{exponent:.2f}" for exponent in (one.seconds_exponent, one.bytes_exponent))
    most = format_seconds(max(one.seconds)), format_bytes(max(one.bytes))
    return one.factor, f"{min(one.values):,}", f"{max(one.values):,}", *powers, *most


def _where(facts: MachineFacts | None) -> list[str]:
    if facts is None:
        return []
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    where = f"{facts['cores']} cores ({facts['cpu']}; kernels {facts['kernels']})"
    return [f"on {where}, Python {facts['python']}, {versions}"]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: what it compares, and the function that runs it."""

    summary: str
    takes: str  # how long, roughly, on two cores
    run: Callable[[Options], Report]
    alone: bool = True  # whether all its work is in this process, so that other load on the machine can be measured
    long: bool = False  # so long that it runs only if it is named
    goals: Mapping[str, float] = field(default_factory=dict)  # the largest value that a figure should have


BENCHMARKS: Registry[Benchmark] = Registry("benchmark", "taciturn.research.bench.programs")
