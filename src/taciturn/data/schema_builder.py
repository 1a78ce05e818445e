"""Build a schema in Python: the columns of a data frame, with what their owner declares about them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from taciturn.core.storage import write_text
from taciturn.data.frames import NUMERIC, column_kinds, read_frame
from taciturn.data.schema import BARE, Schema, comment, toml_value
from taciturn.data.schema_draft import READ_OFF, draft_rule
from taciturn.data.schema_parser import parse_schema, positive_number
from taciturn.errors import InputError, kind_of, missing_header, shown, unknown_column

Declaration: TypeAlias = tuple[float, float] | Sequence[str | int | bool] | Mapping[str, object]
"""(low, high) for numbers; a list of categories; or the keys of the column's section in a schema file."""

UNDECLARED = "not declared"


@dataclass(frozen=True)
class SchemaBuilder:
    """An unfinished schema: the columns of a frame, and what has been declared about them so far.

    Nothing is read from the cells of the frame: bounds, categories and classes are what their owner declares, without
    looking at the records. A column that is neither declared nor dropped makes the schema incomplete, and a run with
    it is refused. Every method returns a new builder.

    Attributes
    ----------
    kinds : mapping
        Kind of values by column, "numeric" or "categorical", from the types of the frame's columns.
    declared : mapping
        The keys of a column's section in a schema file, by column.
    label, agent : str
        The column of the label, and the one that names each record's agent; empty: none yet.
    unit : str
        The column that names whose record it is, for `max_records`; empty: every record is protected separately.
    max_records : int
        The number of records of a unit that are used at one agent.
    class_weight : mapping
        How much the records of each class count; empty: equally.
    record_weight : str
        The column that says how much each record counts, for `max_weight`; empty: equally.
    max_weight : float
        The largest weight of a record; 0: not declared.
    drafted : frozenset of str
        The columns whose declaration was read from the records, by `draft`.

    Examples
    --------
    >>> import pandas as pd
    >>> patients = pd.DataFrame({"age": [63, 41], "sex": ["m", "f"], "ill": [1, 0], "name": ["Ann", "Bo"]})
    >>> schema = Schema.from_frame(patients).drop("name").declare(age=(0, 120), sex=["f", "m"], label="ill")
    >>> schema.undeclared
    ('ill',)
    >>> schema.declare(ill=[0, 1]).build().features
    ('age', 'sex=f', 'sex=m')
    """

    kinds: Mapping[str, str]
    declared: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    label: str = ""
    agent: str = ""
    unit: str = ""
    max_records: int = 1
    class_weight: Mapping[str, float] = field(default_factory=dict)
    record_weight: str = ""
    max_weight: float = 0.0
    interactions: tuple[tuple[str, str], ...] = ()
    drafted: frozenset[str] = frozenset()

    @classmethod
    def from_frame(cls, frame: Any) -> SchemaBuilder:
        """Begin a schema with the names and types of a frame's columns.

        Parameters
        ----------
        frame : pandas.DataFrame or polars.DataFrame
            The frame.

        Returns
        -------
        SchemaBuilder
            A schema that declares nothing yet.

        Raises
        ------
        InputError
            If it is not a frame, or two columns have one name.

        Examples
        --------
        >>> import pandas as pd
        >>> dict(SchemaBuilder.from_frame(pd.DataFrame({"age": [63], "sex": ["m"]})).kinds)
        {'age': 'numeric', 'sex': 'categorical'}
        """
        kinds = column_kinds(frame)
        return cls({name: "numeric" if kind == NUMERIC else "categorical" for name, kind in kinds.items()})

    @property
    def undeclared(self) -> tuple[str, ...]:
        """The columns about which something must still be declared."""
        free = {self.unit, self.agent, self.record_weight} - {""}
        return tuple(name for name in self.kinds if name not in self.declared and name not in free)

    def declare(
        self,
        columns: Mapping[str, Declaration] | None = None,
        /,
        *,
        label: str | None = None,
        agent: str | None = None,
        unit: str | None = None,
        max_records: int | None = None,
        class_weight: Mapping[Any, float] | None = None,
        record_weight: str | None = None,
        max_weight: float | None = None,
        interactions: Sequence[tuple[str, str]] | None = None,
        **named: Declaration,
    ) -> SchemaBuilder:
        """Declare what is public about columns.

        Parameters
        ----------
        columns : mapping, optional
            Declarations by column, for names that are not Python identifiers or are keywords of this method.
        label : str, optional
            The column to predict. Its classes or its bounds are declared like those of other columns.
        agent : str, optional
            The column that names each record's agent; the names may be declared as a list.
        unit : str, optional
            The column that names whose record it is, if a person has several.
        max_records : int, optional
            How many records of one unit at one agent are used.
        class_weight : mapping, optional
            How much the records of each class count, such as `{"no": 1, "yes": 3}`; a class that is not named has 1.
        record_weight : str, optional
            The column that says how much each record counts. It is not a feature.
        max_weight : float, optional
            The largest weight of a record; larger ones are clipped.
        interactions : list of (str, str), optional
            Pairs of columns that act together, such as longitude and latitude.
        **named
            Declarations by column: `age=(0, 120)` for bounds, `sex=["f", "m"]` for categories or classes, and
            `income={"bounds": (0, 1e6), "missing": "low"}` for any keys of the column's section in a schema file.

        Returns
        -------
        SchemaBuilder
            The schema with these declarations.

        Raises
        ------
        InputError
            If the frame has no such column, or a declaration has another form.

        Examples
        --------
        >>> import pandas as pd
        >>> patients = pd.DataFrame({"age": [63], "sex": ["m"], "ill": ["no"]})
        >>> schema = SchemaBuilder.from_frame(patients).declare(age=(0, 120), sex=["f", "m"])
        >>> schema.declare({"ill": ["no", "yes"]}, label="ill").build().target
        Classes(names=('no', 'yes'))
        """
        given = {self._column(name): value for name, value in {**(columns or {}), **named}.items()}
        found = dict(self.declared) | {name: _keys(name, value) for name, value in given.items()}
        roles = {"label": label, "agent": agent, "unit": unit, "record_weight": record_weight}
        chosen = {role: self._column(own) for role, own in roles.items() if own is not None}
        if max_records is not None and (isinstance(max_records, bool) or not isinstance(max_records, int | np.integer)):
            raise InputError(f"max_records is {shown(max_records)}: it must be a whole number of at least 1")
        pairs = self.interactions if interactions is None else self._pairs(interactions)
        weights = self.class_weight
        if class_weight is not None:
            if not isinstance(class_weight, Mapping):
                raise InputError(
                    f"class_weight is {kind_of(class_weight)}: it must be a dict with a number for each class"
                )
            weights = {str(_spelled(_value("class_weight", key))): class_weight[key] for key in class_weight}
        return replace(
            self,
            declared=found,
            label=chosen.get("label", self.label),
            agent=chosen.get("agent", self.agent),
            unit=chosen.get("unit", self.unit),
            max_records=self.max_records if max_records is None else int(max_records),
            class_weight={name: _weight(f"class_weight of '{name}'", value) for name, value in weights.items()},
            record_weight=chosen.get("record_weight", self.record_weight),
            max_weight=self.max_weight if max_weight is None else _weight("max_weight", max_weight),
            interactions=pairs,
            drafted=self.drafted - given.keys(),
        )

    def drop(self, *columns: str) -> SchemaBuilder:
        """Leave columns out: identifiers, and what is not known when the model is used.

        Parameters
        ----------
        *columns : str
            The columns.

        Returns
        -------
        SchemaBuilder
            The schema without them.

        Raises
        ------
        InputError
            If the frame has no such column.

        Examples
        --------
        >>> import pandas as pd
        >>> SchemaBuilder.from_frame(pd.DataFrame({"age": [63], "name": ["Ann"]})).drop("name").undeclared
        ('age',)
        """
        dropped = {self._column(name) for name in columns}
        kept = {name: kind for name, kind in self.kinds.items() if name not in dropped}
        declared = {name: keys for name, keys in self.declared.items() if name not in dropped}
        pairs = tuple(pair for pair in self.interactions if not set(pair) & dropped)
        return replace(self, kinds=kept, declared=declared, interactions=pairs, drafted=self.drafted - dropped)

    def draft(self, frame: Any, *columns: str) -> SchemaBuilder:
        """Declare columns by reading their bounds or categories from the records, which is not private.

        The schema is then a draft, as that of `taciturn data schema`: its text marks these values, and a run with it
        says in its report that they were read off the data.

        Parameters
        ----------
        frame : pandas.DataFrame or polars.DataFrame
            The frame to read.
        *columns : str
            The columns; by default all that are not declared.

        Returns
        -------
        SchemaBuilder
            The schema with these declarations.

        Raises
        ------
        InputError
            If a column cannot be described by bounds or by a few categories.

        Examples
        --------
        >>> import pandas as pd
        >>> patients = pd.DataFrame({"age": [63, 41], "sex": ["m", "f"]})
        >>> SchemaBuilder.from_frame(patients).draft(patients, "sex").declared["sex"]["categories"]
        ['f', 'm']
        """
        names = [self._column(name) for name in columns] or self.undeclared
        table, found = read_frame("draft", frame, dict.fromkeys(names)), dict(self.declared)
        for name in names:
            found[name] = _keys(name, draft_rule(table, name, label=name == self.label))
        return replace(self, declared=found, drafted=self.drafted | set(names))

    def build(self) -> Schema:
        """Return the schema.

        Returns
        -------
        Schema
            The schema, which contains nothing from the frame except what was declared.

        Raises
        ------
        InputError
            If a column is not declared, or a declaration breaks a rule.

        Examples
        --------
        >>> import pandas as pd
        >>> builder = SchemaBuilder.from_frame(pd.DataFrame({"age": [63], "ill": ["no"]}))
        >>> builder.declare(age=(0, 120), ill=["no", "yes"], label="ill").build().label
        'ill'
        """
        if not self.label:
            raise InputError("the schema has no label: name its column with declare(label=...)")
        if bool(self.record_weight) != bool(self.max_weight):
            raise InputError(
                "record_weight and max_weight belong together: declare the column and the largest weight it may have"
            )
        if self.undeclared:
            without = "; the label has no classes or bounds yet" if self.label in self.undeclared else ""
            raise InputError(
                f"the schema does not declare {len(self.undeclared)} of the {len(self.kinds)} columns of the frame"
                f"{missing_header(self.kinds)}; `undeclared` of the schema lists them{without}: "
                "state what is known without looking at the "
                'records, as in declare(age=(0, 120), sex=["f", "m"]), or leave columns out with drop(...)'
            )
        return parse_schema(self.to_toml())

    def to_toml(self) -> str:
        """Return the schema as TOML text; comments mark what is missing.

        Returns
        -------
        str
            The text of a schema file.

        Examples
        --------
        >>> import pandas as pd
        >>> builder = SchemaBuilder.from_frame(pd.DataFrame({"age": [63], "ill": ["no"]}))
        >>> "# not declared" in builder.to_toml()
        True
        """
        label = {
            "classes" if key == "categories" else key: v
            for key, v in self._keys_of(self.label).items()
            if key != "kind"
        }
        label |= {"weights": dict(self.class_weight)} if self.class_weight else {}
        sections = [("[label]", self.label, {"column": self.label} | label)]
        if self.agent:
            names = self._keys_of(self.agent).get("categories")
            sections.append(("[agent]", self.agent, {"column": self.agent} | ({"names": names} if names else {})))
        if self.unit:
            sections.append(("[unit]", self.unit, {"column": self.unit, "max_records": self.max_records}))
        if self.record_weight:
            sections.append(("[weight]", self.record_weight, {"column": self.record_weight, "max": self.max_weight}))
        for name, kind in self.kinds.items():
            if name not in (self.label, self.agent, self.unit, self.record_weight):
                key = name if BARE.fullmatch(name) else toml_value(name)
                sections.append((f"[columns.{key}]", name, {"kind": kind} | self._keys_of(name)))
        sections += [("[[interactions]]", "", {"columns": list(pair)}) for pair in self.interactions]
        return "\n".join(self._section(*section) for section in sections)

    def _keys_of(self, name: str) -> dict[str, object]:
        return dict(self.declared.get(name, {}))

    def _section(self, heading: str, name: str, keys: Mapping[str, object]) -> str:
        remarks = [READ_OFF] * (name in self.drafted) + [UNDECLARED] * (name in self.undeclared)
        lines = [heading, *(f"{key} = {toml_value(value)}" for key, value in keys.items()), *map(comment, remarks)]
        return "\n".join(lines) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the schema to a TOML file; one that is not complete can be completed there.

        Parameters
        ----------
        path : str or Path
            The file.

        Examples
        --------
        >>> import pandas as pd
        >>> SchemaBuilder.from_frame(pd.DataFrame({"age": [63], "ill": ["no"]})).save("draft.toml")
        """
        write_text(Path(path).expanduser(), self.to_toml())

    def _pairs(self, given: Any) -> tuple[tuple[str, str], ...]:
        pairs = list(given) if isinstance(given, list | tuple) else [given]
        for pair in pairs:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise InputError(
                    f"interactions has {kind_of(pair)}: it must be a list of pairs of columns, as in "
                    '[("longitude", "latitude")]'
                )
        return tuple((self._column(left), self._column(right)) for left, right in pairs)

    def _column(self, name: str) -> str:
        """Return the name of a column of the frame as the schema has it, without blanks at its ends."""
        if not isinstance(name, str):
            raise InputError(f"a column is given as {kind_of(name)}: it must be the name of a column, a string")
        if name.strip() not in self.kinds:
            raise unknown_column(name, self.kinds, "the frame")
        return name.strip()


def _keys(name: str, given: Any) -> dict[str, object]:
    """Return a declaration as the keys of a section; values of other types are named by their type alone."""
    match given:
        case Mapping():
            keys = {str(key): _value(name, value) for key, value in given.items()}
            for key in ("categories", "classes"):
                if isinstance(keys.get(key), list):
                    _check_categories(name, keys[key])
            if isinstance(keys.get("bounds"), list) and len(keys["bounds"]) != 2:
                raise InputError(
                    f"{name} is declared with {len(keys['bounds'])} bounds: it must be two numbers, (low, high)"
                )
            if "kind" not in keys and {"bounds", "categories"} & keys.keys():
                keys = {"kind": "numeric" if "bounds" in keys else "categorical"} | keys
            return keys
        case tuple() if len(given) == 2 and all(_is_number(value) for value in given):
            return {"kind": "numeric", "bounds": _value(name, given)}
        case list() if given:
            categories = _value(name, given)
            _check_categories(name, categories)
            return {"kind": "categorical", "categories": categories}
    raise InputError(
        f"{name} is declared as {kind_of(given)}: it must be a tuple (low, high) of numbers, a list of categories, or "
        "a dict with the keys of a column in a schema file"
    )


def _value(name: str, given: Any) -> Any:
    """Return a value that TOML can hold; a category given twice may be a column of records, so it is not shown."""
    if isinstance(given, list | tuple):
        values = [_spelled(_value(name, value)) for value in given]
        texts = [str(value) for value in values]
        if len(set(texts)) < len(texts):
            raise InputError(f"{name} is declared with one value twice: list every category once, or two bounds")
        return values
    if isinstance(given, np.generic):
        given = given.item()
    if isinstance(given, float) and not math.isfinite(given):
        raise InputError(f"{name} is declared with a number that is not finite: bounds must be finite")
    if not isinstance(given, str | int | float):
        raise InputError(f"{name} is declared with {kind_of(given)}: values must be numbers or strings")
    return given


def _check_categories(name: str, categories: Sequence[object]) -> None:
    """Raise InputError for a number with decimals, which may be a record's: it is not shown."""
    if any(isinstance(value, float) for value in categories):
        raise InputError(f"{name} is declared with a category that is a float: categories are strings or whole numbers")


def _spelled(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _weight(what: str, value: object) -> float:
    """Return a declared weight, which must be positive."""
    if (weight := positive_number(value)) is None:
        raise InputError(f"{what} is {shown(value)}: it must be a finite number above 0")
    return weight


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
