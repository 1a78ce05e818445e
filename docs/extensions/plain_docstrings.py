"""Docstrings are plain text with names in backticks, and formulas with bars and stars: no markup is read into them.

What stands beside a field of a class, `z: Array  # [J, R, K]`, belongs to its docstring too.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

from sphinx.application import Sphinx

SPECIAL = re.compile(r"([\\*|_])")
ITEM = re.compile(r"^([a-z]\w*(?:, \w+)*) : (.*)$")


def plain(line: str) -> str:
    """One line as reStructuredText that shows what stands there."""
    parts = line.split("`")
    if len(parts) % 2 == 0:
        return SPECIAL.sub(r"\\\1", line.replace("`", "\\`"))
    return "".join(f"``{part}``" if i % 2 else SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def sections(lines: list[str]) -> list[str]:
    """The Parameters and Attributes of an estimator, as scikit-learn has them, as lists below their names."""
    found: list[str] = []
    for i, line in enumerate(lines):
        if i + 1 < len(lines) and lines[i + 1].startswith("---"):
            found += [f"**{line}**", ""]
        elif not line.startswith("---"):
            item = ITEM.match(line)
            indented = f"  {line.strip()}" if line.startswith(" ") else line
            found.append(f"* `{item[1]}`: {item[2]}" if item else indented)
    return found


def fields(cls: type) -> list[str]:
    """The annotated fields of a class as a list, each with the remark behind it."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines = source.splitlines()
    found = [part for part in ast.parse(source).body[0].body if isinstance(part, ast.AnnAssign)]  # type: ignore[attr-defined]
    rows = []
    for field in found:
        remark = lines[(field.end_lineno or 1) - 1][field.end_col_offset or 0 :].partition("#")[2].strip()
        rows.append(f"* ``{ast.unparse(field)}``" + (f": {plain(' '.join(remark.split()))}" if remark else ""))
    return rows


def _marked(line: str) -> str:
    """A line of `sections`, whose first sign is markup."""
    return line if line.startswith("**") else f"* {plain(line[2:])}" if line.startswith("* ") else plain(line)


def on_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Take a docstring as it is, and put a class's fields behind it."""
    headed = any(line.startswith("---") for line in lines)
    lines[:] = [_marked(line) for line in sections(lines)] if headed else [plain(line) for line in lines]
    if what == "class" and obj.__module__.startswith("taciturn"):
        lines += ["", *fields(obj), ""]


def on_signature(app: Sphinx, what: str, *rest: Any) -> tuple[str, None] | None:
    """A class's fields are listed below it; its signature would say them again."""
    return ("", None) if what == "class" else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to autodoc."""
    app.connect("autodoc-process-docstring", on_docstring)
    app.connect("autodoc-process-signature", on_signature)
    return {"parallel_read_safe": True}
