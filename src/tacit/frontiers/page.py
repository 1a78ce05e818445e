"""`frontier.md`: what was asked, what it found, what it rests on and what it cost, for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tacit.frontiers.words import MARK, explained, rests_on
from tacit.sweeps.page import ELSEWHERE, OWNERS_ONLY
from tacit.sweeps.words import setting_name
from tacit.views.tables import format_setting

if TYPE_CHECKING:
    from tacit.frontiers.outcome import Frontier

ESCAPED = rf"\{MARK}"  # it would begin a list


def page(done: Frontier, local: bool) -> str:
    """The page as text; not local: what anybody may see of a frontier whose test errors are private."""
    figures = _figures(done) if local else [ELSEWHERE]
    owners = [OWNERS_ONLY] if local and done.private else []
    parts = ["# A frontier", *owners, _asked(done), *figures, *rests_on(done.given), *done.left_out, *done.spent]
    return "\n\n".join([*parts, *_again(done, local)]) + "\n"


def _asked(done: Frontier) -> str:
    first, over = done.grid.points[0].settings, done.grid.over
    axes = "\n".join(f"- {setting_name(n)}: {format_setting(list(values))}" for n, values in over.items() if values)
    seeds = f"{first.seeds} seed{'s' * (first.seeds > 1)}"
    counts = f"Test error against the total epsilon at delta {first.delta:g}: {done.grid.runs} runs, {seeds} each."
    return f"{counts} Every setting is in `frontier.toml`; what varies:\n\n{axes}"


def _figures(done: Frontier) -> Iterable[str]:
    yield done.table()
    yield "\n".join(f"- {line.replace(MARK, ESCAPED)}" for line in explained(done.points, done.regression))
    yield "![Test error against the total epsilon](frontier.png)"


def _again(done: Frontier, local: bool) -> Iterable[str]:
    """The commands name the best methods, which only those may know who may see the errors."""
    if local and done.again:
        lines = "\n".join(f"{command}  # {trust}" for trust, command in done.again.items())
        yield f"The best of each trust model at the smallest budget, trained again:\n\n```text\n{lines}\n```"
