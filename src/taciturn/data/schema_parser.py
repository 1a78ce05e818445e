"""The parser of a table's schema, which refuses what is wrong or unknown."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data.feature_maps.bins import MAX_PAIR, levels
from taciturn.data.memory_names import held_schema
from taciturn.data.schema import (
    INDICATOR,
    MISSING_NAME,
    NO_CATEGORY,
    OTHER_NAME,
    Categorical,
    ColumnRule,
    Numeric,
    RecordWeight,
    Schema,
    Unit,
)
from taciturn.data.table_cells import is_missing, whole_number
from taciturn.errors import InputError, TaciturnError, missing_file, unknown_name
from taciturn.types import Classes, Range, Target

TABLE_ENDINGS = (".csv", ".parquet")
SCALES = ("unit", "symmetric")
KINDS = ("numeric", "categorical")
COLUMN_SCALES = ("linear", "log", "asinh")
NUMERIC_RULES = ("low", "middle", "high")
MAX_BUCKETS = 4096


def read_schema(path: str | Path) -> Schema:
    """Read a schema file.

    Raises
    ------
    InputError
        If the file cannot be read or is not a valid schema.
    """
    return parse_schema(schema_text(path), str(path))


def schema_text(path: str | Path) -> str:
    """Return the TOML text of a schema file, or of a schema in memory.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    if (held := held_schema(path)) is not None:
        return held
    if Path(path).suffix.lower() in TABLE_ENDINGS:
        raise InputError(f"{path} is a table, not a schema: give it as data")
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text") from error
    except FileNotFoundError as error:
        raise missing_file("schema", Path(path), "'taciturn data schema' drafts one") from error
    except OSError as error:
        raise InputError(f"the schema {path} cannot be read: {error.strerror}") from error


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
    _check_keys("the schema", document, ("scale", "label", "agent", "unit", "weight", "columns", "interactions"))
    scale = document.get("scale", "unit")
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    about_label = _Section.of(document, "label", ("column", "classes", "bounds", "weights"))
    label, target = _label(about_label)
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
    others = {"label": label, "agent": agent, "unit": unit.column if unit else None}
    weight = _weight(document, others, columns) if "weight" in document else None
    pairs, class_weights = _interactions(document, rules), _class_weights(about_label, target)
    return Schema(label, target, rules, agent, scale, unit, agents, pairs, class_weights, weight)


def _class_weights(section: _Section, target: Target) -> tuple[float, ...]:
    """Return the weight of every class, 1 for those that are not named; empty if the label has no weights."""
    if "weights" not in section.values:
        return ()
    if not isinstance(target, Classes):
        raise InputError("[label] has weights and bounds: only classes have weights; a [weight] column weights records")
    given = section.values["weights"]
    if not isinstance(given, dict) or not given:
        raise InputError(f"[label] weights is {given!r}: it must have a number for each class, {{ no = 1, yes = 3 }}")
    return class_weights("[label] weights", given, target.names)


def class_weights(where: str, given: Mapping[str, Any], classes: Sequence[str]) -> tuple[float, ...]:
    """Return the weight of every class, in the order of the classes; 1 for those that are not given.

    Raises
    ------
    InputError
        If there is no such class, or a weight is not a positive number; the message begins with `where`.

    Examples
    --------
    >>> class_weights("weights", {"yes": 3}, ["no", "yes"])
    (1.0, 3.0)
    """
    for name, value in given.items():
        if name not in classes:
            known = ", ".join(f"'{other}'" for other in classes)
            raise InputError(f"{where} names the class '{name}', which is not one of the classes {known}")
        if positive_number(value) is None:
            raise InputError(f"{where} of class '{name}' is {value!r}: it must be a finite number above 0")
    return tuple(float(given.get(name, 1.0)) for name in classes)


