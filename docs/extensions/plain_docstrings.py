"""Convert numpydoc docstrings to reStructuredText without reading markup into their text.

Docstrings contain formulas with bars, stars and underscores, which reStructuredText would take for markup. Everything
except names in backticks, section headings and doctest examples is escaped. The annotated fields of a class are listed
with the comments behind them, as in `z: Array  # [J, R, K]`.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

from sphinx.application import Sphinx

SPECIAL = re.compile(r"([\\*|_])")
UNDERLINE = re.compile(r"^-{3,}$")
LISTED = {"Parameters", "Returns", "Yields", "Raises", "Warns", "Attributes", "Other Parameters"}


def escape(line: str) -> str:
    """Return one line of text as reStructuredText that shows the same characters.

    >>> print(escape("||x_i|| of `x`"))
    \\|\\|x\\_i\\|\\| of ``x``
    """
    parts = line.split("`")
    if len(parts) % 2 == 0:
        return SPECIAL.sub(r"\\\1", line.replace("`", "\\`"))
    return "".join(f"``{part}``" if i % 2 else SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def convert(lines: list[str]) -> list[str]:
    """Return a docstring as reStructuredText: sections as bold headings, their items as lists.

    >>> convert(["Add.", "", "Parameters", "----------", "x : int", "    A number."])
    ['Add.', '', '**Parameters**', '', '* ``x``: int. A number.', '']
    """
    found: list[str] = []
    section = ""
    i = 0
    while i < len(lines):
        line = lines[i]
        if i + 1 < len(lines) and UNDERLINE.match(lines[i + 1]):
            section = line.strip()
            found += [f"**{escape(section)}**", ""]
            i += 2
        elif line.lstrip().startswith(">>>"):
            end = next((k for k in range(i, len(lines)) if not lines[k].strip()), len(lines))
            found += [*lines[i:end], ""]  # a doctest block is shown as it is
            i = end
        elif section in LISTED and line.strip() and not line.startswith(" "):
            end = next((k for k in range(i + 1, len(lines)) if _ends_item(lines, k)), len(lines))
            found += [_item(line, lines[i + 1 : end]), ""]
            i = end
        else:
            found.append(escape(line))
            i += 1
    return found


def _ends_item(lines: list[str], k: int) -> bool:
    """Whether line k is no longer part of the description of an item."""
    return bool(lines[k].strip()) and not lines[k].startswith(" ")


def _item(head: str, description: list[str]) -> str:
    """One item of a section, on one line."""
    name, _, kind = head.partition(" : ")
    text = " ".join(escape(line.strip()) for line in description if line.strip())
    parts = [escape(kind), text] if kind and text else [escape(kind) or text]
    said = ". ".join(part for part in parts if part)
    return f"* ``{name.strip()}``" + (f": {said}" if said else "")


def fields(cls: type) -> list[str]:
    """Return the annotated fields of a class as a list, each with the comment behind it."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines = source.splitlines()
    found = [part for part in ast.parse(source).body[0].body if isinstance(part, ast.AnnAssign)]  # type: ignore[attr-defined]
    rows = []
    for field in found:
        remark = lines[(field.end_lineno or 1) - 1][field.end_col_offset or 0 :].partition("#")[2].strip()
        rows.append(f"* ``{ast.unparse(field)}``" + (f": {escape(' '.join(remark.split()))}" if remark else ""))
    return rows


def on_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Convert a docstring, and append a class's fields."""
    lines[:] = convert(lines)
    if what == "class" and obj.__module__.startswith("taciturn"):
        lines += ["", *fields(obj), ""]


def on_signature(app: Sphinx, what: str, *rest: Any) -> tuple[str, None] | None:
    """Drop the signature of a class, because its fields are listed below it."""
    return ("", None) if what == "class" else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to autodoc."""
    app.connect("autodoc-process-docstring", on_docstring)
    app.connect("autodoc-process-signature", on_signature)
    return {"parallel_read_safe": True}
