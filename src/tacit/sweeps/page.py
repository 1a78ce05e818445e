"""`sweep.md`: what a sweep was asked for, what it cost and what it found, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tacit.sweeps.words import at_words, notes, setting_name, summary_table, verdict
from tacit.views.tables import format_setting, markdown_table

if TYPE_CHECKING:
    from tacit.sweeps.outcome import Sweep

OWNERS_ONLY = (
    "**For the owner of the records alone.** These test errors are computed from private records without noise. "
    "This file must not leave your organisation."
)
ELSEWHERE = (
    "Test errors, means and comparisons are computed from private records without noise. They are for the owner of the "
    "records alone, in the folder `local-only`."
)


def page(sweep: Sweep, spent: Sequence[str], local: bool) -> str:
    """The page as text, with what all runs spent; not local: what anybody may see."""
    parts = ["# A sweep", _asked(sweep), *spent]
    if sweep.failed:
        parts.append("Points that did not end:\n\n" + _list(f"{n}: {words}" for n, words in sweep.failed.items()))
    if sweep.private and not local:
        return _text([*parts, ELSEWHERE])
    return _text([*parts, *([OWNERS_ONLY] if local and sweep.private else []), *_results(sweep)])


def _results(sweep: Sweep) -> Iterable[str]:
    if not sweep.means:
        return
    headings, rows = summary_table(sweep.means, sweep.unit, sweep.regression)
    yield "## Test error\n\n" + markdown_table(headings, rows, left=headings)
    yield f"![Test error against what was swept]({sweep.picture.name})"
    if sweep.comparisons:
        lines = (f"{_where(at_words(one.at))}{verdict(one, sweep.regression)}" for one in sweep.comparisons)
        yield "## Comparisons\n\n" + _list(lines)
    hardened = any(point.settings.noise == "hardened" for point in sweep.grid.points)
    yield "\n".join(notes(sweep.comparisons, [found.n for found in sweep.means.values()], sweep.unit, hardened))


def _asked(sweep: Sweep) -> str:
    first = sweep.grid.points[0].settings
    axes = _list(f"{setting_name(name)}: {format_setting(list(v))}" for name, v in sweep.grid.over.items())
    seeds = f"{first.seeds} seed{'s' * (first.seeds > 1)}"
    counts = f"{len(sweep.grid.points)} run folders, {sweep.grid.runs} runs, {seeds} each."
    return f"{counts} Every setting is in `sweep.toml`; what varies:\n\n{axes}"


def _where(at: str) -> str:
    return f"{at}: " if at else ""


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _text(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"