def _weight(document: dict[str, Any], others: Mapping[str, str | None], features: Iterable[str]) -> RecordWeight:
    """Return the column of [weight], which is none of the other columns."""
    section = _Section.of(document, "weight", ("column", "max"))
    column, largest = section.text("column"), positive_number(section.required("max"))
    if largest is None:
        raise InputError(f"[weight] max is {section.values['max']!r}: it must be a finite number above 0")
    for kind, name in others.items():
        if column == name:
            raise InputError(f"the weight column '{column}' is also the {kind} column: use a different one")
    if column in features:
        raise InputError(f"the weight column '{column}' is also among [columns]: it cannot be a feature")
    return RecordWeight(column, largest)


def _interactions(document: dict[str, Any], rules: tuple[ColumnRule, ...]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of [[interactions]], each of two columns that are features."""
    entries, columns = document.get("interactions", []), {rule.name: rule for rule in rules}
    found: list[tuple[str, str]] = []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"interactions is {entries!r}: it must be sections [[interactions]]")
    for entry in entries:
        section = _Section("[[interactions]]", entry)
        _check_keys(section.where, entry, ("columns",))
        left, right = section.two_names("columns")
        for name in (left, right):
            if name not in columns:
                raise unknown_name("column", name, columns, where=section.where)
        if any({left, right} == set(other) for other in found):
            raise InputError(f"{section.where} columns holds '{left}' and '{right}', a pair that is declared already")
        a, b = levels(columns[left].block), levels(columns[right].block)
        if a * b > MAX_PAIR:
            raise InputError(
                f"{section.where} '{left}' has {a} levels and '{right}' {b}, so the pair has {a * b} features: it must"
                f" have at most {MAX_PAIR}"
            )
        found.append((left, right))
    return tuple(found)


def _label(section: _Section) -> tuple[str, Target]:
    column = section.text("column")
    if ("classes" in section.values) == ("bounds" in section.values):
        raise InputError("[label] needs either classes or bounds, and not both")
    if "bounds" in section.values:
        return column, Range(*section.bounds())
    classes = section.cell_values("classes")
    if len(classes) < 2:
        raise InputError(f"[label] has the one class '{classes[0]}': there must be at least two")
    return column, Classes(tuple(sorted(classes)))


def _column(name: str, section: _Section) -> ColumnRule:
    kind = section.text("kind")
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS, where=section.where)
    return _categorical(name, section) if kind == "categorical" else _numeric(name, section)


def _categorical(name: str, section: _Section) -> Categorical:
    where, values = section.where, section.values
    _check_keys(where, values, ("kind", "categories", "missing", "unknown", "ordered", "buckets"))
    if ("categories" in values) == ("buckets" in values):
        raise InputError(f"{where} needs either categories or buckets, and not both")
    categories = section.cell_values("categories") if "categories" in values else ()
    buckets = section.count("buckets") if "buckets" in values else 0
    if buckets > MAX_BUCKETS:
        raise InputError(f"{where} buckets is {buckets}: it must be at most {MAX_BUCKETS}")
    missing, unknown = values.get("missing", NO_CATEGORY), values.get("unknown", MISSING_NAME)
    ordered = values.get("ordered", False)
    if missing not in (NO_CATEGORY, INDICATOR, *categories):
        raise unknown_name("missing rule", missing, (NO_CATEGORY, INDICATOR, *categories), where=where)
    if unknown not in (MISSING_NAME, OTHER_NAME):
        raise unknown_name("unknown rule", unknown, (MISSING_NAME, OTHER_NAME), where=where)
    if not isinstance(ordered, bool):
        raise InputError(f"{where} ordered is {ordered!r}: it must be true or false")
    if buckets and (ordered or unknown == OTHER_NAME):
        raise InputError(f"{where} has buckets, whose values are neither ordered nor unknown: remove the other keys")
    if ordered and unknown == OTHER_NAME:
        raise InputError(f'{where} is ordered, and an unknown value has no place in an order: remove unknown = "other"')
    rule = Categorical(name, categories, missing, unknown, ordered, buckets)
    if len(set(rule.values)) < len(rule.values):
        raise InputError(f"{where} has a category of the same name as the feature for missing or other values")
    return rule


def _numeric(name: str, section: _Section) -> Numeric:
    where, values = section.where, section.values
    _check_keys(where, values, ("kind", "bounds", "missing", "scale", "step"))
    (low, high), missing = section.bounds(), values.get("missing", Numeric.missing)
    number, scale = _number(missing), values.get("scale", Numeric.scale)
    if number is not None and not low <= number <= high:
        raise InputError(f"{where} missing is {number:g}: a number must be within the bounds {low:g}..{high:g}")
    if number is None and missing not in (*NUMERIC_RULES, INDICATOR):
        rules = (*NUMERIC_RULES, INDICATOR, "a number within the bounds")
        raise unknown_name("missing rule", missing, rules, where=where)
    if scale not in COLUMN_SCALES:
        raise unknown_name("scale", scale, COLUMN_SCALES, where=where)
    if scale == "log" and low <= 0.0:
        raise InputError(f'{where} has scale "log" and the lower bound {low:g}: it must be above 0, or use "asinh"')
    step = positive_number(values.get("step", Numeric.step))
    if step is None:
        raise InputError(f"{where} step is {values['step']!r}: it must be a number above 0")
    if "step" in values and scale != "asinh":
        raise InputError(f'{where} has a step, which only scale = "asinh" uses')
    rule = Numeric(name, low, high, missing if number is None else number, scale, step)
    with np.errstate(over="ignore"):
        ends = rule.stretched(np.array([low, high]))
    if not 0.0 < ends[1] - ends[0] < math.inf:
        raise InputError(
            f'{where} has the bounds [{low!r}, {high!r}], which are too close or too large for scale "{scale}"'
        )
    return rule


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
        value = self.required(key)
        if not isinstance(value, str) or not value:
            raise InputError(f"{self.where} {key} is {value!r}: it must be a string in quotes")
        return value

    def count(self, key: str) -> int:
        value = self.required(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{self.where} {key} is {value!r}: it must be a whole number of at least 1")
        return value

    def bounds(self) -> tuple[float, float]:
        value = self.required("bounds")
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
        return distinct_names(f"{self.where} {key}", self.required(key))

    def two_names(self, key: str) -> tuple[str, str]:
        value = self.required(key)
        if not isinstance(value, list) or len(value) != 2 or len(set(map(str, value))) != 2:
            raise InputError(f"{self.where} {key} is {value!r}: it must be a list of two different names")
        return str(value[0]), str(value[1])

    def cell_values(self, key: str) -> tuple[str, ...]:
        """Return a list of values that cells may have; 1 and 1.0 are one value."""
        names, numbers = self.names(key), dict[int, str]()
        for name in names:
            number = whole_number(name)
            if number is not None and numbers.setdefault(number, name) != name:
                raise InputError(
                    f"{self.where} {key} holds '{numbers[number]}' and '{name}': these are the same number"
                )
        return names

    def required(self, key: str) -> Any:
        if self.values.get(key) is None:
            raise InputError(f"{self.where} needs the key {key}")
        return self.values[key]


def distinct_names(where: str, value: object) -> tuple[str, ...]:
    """Return a list of names as they are in a table; integers become their digits.

    Raises
    ------
    InputError
        If a name stands for a missing value, occurs twice, or is not a name; the message begins with `where`.

    Examples
    --------
    >>> distinct_names("categories", ["a", 1])
    ('a', '1')
    """
    if not isinstance(value, list) or not value:
        raise InputError(f"{where} is {value!r}: it must be a list of at least one name")
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
        raise InputError(f"{where} holds {problem}")
    return tuple(names)


def _check_keys(where: str, given: Mapping[str, object], known: Iterable[str]) -> None:
    for key in given:
        if key not in known:
            raise unknown_name("key", key, known, where=where)


def _number(value: object) -> float | None:
    """Return a number as a float, infinite if it is too large for one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def positive_number(value: object) -> float | None:
    """Return a finite number above 0 as a float; None for anything else."""
    number = _number(value)
    return number if number is not None and 0.0 < number < math.inf else None
