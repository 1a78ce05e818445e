"""Show commands as the terminal does: options grouped in panels, examples in a code block."""

from __future__ import annotations

from itertools import groupby

import click
from sphinx.application import Sphinx

EXAMPLES = "| Examples:"


def in_panels(app: Sphinx, ctx: click.Context, lines: list[str]) -> None:
    """Insert a heading before the first option of every panel, if a command has several panels."""
    panels = [getattr(option, "panel", None) for option in ctx.command.params if isinstance(option, click.Option)]
    if len(set(panels)) < 2:
        return
    starts = [i for i, line in enumerate(lines) if line.startswith(".. option::")]
    first = [len(list(group)) for _, group in groupby(panels)]
    for number in reversed(range(len(first))):
        place = sum(first[:number])
        lines[starts[place] : starts[place]] = [f".. rubric:: {panels[place] or 'Options'}", "   :class: panel", ""]


def with_examples(app: Sphinx, ctx: click.Context, lines: list[str]) -> None:
    """Turn the `Examples:` paragraph into a code block, which keeps its columns."""
    if EXAMPLES not in lines:
        return
    start = lines.index(EXAMPLES)
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    shown = [f"   {line.removeprefix('|   ')}" for line in lines[start + 1 : end]]
    lines[start:end] = [".. code-block:: text", "", *shown, ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to sphinx-click."""
    app.connect("sphinx-click-process-options", in_panels)
    app.connect("sphinx-click-process-description", with_examples)
    return {"parallel_read_safe": True}
