"""A table's schema: public bounds, categories and classes of its columns, read from and written as TOML."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.data.table_cells import is_missing
from taciturn.errors import InputError, TaciturnError, missing_file, unknown_name
from taciturn.types import Classes, Range, Target


def check_keys(where: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a key nobody reads."""
    known = tuple(known)
    for key in given:
        if key not in known:
            raise unknown_name(f"key in {where}", key, known)


def section_of(document: Mapping[str, Any], name: str, prefix: str = "") -> dict[str, Any]:
    """A section that must be there."""
    if name not in document:
        raise InputError(f"there is no section [{prefix}{name}]")
    section = document[name]
    if not isinstance(section, dict):
        raise InputError(f"{prefix}{name} is {section!r}: it must be a section [{prefix}{name}]")
    return section


def text_of(where: str, section: Mapping[str, Any], key: str) -> str:
    """A text that must be there."""
    value = section.get(key)
    if value is None:
        raise InputError(f"{where} needs the key {key}")
    if not isinstance(value, str) or not value:
        raise InputError(f"{where} {key} is {value!r}: it must be a text in quotes")
    return value


def bounds_of(where: str, section: Mapping[str, Any]) -> tuple[float, float]:
    """Two finite numbers, the lower first."""
    value = section.get("bounds")
    if value is None:
        raise InputError(f"{where} needs the key bounds")
    numbers = [number_of(v) for v in value] if isinstance(value, list) else []
    low, high = numbers if len(numbers) == 2 else (None, None)
    if low is None or high is None:
        raise InputError(f"{where} bounds is {value!r}: it must be two numbers, [low, high]")
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)):
        raise InputError(f"{where} bounds is [{low:g}, {high:g}]: both must be finite")
    if low >= high:
        raise InputError(f"{where} bounds is [{low:g}, {high:g}]: the first must be below the second")
    return low, high


def count_of(where: str, section: Mapping[str, Any], key: str) -> int:
    """A whole number of at least 1."""
    value = section.get(key)
    if value is None:
        raise InputError(f"{where} needs the key {key}")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{where} {key} is {value!r}: it must be a whole number of at least 1")
    return value


