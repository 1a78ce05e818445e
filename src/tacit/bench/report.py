"""What a benchmark found: the numbers it promises, a table, and what a picture is drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tacit.bench.timing import Timing
from tacit.views.tables import format_bytes, markdown_table

TIMED = ("", "best", "median", "Tacit takes")
GROWN = ("factor", "from", "to", "time ~", "memory ~", "longest round", "most memory")


class Growth(NamedTuple):
    """Rounds at several values of one factor, all else being equal."""

    factor: str  # its letter
    meaning: str
    values: tuple[int, ...]
    seconds: tuple[float, ...]  # of a round
    bytes: tuple[float, ...]  # at the peak
    seconds_exponent: float  # time ~ value^exponent, fitted
    bytes_exponent: float


@dataclass(frozen=True)
class Report:
    """The outcome of one benchmark; the first timing, where there are any, is Tacit's."""

    name: str
    title: str
    figures: Mapping[str, Any]  # what the benchmark promises, by name
    timings: Mapping[str, Timing] = field(default_factory=dict)
    growth: tuple[Growth, ...] = ()
    notes: tuple[str, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """All of it, as one JSON object."""
        found: dict[str, Any] = {"benchmark": self.name, "title": self.title, **self.figures}
        if self.timings:
            found["seconds"] = {name: timing._asdict() for name, timing in self.timings.items()}
        if self.growth:
            found["growth"] = [one._asdict() for one in self.growth]
        return found | {"notes": list(self.notes), "machine": dict(self.machine)}

    def headings(self) -> tuple[str, ...]:
        """Of the table."""
        return GROWN if self.growth else TIMED

    def rows(self) -> list[tuple[str, ...]]:
        """The table: what was timed, and how Tacit's best compares; or what grew."""
        if self.growth:
            return [_grown(one) for one in self.growth]
        own = next(iter(self.timings.values()), None)
        return [_timed(name, timing, own if i else None) for i, (name, timing) in enumerate(self.timings.items())]


def markdown(report: Report) -> str:
    """The table as a page of its own."""
    headings, facts = report.headings(), report.machine
    lines = [f"# {report.title}", "", markdown_table(headings, report.rows(), headings[:1]), ""]
    lines.append(markdown_table(("figure", ""), figure_rows(report.figures), ("figure",)))
    return "\n".join([*lines, "", *(f"- {note}" for note in (*report.notes, *_where(facts))), ""])


def figure_rows(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The promised numbers as text; lists and objects are for JSON alone."""
    plain = {key: value for key, value in figures.items() if isinstance(value, int | float | str)}
    return [(key, f"{value:.4g}" if isinstance(value, float) else str(value)) for key, value in plain.items()]


def format_seconds(value: float) -> str:
    """A time with its unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1.0:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def _timed(name: str, timing: Timing, own: Timing | None) -> tuple[str, ...]:
    ratio = f"{own.best / timing.best:.3g} x" if own else ""
    return name, format_seconds(timing.best), format_seconds(timing.median), ratio


def _grown(one: Growth) -> tuple[str, ...]:
    powers = (f"{one.factor}^{exponent:.2f}" for exponent in (one.seconds_exponent, one.bytes_exponent))
    most = format_seconds(max(one.seconds)), format_bytes(max(one.bytes))
    return one.factor, f"{min(one.values):,}", f"{max(one.values):,}", *powers, *most


def _where(facts: Mapping[str, Any]) -> list[str]:
    if not facts:
        return []
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    where = f"{facts['cores']} cores ({facts['cpu']}; kernels {facts['kernels']})"
    return [f"on {where}, Python {facts['python']}, {versions}"]
