"""What a table's owner says in public about its columns: bounds, categories and classes, read from TOML."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.data.schema_rules import bounds_of, check_keys, count_of, names_of, number_of, section_of, text_of
from tacit.errors import InputError, absent, no_such
from tacit.types import Classes, Range, Target

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
        raise absent("schema", Path(path), "'tacit data schema' drafts one") from None
    except OSError as error:
        raise InputError(f"the schema {path} cannot be read: {error.strerror}") from None
    return parse_schema(text, str(path))


def parse_schema(text: str, where: str = "schema") -> Schema:
    """The schema in a TOML text; an unknown key is an error."""
    try:
        document = tomllib.loads(text)
        return _schema(document)
    except (InputError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{where}: {error}") from None


def _schema(document: dict[str, Any]) -> Schema:
    check_keys("the schema", document, ("scale", "label", "agent", "unit", "columns"))
    scale = document.get("scale", "unit")
    if scale not in SCALES:
        raise no_such("scale", scale, SCALES)
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
            raise no_such(f"missing rule in {where}", missing, (NO_CATEGORY, *categories))
        return Categorical(name, categories, missing)
    raise no_such(f"kind in {where}", kind, KINDS)


def _numeric_missing(where: str, rule: object, low: float, high: float) -> str | float:
    number = number_of(rule)
    if number is not None:
        if not low <= number <= high:
            raise InputError(f"{where} missing is {number:g}: a number must be within the bounds {low:g}..{high:g}")
        return number
    if not isinstance(rule, str) or rule not in NUMERIC_RULES:
        raise no_such(f"missing rule in {where}", rule, (*NUMERIC_RULES, "a number within the bounds"))
    return rule
