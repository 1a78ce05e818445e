"""A table's schema: public bounds, categories and classes of its columns, and their TOML text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.core.storage import write_text
from taciturn.data.table_cells import whole_number
from taciturn.types import Classes, ColumnBlock, Target

if TYPE_CHECKING:
    from taciturn.data.schema_builder import SchemaBuilder

NO_CATEGORY = "none"
INDICATOR = "indicator"  # a missing value has a feature
BARE = re.compile(r"[A-Za-z0-9_-]+")
MISSING_NAME, OTHER_NAME = "missing", "other"  # of the features for missing values and for values not declared


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
    def stretched(self) -> bool:
        """Whether a numeric column has another scale than the linear one."""
        return any(isinstance(rule, Numeric) and rule.scale != "linear" for rule in self.columns)

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
        >>> from taciturn.data import parse_schema
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
        >>> from taciturn.data import read_schema
        >>> schema = Schema("ill", Classes(("no", "yes")), (Numeric("age", 0.0, 120.0),))
        >>> schema.save("ill.toml")
        >>> read_schema("ill.toml") == schema
        True
        """
        write_text(Path(path).expanduser(), self.to_toml())


def feature_scaling(schema: Schema) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a and b with which every feature is a times the number in its column, plus b; [J] each.

    For a feature that is no number they are 1 and 0.
    """
    pairs: list[tuple[float, float]] = []
    for rule in schema.columns:
        own = [rule.scaling(schema.scale)] if isinstance(rule, Numeric) else []
        pairs += own + [(1.0, 0.0)] * (len(rule.features) - len(own))
    a, b = np.array(pairs).T
    return a, b


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

    lines = [f"scale = {toml_value(schema.scale)}", "", "[label]", f"column = {toml_value(schema.label)}"]
    lines.append(remarked(_values(schema.target), schema.label))
    if schema.class_weights and isinstance(schema.target, Classes):
        weights = dict(zip(schema.target.names, schema.class_weights, strict=True))
        lines.append(f"weights = {toml_value(weights)}")
    if schema.agent is not None:
        lines += ["", "[agent]", f"column = {toml_value(schema.agent)}"]
        lines += [remarked(f"names = {toml_value(schema.agents)}", schema.agent)] if schema.agents else []
    if schema.unit is not None:
        lines += ["", "[unit]", *_pairs(column=schema.unit.column, max_records=schema.unit.max_records)]
    if schema.weight is not None:
        lines += ["", "[weight]", *_pairs(column=schema.weight.column, max=schema.weight.largest)]
    for column in schema.columns:
        key = column.name if BARE.fullmatch(column.name) else toml_value(column.name)
        lines += ["", f"[columns.{key}]"]
        lines += (
            _categorical_lines(column, remarked)
            if isinstance(column, Categorical)
            else _numeric_lines(column, remarked)
        )
    for pair in schema.interactions:
        lines += ["", "[[interactions]]", f"columns = {toml_value(pair)}"]
    return "\n".join([*lines, *map(comment, left_out)]) + "\n"


def _numeric_lines(column: Numeric, remarked: Callable[[str, str], str]) -> list[str]:
    lines = ['kind = "numeric"', remarked(_values(column), column.name), f"missing = {toml_value(column.missing)}"]
    if column.scale != Numeric.scale:
        lines.append(f"scale = {toml_value(column.scale)}")
    return [*lines, f"step = {toml_value(column.step)}"] if column.step != Numeric.step else lines


def _categorical_lines(column: Categorical, remarked: Callable[[str, str], str]) -> list[str]:
    values = f"buckets = {column.buckets}" if column.buckets else _values(column)
    lines = ['kind = "categorical"', remarked(values, column.name), f"missing = {toml_value(column.missing)}"]
    lines += [f"unknown = {toml_value(column.unknown)}"] if column.unknown != Categorical.unknown else []
    return [*lines, "ordered = true"] if column.ordered else lines


def comment(text: str) -> str:
    """Return a TOML comment line; characters that TOML does not allow in one are escaped."""
    return "# " + toml_value(text)[1:-1].replace('\\"', '"')


def _pairs(**values: object) -> list[str]:
    return [f"{key} = {toml_value(value)}" for key, value in values.items()]


def toml_value(value: Any) -> str:
    """Return a string, number, boolean, list or dict of them in TOML: JSON's form, with DEL escaped too."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_value(name)} = {toml_value(each)}' for name, each in value.items())} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _values(rule: ColumnRule | Target) -> str:
    if isinstance(rule, Classes):
        return f"classes = {toml_value(rule.names)}"
    if isinstance(rule, Categorical):
        return f"categories = {toml_value(rule.categories)}"
    return f"bounds = {toml_value([rule.low, rule.high])}"
