"""A table's schema: public bounds, categories and classes of its columns, read from and written as TOML."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.core.storage import write_text
from taciturn.data.feature_maps.bins import MAX_PAIR, levels
from taciturn.data.memory_names import held_schema
from taciturn.data.table_cells import is_missing, whole_number
from taciturn.errors import InputError, TaciturnError, missing_file, unknown_name
from taciturn.types import Classes, ColumnBlock, Range, Target

if TYPE_CHECKING:
    from taciturn.data.schema_builder import SchemaBuilder

SCALES = ("unit", "symmetric")
KINDS = ("numeric", "categorical")
COLUMN_SCALES = ("linear", "log", "asinh")
NUMERIC_RULES = ("low", "middle", "high")
NO_CATEGORY = "none"
TABLE_ENDINGS = (".csv", ".parquet")
INDICATOR = "indicator"  # a missing value has a feature
MISSING_NAME, OTHER_NAME = "missing", "other"  # of the features for missing values and for values not declared
MAX_BUCKETS = 4096
BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Numeric:
    """A numeric column with public bounds.

    Parameters
    ----------
    name : str
        The column.
    low, high : float
        The bounds; values outside are clipped.
    missing : str or float
        What replaces a missing value: low, middle, high, or a number within the bounds. "indicator": the middle, and a
        second feature is 1.
    scale : str
        "linear"; "log" for positive columns whose values span orders of magnitude; "asinh" for those that may be 0 or
        negative.
    step : float
        For asinh: the size below which differences count as in a linear scale.

    Examples
    --------
    >>> Numeric("age", 0.0, 80.0).scaled(np.array([20.0, 90.0]), "unit").tolist()
    [0.25, 1.0]
    >>> Numeric("dose", 1.0, 100.0, scale="log").scaled(np.array([10.0]), "unit").tolist()
    [0.5]
    """

    name: str
    low: float
    high: float
    missing: str | float = "middle"
    scale: str = "linear"
    step: float = 1.0

    @property
    def fill(self) -> float:
        """The number that replaces a missing value and text that is not a number."""
        if isinstance(self.missing, float):
            return self.missing
        if self.missing in ("low", "high"):
            return self.low if self.missing == "low" else self.high
        return float(self.unstretched(np.array(0.5)))

    def scaling(self, scale: str) -> tuple[float, float]:
        """Return (a, b) such that `scaled` maps a value v within the bounds to a g(v) + b, g being `stretched`."""
        low, high = self._ends
        if scale == "symmetric":
            return 2.0 / (high - low), -2.0 * low / (high - low) - 1.0
        return 1.0 / (high - low), -low / (high - low)

    def scaled(self, values: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
        """Clip values to the bounds and return u = (g(v) - g(low)) / (g(high) - g(low)), or 2 u - 1 if symmetric."""
        low, high = self._ends
        unit = (self.stretched(np.clip(values, self.low, self.high)) - low) / (high - low)
        unit = np.clip(unit, 0.0, 1.0)  # a logarithm's last bit may depend on where in an array it is computed
        return 2 * unit - 1 if scale == "symmetric" else unit

    def stretched(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return g(v) of the column's scale: v, ln v, or asinh(v / step)."""
        if self.scale == "linear":
            return values
        return np.log(values) if self.scale == "log" else np.arcsinh(values / self.step)

    def unstretched(self, unit: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values v at positions u in [0, 1] of the unit scale."""
        low, high = self._ends
        place: NDArray[np.float64] = low + np.asarray(unit) * (high - low)
        if self.scale == "linear":
            return place
        return np.exp(place) if self.scale == "log" else self.step * np.sinh(place)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return (self.name, f"{self.name}={MISSING_NAME}") if self.missing == INDICATOR else (self.name,)

    @property
    def block(self) -> ColumnBlock:
        """Its features as feature maps see them."""
        return ColumnBlock("numeric", len(self.features), self.missing == INDICATOR)

    @property
    def _ends(self) -> tuple[float, float]:
        low, high = self.stretched(np.array([self.low, self.high])).tolist()
        return low, high


@dataclass(frozen=True)
class Categorical:
    """A column with a public list of values; each is a feature that is 0 or 1 on either scale.

    Parameters
    ----------
    name : str
        The column.
    categories : tuple of str
        The values; empty if the column is hashed.
    missing : str
        The category that replaces a missing value; "none": all features are 0, even if a category has that name;
        "indicator": a further feature is 1.
    unknown : str
        How a value that is not declared is treated: as "missing", or as "other", a further feature.
    ordered : bool
        Whether the categories are in a meaningful order, so that neighbours are alike.
    buckets : int
        For columns with too many values to list: values are hashed into this many features. 0: they are listed.
    """

    name: str
    categories: tuple[str, ...]
    missing: str = NO_CATEGORY
    unknown: str = MISSING_NAME
    ordered: bool = False
    buckets: int = 0

    @property
    def values(self) -> tuple[str, ...]:
        """The names of all values that have a feature, in order."""
        named = self.categories or tuple(f"#{bucket}" for bucket in range(self.buckets))
        other = (OTHER_NAME,) if self.unknown == OTHER_NAME else ()
        return (*named, *other, *((MISSING_NAME,) if self.missing == INDICATOR else ()))

    @property
    def fill(self) -> int:
        """The position of the value that replaces a missing one; -1 for none."""
        if self.missing == INDICATOR:
            return len(self.values) - 1
        return -1 if self.missing == NO_CATEGORY else self.categories.index(self.missing)

    @property
    def unknown_fill(self) -> int:
        """The position of the value that replaces an undeclared one; -1 for none."""
        return len(self.categories) if self.unknown == OTHER_NAME else self.fill

    def bucket(self, text: str) -> int:
        """Return the feature of a value of a hashed column; 1 and 1.0 are one value."""
        number = whole_number(text)
        raw = (text if number is None else str(number)).encode(errors="surrogatepass")
        return int.from_bytes(hashlib.sha256(raw).digest()[:8], "big") % self.buckets

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return tuple(f"{self.name}={value}" for value in self.values)

    @property
    def block(self) -> ColumnBlock:
        """Its features as feature maps see them."""
        indicated = self.missing == INDICATOR
        return ColumnBlock("ordered" if self.ordered else "categories", len(self.values), self.ordered and indicated)


ColumnRule: TypeAlias = Numeric | Categorical


@dataclass(frozen=True)
class Unit:
    """The unit of privacy if a person has several rows."""

    column: str  # names the person
    max_records: int  # of a unit's rows at one agent, the first this many are used


@dataclass(frozen=True)
class RecordWeight:
    """A column that says how much each record counts."""

    column: str
    largest: float  # values are clipped to [0, largest] and divided by it


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
    interactions : tuple of (str, str)
        Pairs of columns whose values act together; the feature map `bins` gives them features of their own.
    class_weights : tuple of float
        How much the records of each class count, in the order of the classes; only their ratios matter. Empty: equally.
    weight : RecordWeight, optional
        The column that says how much each record counts; None: equally.
    """

    label: str
    target: Target
    columns: tuple[ColumnRule, ...]
    agent: str | None = None
    scale: str = "unit"
    unit: Unit | None = None
    agents: tuple[str, ...] = ()
    interactions: tuple[tuple[str, str], ...] = ()
    class_weights: tuple[float, ...] = ()
    weight: RecordWeight | None = None

    @property
    def weighted(self) -> bool:
        """Whether some records may count less than others."""
        return bool(self.class_weights) or self.weight is not None

    @property
    def weights_in_words(self) -> str:
        """Which records count how much; empty if all count alike."""
        names = self.target.names if isinstance(self.target, Classes) else ()
        classes = ", ".join(f"{name} {weight:g}" for name, weight in zip(names, self.class_weights, strict=False))
        parts = [f"class {classes}"] if classes else []
        if self.weight is not None:
            parts.append(f"the column {self.weight.column}, up to {self.weight.largest:g}")
        return " and ".join(parts)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, in the schema's order."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def blocks(self) -> tuple[ColumnBlock, ...]:
        """The features of each column, in the schema's order, then the pairs."""
        names = [column.name for column in self.columns]
        pairs = (ColumnBlock("pair", 0, False, tuple(map(names.index, pair))) for pair in self.interactions)
        return (*(column.block for column in self.columns), *pairs)

    @classmethod
    def from_frame(cls, frame: Any) -> SchemaBuilder:
        """Begin a schema with the columns of a data frame; see `SchemaBuilder`.

        Parameters
        ----------
        frame : pandas.DataFrame or polars.DataFrame
            A frame. Only the names and types of its columns are used: no bound, category or class is read from it.

        Returns
        -------
        SchemaBuilder
            A schema that declares nothing yet.

        Raises
        ------
        InputError
            If it is not a frame.

        Examples
        --------
        >>> import pandas
        >>> Schema.from_frame(pandas.DataFrame({"age": [63.0], "ill": ["no"]})).undeclared
        ('age', 'ill')
        """
        from taciturn.data.schema_builder import SchemaBuilder

        return SchemaBuilder.from_frame(frame)

    def to_toml(self) -> str:
        """Return the schema as TOML text.

        Returns
        -------
        str
            The text of a schema file.

        Examples
        --------
        >>> schema = Schema("ill", Classes(("no", "yes")), (Numeric("age", 0.0, 120.0),))
        >>> parse_schema(schema.to_toml()) == schema
        True
        """
        return dump_schema(self)

    def save(self, path: str | Path) -> None:
        """Write the schema to a TOML file.

        Parameters
        ----------
        path : str or Path
            The file.

        Examples
        --------
        >>> schema = Schema("ill", Classes(("no", "yes")), (Numeric("age", 0.0, 120.0),))
        >>> schema.save("ill.toml")
        >>> read_schema("ill.toml") == schema
        True
        """
        write_text(Path(path).expanduser(), self.to_toml())


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
        number = _number(value)
        if number is None or not (math.isfinite(number) and number > 0.0):
            raise InputError(f"{where} of class '{name}' is {value!r}: it must be a finite number above 0")
    return tuple(float(given.get(name, 1.0)) for name in classes)


def _weight(document: dict[str, Any], others: Mapping[str, str | None], features: Iterable[str]) -> RecordWeight:
    """Return the column of [weight], which is none of the other columns."""
    section = _Section.of(document, "weight", ("column", "max"))
    column, largest = section.text("column"), _number(section.required("max"))
    if largest is None or not (math.isfinite(largest) and largest > 0.0):
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
    step = _number(values.get("step", Numeric.step))
    if step is None or not (math.isfinite(step) and step > 0.0):
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
    if schema.class_weights and isinstance(schema.target, Classes):
        pairs = zip(schema.target.names, schema.class_weights, strict=True)
        lines.append(f"weights = {{ {', '.join(f'{_quote(name)} = {weight!r}' for name, weight in pairs)} }}")
    if schema.agent is not None:
        lines += ["", "[agent]", f"column = {_quote(schema.agent)}"]
        lines += [remarked(_names("names", schema.agents), schema.agent)] if schema.agents else []
    if schema.unit is not None:
        lines += ["", "[unit]", f"column = {_quote(schema.unit.column)}", f"max_records = {schema.unit.max_records}"]
    if schema.weight is not None:
        lines += ["", "[weight]", f"column = {_quote(schema.weight.column)}", f"max = {schema.weight.largest!r}"]
    for column in schema.columns:
        key = column.name if BARE.fullmatch(column.name) else _quote(column.name)
        lines += ["", f"[columns.{key}]"]
        lines += (
            _categorical_lines(column, remarked)
            if isinstance(column, Categorical)
            else _numeric_lines(column, remarked)
        )
    for pair in schema.interactions:
        lines += ["", "[[interactions]]", _names("columns", pair)]
    return "\n".join([*lines, *map(comment, left_out)]) + "\n"


def _numeric_lines(column: Numeric, remarked: Callable[[str, str], str]) -> list[str]:
    missing = _quote(column.missing) if isinstance(column.missing, str) else repr(column.missing)
    lines = ['kind = "numeric"', remarked(_values(column), column.name), f"missing = {missing}"]
    if column.scale != Numeric.scale:
        lines.append(f"scale = {_quote(column.scale)}")
    return [*lines, f"step = {column.step!r}"] if column.step != Numeric.step else lines


def _categorical_lines(column: Categorical, remarked: Callable[[str, str], str]) -> list[str]:
    values = f"buckets = {column.buckets}" if column.buckets else _values(column)
    lines = ['kind = "categorical"', remarked(values, column.name), f"missing = {_quote(column.missing)}"]
    lines += [f"unknown = {_quote(column.unknown)}"] if column.unknown != Categorical.unknown else []
    return [*lines, "ordered = true"] if column.ordered else lines


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
