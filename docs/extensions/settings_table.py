"""The directive `settings` lists every setting of a run, from the table that the program reads."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from taciturn.settings.checks import BY_MODE
from taciturn.settings.settings import FIELDS


class SettingsDirective(SphinxDirective):
    """Create one section and one table for each group."""

    def run(self) -> list[Any]:
        """Return the nodes of the page."""
        return self.parse_text_to_nodes(settings_text(), allow_section_headings=True)


def settings_text() -> str:
    """Return all groups as Markdown."""
    groups = groupby(FIELDS.values(), key=lambda entry: entry.metadata["group"])
    return "\n".join(_group(name, list(entries)) for name, entries in groups)


def _group(name: str, entries: list[dataclasses.Field[Any]]) -> str:
    rows = [f"| `{entry.name}` | {_default(entry)} | {_cell(entry.metadata['help'])} |" for entry in entries]
    return "\n".join([f"## {name}", "", "| setting | default | meaning |", "|---|---|---|", *rows, ""])


def _default(entry: dataclasses.Field[Any]) -> str:
    by_mode = {mode: values.get(entry.name, entry.default) for mode, values in BY_MODE.items()}
    if set(by_mode.values()) == {entry.default}:
        return _value(entry.default)
    return ", ".join(f"{_value(value)} ({mode})" for mode, value in by_mode.items() if value != ())


def _value(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case tuple():
            return ", ".join(map(_value, value))
        case "" | None:
            return ""
        case _:
            return f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("settings", SettingsDirective)
    return {"parallel_read_safe": True}
