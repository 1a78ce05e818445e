"""A schema as TOML text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from tacit.data.schema import Categorical, ColumnRule, Schema
from tacit.types import Classes

BARE = re.compile(r"[A-Za-z0-9_-]+")


def dump_schema(schema: Schema, remarks: Mapping[str, str] | None = None, left_out: Sequence[str] = ()) -> str:
    """TOML that parses back to the schema; `remarks` by column name and `left_out` become comments."""
    remarks = remarks or {}
    lines = [f"scale = {quote(schema.scale)}", "", "[label]", f"column = {quote(schema.label)}"]
    lines.append(_remark(_label(schema), remarks.get(schema.label)))
    if schema.agent is not None:
        lines += ["", "[agent]", f"column = {quote(schema.agent)}"]
        names = f"names = [{', '.join(map(quote, schema.agents))}]"
        lines += [_remark(names, remarks.get(schema.agent))] if schema.agents else []
    if schema.unit is not None:
        lines += ["", "[unit]", f"column = {quote(schema.unit.column)}", f"max_records = {schema.unit.max_records}"]
    for column in schema.columns:
        lines += ["", f"[columns.{_key(column.name)}]", *_column(column, remarks.get(column.name))]
    lines += [comment(text) for text in left_out]
    return "\n".join(lines) + "\n"


def comment(text: str) -> str:
    """A comment line; what TOML does not allow in one is escaped."""
    return "# " + quote(text)[1:-1].replace('\\"', '"')


def quote(text: str) -> str:
    """A TOML string: JSON's, with DEL escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else quote(name)


def _remark(line: str, remark: str | None) -> str:
    return f"{line}  {comment(remark)}" if remark else line


def _label(schema: Schema) -> str:
    if isinstance(schema.target, Classes):
        return f"classes = [{', '.join(quote(name) for name in schema.target.names)}]"
    return f"bounds = [{schema.target.low!r}, {schema.target.high!r}]"


def _column(column: ColumnRule, remark: str | None) -> list[str]:
    if isinstance(column, Categorical):
        kind, values = "categorical", f"categories = [{', '.join(quote(name) for name in column.categories)}]"
    else:
        kind, values = "numeric", f"bounds = [{column.low!r}, {column.high!r}]"
    missing = quote(column.missing) if isinstance(column.missing, str) else repr(column.missing)
    return [f"kind = {quote(kind)}", _remark(values, remark), f"missing = {missing}"]