def names_of(where: str, section: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of different names; whole numbers are taken as their digits."""
    value = section.get(key)
    if value is None:
        raise InputError(f"{where} needs the key {key}")
    if not isinstance(value, list) or not value:
        raise InputError(f"{where} {key} is {value!r}: it must be a list of at least one name")
    names = []
    for item in value:
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise InputError(f"{where} {key} holds {item!r}: a name must be a text in quotes or a whole number")
        name = str(item)
        if is_missing(name):
            raise InputError(f"{where} {key} holds '{name}': in a table that is a missing value")
        if name != name.strip():
            raise InputError(f"{where} {key} holds '{name}': a name cannot begin or end with a blank")
        if name in names:
            raise InputError(f"{where} {key} holds '{name}' twice")
        names.append(name)
    return tuple(names)


def number_of(value: object) -> float | None:
    """A number as a float, infinite where it is too large for one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


SCALES = ("unit", "symmetric")
KINDS = ("numeric", "categorical")
NUMERIC_RULES = ("low", "middle", "high")
NO_CATEGORY = "none"


@dataclass(frozen=True)
class Numeric:
    """A number with public bounds."""

    name: str
    low: float
    high: float
    missing: str | float = "middle"  # low, middle, high, or a number within the bounds

    @property
    def fill(self) -> float:
        """What stands in for a missing value, and for what is no number."""
        if isinstance(self.missing, float):
            return self.missing
        middle = self.low + (self.high - self.low) / 2
        return {"low": self.low, "middle": middle, "high": self.high}[self.missing]

    def scaling(self, scale: str) -> tuple[float, float]:
        """(a, b) of a v + b, which is what `scaled` makes of a value v within the bounds."""
        width = self.high - self.low
        if scale == "symmetric":
            return 2.0 / width, -2.0 * self.low / width - 1.0
        return 1.0 / width, -self.low / width

    def scaled(self, values: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
        """Clip to the bounds, then u = (v - low) / (high - low), or 2 u - 1 on the symmetric scale."""
        unit: NDArray[np.float64] = (np.clip(values, self.low, self.high) - self.low) / (self.high - self.low)
        return 2 * unit - 1 if scale == "symmetric" else unit

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return (self.name,)


@dataclass(frozen=True)
class Categorical:
    """One of a public list of values; a feature for each, 0 or 1 on either scale."""

    name: str
    categories: tuple[str, ...]
    missing: str = NO_CATEGORY  # none (all zeros), or a category; the word none goes before a category's name

    @property
    def fill(self) -> int:
        """The place of the category that stands in for a missing value, and for an unknown one; -1: none does."""
        return -1 if self.missing == NO_CATEGORY else self.categories.index(self.missing)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return tuple(f"{self.name}={category}" for category in self.categories)


ColumnRule: TypeAlias = Numeric | Categorical


@dataclass(frozen=True)
class Unit:
    """Whose privacy is kept where a person has several rows: the column that names the person, and how many count."""

    column: str
    max_records: int  # of the rows of one unit at one agent, the first this many are used


@dataclass(frozen=True)
class Schema:
    """Everything that turns a table's rows into features and labels without looking at the data."""

    label: str
    target: Target
    columns: tuple[ColumnRule, ...]
    agent: str | None = None
    scale: str = "unit"
    unit: Unit | None = None  # None: every record is a unit of its own
    agents: tuple[str, ...] = ()  # the names that the agent column may have; none: whatever names it has

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, in the schema's order."""
        return tuple(name for column in self.columns for name in column.features)


def read_schema(path: str | Path) -> Schema:
    """The schema in a file."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    except FileNotFoundError:
        raise missing_file("schema", Path(path), "'taciturn data schema' drafts one") from None
    except OSError as error:
        raise InputError(f"the schema {path} cannot be read: {error.strerror}") from None
    return parse_schema(text, str(path))


def parse_schema(text: str, where: str = "schema") -> Schema:
    """The schema in a TOML text; an unknown key is an error."""
    try:
        document = tomllib.loads(text)
        return _schema(document)
    except (TaciturnError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{where}: {error}") from None


def _schema(document: dict[str, Any]) -> Schema:
    check_keys("the schema", document, ("scale", "label", "agent", "unit", "columns"))
    scale = document.get("scale", "unit")
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    label, target = _label(section_of(document, "label"))
    columns = section_of(document, "columns")
    if not columns:
        raise InputError("[columns] is empty: there must be at least one column")
    if label in columns:
        raise InputError(f"the label column '{label}' is also among [columns]: it cannot be a feature")
    rules = tuple(_column(name, section_of(columns, name, "columns.")) for name in columns)
    agent, agents = _agent(document, label)
    return Schema(label, target, rules, agent, scale, _unit(document, label, agent, columns), agents)


def _label(section: dict[str, Any]) -> tuple[str, Target]:
    check_keys("[label]", section, ("column", "classes", "bounds"))
    column = text_of("[label]", section, "column")
    if ("classes" in section) == ("bounds" in section):
        raise InputError("[label] needs either classes or bounds, and not both")
    if "bounds" in section:
        return column, Range(*bounds_of("[label]", section))
    classes = names_of("[label]", section, "classes")
    if len(classes) < 2:
        raise InputError(f"[label] has the one class '{classes[0]}': there must be at least two")
    return column, Classes(tuple(sorted(classes)))


def _agent(document: dict[str, Any], label: str) -> tuple[str | None, tuple[str, ...]]:
    if "agent" not in document:
        return None, ()
    section = section_of(document, "agent")
    check_keys("[agent]", section, ("column", "names"))
    column = text_of("[agent]", section, "column")
    if column == label:
        raise InputError(f"the agent column '{column}' is also the label column")
    return column, names_of("[agent]", section, "names") if "names" in section else ()


def _unit(document: dict[str, Any], label: str, agent: str | None, columns: dict[str, Any]) -> Unit | None:
    if "unit" not in document:
        return None
    section = section_of(document, "unit")
    check_keys("[unit]", section, ("column", "max_records"))
    column = text_of("[unit]", section, "column")
    for what, name in (("label", label), ("agent", agent)):
        if column == name:
            raise InputError(f"the unit column '{column}' is also the {what} column: a unit needs a column of its own")
    if column in columns:
        raise InputError(f"the unit column '{column}' is also among [columns]: an identifier cannot be a feature")
    return Unit(column, count_of("[unit]", section, "max_records"))


def _column(name: str, section: dict[str, Any]) -> ColumnRule:
    where = f"[columns.{name}]"
    kind = text_of(where, section, "kind")
    if kind == "numeric":
        check_keys(where, section, ("kind", "bounds", "missing"))
        low, high = bounds_of(where, section)
        return Numeric(name, low, high, _numeric_missing(where, section.get("missing", Numeric.missing), low, high))
    if kind == "categorical":
        check_keys(where, section, ("kind", "categories", "missing"))
        categories = names_of(where, section, "categories")
        missing = section.get("missing", NO_CATEGORY)
        if missing != NO_CATEGORY and missing not in categories:
            raise unknown_name(f"missing rule in {where}", missing, (NO_CATEGORY, *categories))
        return Categorical(name, categories, missing)
    raise unknown_name(f"kind in {where}", kind, KINDS)


def _numeric_missing(where: str, rule: object, low: float, high: float) -> str | float:
    number = number_of(rule)
    if number is not None:
        if not low <= number <= high:
            raise InputError(f"{where} missing is {number:g}: a number must be within the bounds {low:g}..{high:g}")
        return number
    if not isinstance(rule, str) or rule not in NUMERIC_RULES:
        raise unknown_name(f"missing rule in {where}", rule, (*NUMERIC_RULES, "a number within the bounds"))
    return rule


BARE = re.compile(r"[A-Za-z0-9_-]+")


def dump_schema(schema: Schema, remarks: Mapping[str, str] | None = None, left_out: Sequence[str] = ()) -> str:
    """TOML that parses back to the schema; `remarks` by column name and `left_out` become comments."""
    remarks = remarks or {}
    lines = [f"scale = {quote(schema.scale)}", "", "[label]", f"column = {quote(schema.label)}"]
    lines.append(_remark(_label_schema_text(schema), remarks.get(schema.label)))
    if schema.agent is not None:
        lines += ["", "[agent]", f"column = {quote(schema.agent)}"]
        names = f"names = [{', '.join(map(quote, schema.agents))}]"
        lines += [_remark(names, remarks.get(schema.agent))] if schema.agents else []
    if schema.unit is not None:
        lines += ["", "[unit]", f"column = {quote(schema.unit.column)}", f"max_records = {schema.unit.max_records}"]
    for column in schema.columns:
        lines += ["", f"[columns.{_key(column.name)}]", *_column_schema_text(column, remarks.get(column.name))]
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


def _label_schema_text(schema: Schema) -> str:
    if isinstance(schema.target, Classes):
        return f"classes = [{', '.join(quote(name) for name in schema.target.names)}]"
    return f"bounds = [{schema.target.low!r}, {schema.target.high!r}]"


def _column_schema_text(column: ColumnRule, remark: str | None) -> list[str]:
    if isinstance(column, Categorical):
        kind, values = "categorical", f"categories = [{', '.join(quote(name) for name in column.categories)}]"
    else:
        kind, values = "numeric", f"bounds = [{column.low!r}, {column.high!r}]"
    missing = quote(column.missing) if isinstance(column.missing, str) else repr(column.missing)
    return [f"kind = {quote(kind)}", _remark(values, remark), f"missing = {missing}"]
