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

SCALES = ("unit", "symmetric")
KINDS = ("numeric", "categorical")
NUMERIC_RULES = ("low", "middle", "high")
NO_CATEGORY = "none"
BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Numeric:
    """A column of numbers with public bounds.

    Parameters
    ----------
    name : str
        The column.
    low, high : float
        The bounds; values outside are clipped.
    missing : str or float
        What replaces a missing value: low, middle, high, or a number within the bounds.

    Examples
    --------
    >>> Numeric("age", 0.0, 80.0).scaled(np.array([20.0, 90.0]), "unit").tolist()
    [0.25, 1.0]
    """

    name: str
    low: float
    high: float
    missing: str | float = "middle"

    @property
    def fill(self) -> float:
        """The number that replaces a missing value and text that is not a number."""
        if isinstance(self.missing, float):
            return self.missing
        middle = self.low + (self.high - self.low) / 2
        return {"low": self.low, "middle": middle, "high": self.high}[self.missing]

    def scaling(self, scale: str) -> tuple[float, float]:
        """Return (a, b) such that `scaled` maps a value v within the bounds to a v + b."""
        width = self.high - self.low
        if scale == "symmetric":
            return 2.0 / width, -2.0 * self.low / width - 1.0
        return 1.0 / width, -self.low / width

    def scaled(self, values: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
        """Clip values to the bounds and return u = (v - low) / (high - low), or 2 u - 1 on the symmetric scale."""
        unit: NDArray[np.float64] = (np.clip(values, self.low, self.high) - self.low) / (self.high - self.low)
        return 2 * unit - 1 if scale == "symmetric" else unit

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return (self.name,)


@dataclass(frozen=True)
class Categorical:
    """A column with a public list of values; each is a feature that is 0 or 1 on either scale.

    Parameters
    ----------
    name : str
        The column.
    categories : tuple of str
        The values.
    missing : str
        The category that replaces a missing or unknown value; "none": all features are 0, even if a category has that
        name.
    """

    name: str
    categories: tuple[str, ...]
    missing: str = NO_CATEGORY

    @property
    def fill(self) -> int:
        """The position of the category that replaces a missing or unknown value; -1 for none."""
        return -1 if self.missing == NO_CATEGORY else self.categories.index(self.missing)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return tuple(f"{self.name}={category}" for category in self.categories)


ColumnRule: TypeAlias = Numeric | Categorical


@dataclass(frozen=True)
class Unit:
    """The unit of privacy if a person has several rows."""

    column: str  # names the person
    max_records: int  # of a unit's rows at one agent, the first this many are used


@dataclass(frozen=True)
class Schema:
    """The public description that turns a table's rows into features and labels without looking at the data.

    Parameters
    ----------
    label : str
        The label's column.
    target : Target
        What the label is.
    columns : tuple of ColumnRule
        The columns that become features.
    agent : str, optional
        The column that names each row's agent.
    scale : str
        The scale of numeric features: "unit" for [0, 1], "symmetric" for [-1, 1].
    unit : Unit, optional
        The unit of privacy; None: every record is a unit.
    agents : tuple of str
        The names that may occur in the agent column; empty: any.
    """

    label: str
    target: Target
    columns: tuple[ColumnRule, ...]
    agent: str | None = None
    scale: str = "unit"
    unit: Unit | None = None
    agents: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, in the schema's order."""
        return tuple(name for column in self.columns for name in column.features)


def read_schema(path: str | Path) -> Schema:
    """Read a schema file.

    Raises
    ------
    InputError
        If the file cannot be read or is not a valid schema.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text") from error
    except FileNotFoundError as error:
        raise missing_file("schema", Path(path), "'taciturn data schema' drafts one") from error
    except OSError as error:
        raise InputError(f"the schema {path} cannot be read: {error.strerror}") from error
    return parse_schema(text, str(path))


def parse_schema(text: str, where: str = "schema") -> Schema:
    """Parse a schema from TOML text; an unknown key is an error.

    Parameters
    ----------
    text
        The TOML text.
    where
        The text's name in error messages.

    Raises
    ------
    InputError
        If the text is not TOML or not a valid schema.

    Examples
    --------
    >>> schema = parse_schema('''
    ... [label]
    ... column = "ill"
    ... classes = ["no", "yes"]
    ... [columns.age]
    ... kind = "numeric"
    ... bounds = [0, 100]
    ... ''')
    >>> schema.label, schema.features
    ('ill', ('age',))
    """
    try:
        return _schema(tomllib.loads(text))
    except (TaciturnError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{where}: {error}") from error


def _schema(document: dict[str, Any]) -> Schema:
    _check_keys("the schema", document, ("scale", "label", "agent", "unit", "columns"))
    scale = document.get("scale", "unit")
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    label, target = _label(_Section.of(document, "label", ("column", "classes", "bounds")))
    columns = _Section.of(document, "columns").values
    if not columns:
        raise InputError("[columns] is empty: there must be at least one column")
    if label in columns:
        raise InputError(f"the label column '{label}' is also among [columns]: it cannot be a feature")
    rules = tuple(_column(name, _Section.of(columns, name, prefix="columns.")) for name in columns)
    agent, unit = None, None
    agents: tuple[str, ...] = ()
    if "agent" in document:
        section = _Section.of(document, "agent", ("column", "names"))
        agent = section.text("column")
        agents = section.names("names") if "names" in section.values else ()
        if agent == label:
            raise InputError(f"the agent column '{agent}' is also the label column")
    if "unit" in document:
        section = _Section.of(document, "unit", ("column", "max_records"))
        column = section.text("column")
        for kind, name in (("label", label), ("agent", agent)):
            if column == name:
                raise InputError(f"the unit column '{column}' is also the {kind} column: use a different column")
        if column in columns:
            raise InputError(f"the unit column '{column}' is also among [columns]: an identifier cannot be a feature")
        unit = Unit(column, section.count("max_records"))
    return Schema(label, target, rules, agent, scale, unit, agents)


def _label(section: _Section) -> tuple[str, Target]:
    column = section.text("column")
    if ("classes" in section.values) == ("bounds" in section.values):
        raise InputError("[label] needs either classes or bounds, and not both")
    if "bounds" in section.values:
        return column, Range(*section.bounds())
    classes = section.names("classes")
    if len(classes) < 2:
        raise InputError(f"[label] has the one class '{classes[0]}': there must be at least two")
    return column, Classes(tuple(sorted(classes)))


def _column(name: str, section: _Section) -> ColumnRule:
    where, kind = section.where, section.text("kind")
    if kind not in KINDS:
        raise unknown_name(f"kind in {where}", kind, KINDS)
    if kind == "categorical":
        _check_keys(where, section.values, ("kind", "categories", "missing"))
        categories, missing = section.names("categories"), section.values.get("missing", NO_CATEGORY)
        if missing != NO_CATEGORY and missing not in categories:
            raise unknown_name(f"missing rule in {where}", missing, (NO_CATEGORY, *categories))
        return Categorical(name, categories, missing)
    _check_keys(where, section.values, ("kind", "bounds", "missing"))
    (low, high), missing = section.bounds(), section.values.get("missing", Numeric.missing)
    number = _number(missing)
    if number is not None and not low <= number <= high:
        raise InputError(f"{where} missing is {number:g}: a number must be within the bounds {low:g}..{high:g}")
    if number is None and missing not in NUMERIC_RULES:
        raise unknown_name(f"missing rule in {where}", missing, (*NUMERIC_RULES, "a number within the bounds"))
    return Numeric(name, low, high, missing if number is None else number)


@dataclass(frozen=True)
class _Section:
    """A section of the TOML document, with checked access to its values."""

    where: str  # its heading, for error messages
    values: dict[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any], name: str, keys: Sequence[str] = (), prefix: str = "") -> _Section:
        """Return a section that must exist and, if `keys` are given, has no other keys."""
        where = f"[{prefix}{name}]"
        if name not in document:
            raise InputError(f"there is no section {where}")
        if not isinstance(document[name], dict):
            raise InputError(f"{prefix}{name} is {document[name]!r}: it must be a section {where}")
        if keys:
            _check_keys(where, document[name], keys)
        return cls(where, document[name])

    def text(self, key: str) -> str:
        value = self._required(key)
        if not isinstance(value, str) or not value:
            raise InputError(f"{self.where} {key} is {value!r}: it must be a string in quotes")
        return value

    def count(self, key: str) -> int:
        value = self._required(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{self.where} {key} is {value!r}: it must be a whole number of at least 1")
        return value

    def bounds(self) -> tuple[float, float]:
        value = self._required("bounds")
        numbers = [_number(item) for item in value] if isinstance(value, list) else []
        low, high = numbers if len(numbers) == 2 else (None, None)
        if low is None or high is None:
            raise InputError(f"{self.where} bounds is {value!r}: it must be two numbers, [low, high]")
        if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)):
            raise InputError(f"{self.where} bounds is [{low:g}, {high:g}]: both must be finite")
        if low >= high:
            raise InputError(f"{self.where} bounds is [{low:g}, {high:g}]: the first must be below the second")
        return low, high

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of different names; integers become their digits."""
        value = self._required(key)
        if not isinstance(value, list) or not value:
            raise InputError(f"{self.where} {key} is {value!r}: it must be a list of at least one name")
        names: list[str] = []
        for item in value:
            name = str(item)
            if isinstance(item, bool) or not isinstance(item, str | int):
                problem = f"{item!r}: a name must be a string in quotes or a whole number"
            elif is_missing(name):
                problem = f"'{name}': in a table that is a missing value"
            elif name != name.strip():
                problem = f"'{name}': a name cannot begin or end with a space"
            elif name in names:
                problem = f"'{name}' twice"
            else:
                names.append(name)
                continue
            raise InputError(f"{self.where} {key} holds {problem}")
        return tuple(names)

    def _required(self, key: str) -> Any:
        if self.values.get(key) is None:
            raise InputError(f"{self.where} needs the key {key}")
        return self.values[key]


def _check_keys(where: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in given:
        if key not in known:
            raise unknown_name(f"key in {where}", key, known)


def _number(value: object) -> float | None:
    """Return a number as a float, infinite if it is too large for one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def dump_schema(schema: Schema, remarks: Mapping[str, str] | None = None, left_out: Sequence[str] = ()) -> str:
    """Return TOML text that parses back to the schema.

    Parameters
    ----------
    schema
        The schema.
    remarks
        Comments by column name, placed after the column's values.
    left_out
        Comments placed at the end.
    """

    def remarked(line: str, name: str) -> str:
        return f"{line}  {comment(remarks[name])}" if remarks and name in remarks else line

    lines = [f"scale = {_quote(schema.scale)}", "", "[label]", f"column = {_quote(schema.label)}"]
    lines.append(remarked(_values(schema.target), schema.label))
    if schema.agent is not None:
        lines += ["", "[agent]", f"column = {_quote(schema.agent)}"]
        lines += [remarked(_names("names", schema.agents), schema.agent)] if schema.agents else []
    if schema.unit is not None:
        lines += ["", "[unit]", f"column = {_quote(schema.unit.column)}", f"max_records = {schema.unit.max_records}"]
    for column in schema.columns:
        kind = "categorical" if isinstance(column, Categorical) else "numeric"
        missing = _quote(column.missing) if isinstance(column.missing, str) else repr(column.missing)
        key = column.name if BARE.fullmatch(column.name) else _quote(column.name)
        lines += ["", f"[columns.{key}]", f"kind = {_quote(kind)}", remarked(_values(column), column.name)]
        lines.append(f"missing = {missing}")
    return "\n".join([*lines, *map(comment, left_out)]) + "\n"


def comment(text: str) -> str:
    """Return a TOML comment line; characters that TOML does not allow in one are escaped."""
    return "# " + _quote(text)[1:-1].replace('\\"', '"')


def _quote(text: str) -> str:
    """Return a TOML string: JSON's, with DEL escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _names(key: str, names: Iterable[str]) -> str:
    return f"{key} = [{', '.join(map(_quote, names))}]"


def _values(rule: ColumnRule | Target) -> str:
    if isinstance(rule, Classes):
        return _names("classes", rule.names)
    if isinstance(rule, Categorical):
        return _names("categories", rule.categories)
    return f"bounds = [{rule.low!r}, {rule.high!r}]"
