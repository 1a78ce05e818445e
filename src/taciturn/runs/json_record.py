"""The base class of typed records: dataclasses that are stored as JSON objects.

JSON has no infinity and no NaN: files hold the string "inf" and null, records hold floats and None, and only this
module converts between them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from taciturn.core.storage import to_json
from taciturn.errors import CorruptFile
from taciturn.privacy.events import Event, event_of


class Record(Mapping[str, object]):
    """Base class of dataclasses that are stored as JSON objects.

    A record can be read by attribute or, like the JSON object, by key. A field whose default is None is left out of
    the JSON form, and of the mapping, where it is None. The fields of an event are keys of the record itself.

    >>> from taciturn.runs.records import RunLabel
    >>> label = RunLabel(run=0, algorithm="objp", epsilon=math.inf)
    >>> label.epsilon, label["epsilon"], "seed" in label
    (inf, inf, False)
    >>> label.to_json()
    {'run': 0, 'algorithm': 'objp', 'epsilon': 'inf'}
    >>> RunLabel.from_json({"run": 0, "algorithm": "objp", "epsilon": "inf"}, "ledger.jsonl") == label
    True
    """

    kind: ClassVar[str] = ""  # the key "kind" of a ledger line; empty: the record has no such key

    @classmethod
    def from_json(cls, value: Any, source: object) -> Self:
        """Build the record from a decoded JSON object.

        Parameters
        ----------
        value : object
            What `json.loads` returned. Keys that the record does not know are ignored.
        source : object
            Name of the file, for the error message.

        Raises
        ------
        CorruptFile
            If the value is not an object, lacks a key, or has a value of another type.
        """
        try:
            return cls._parse(value)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptFile(f"{source} is damaged: it holds no valid {cls.__name__} ({_reason(error)})") from error

    @classmethod
    def _parse(cls, value: Any) -> Self:
        if not isinstance(value, Mapping):
            raise TypeError(f"{value!r:.40} is not a JSON object")
        found = {}
        for spec in _specs(cls):
            if spec.inline:
                found[spec.name] = event_of(value)
            elif spec.key in value:
                try:
                    found[spec.name] = spec.convert(value[spec.key])
                except (KeyError, TypeError, ValueError) as error:
                    raise ValueError(f"{spec.key}: {_reason(error)}") from error
            elif spec.required:
                raise KeyError(spec.key)
        return cls(**found)

    def to_json(self) -> dict[str, object]:
        """Return the record as plain JSON values: dicts, lists, strings, numbers, None, and "inf" for infinity."""
        plain: dict[str, object] = json.loads(to_json(self))
        return plain

    def without(self, names: Iterable[str]) -> Self:
        """Return the record with None in these fields."""
        return type(self)(**(vars(self) | dict.fromkeys(names)))

    def _items(self) -> Iterator[tuple[str, object]]:
        if self.kind:
            yield "kind", self.kind
        for spec in _specs(type(self)):
            value = getattr(self, spec.name)
            if spec.inline:
                yield from dataclasses.asdict(value).items()
            elif not (spec.omit and value is None):
                yield spec.key, value

    def __getitem__(self, key: str) -> Any:  # as of its JSON; code of this package reads attributes
        for name, value in self._items():
            if name == key:
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items())

    def __len__(self) -> int:
        return sum(1 for _ in self._items())

    def items(self) -> ItemsView[str, object]:
        """Return the pairs of the JSON object; all are built at once, where Mapping looks every key up by itself."""
        return dict(self._items()).items()

    def __or__(self, other: Mapping[str, object]) -> dict[str, object]:
        return {**dict(self._items()), **other}


def _reason(error: Exception) -> str:
    return f"the key {error} is missing" if isinstance(error, KeyError) else str(error)


class _FieldSpec(NamedTuple):
    name: str
    key: str
    convert: Callable[[Any], Any]
    omit: bool
    inline: bool
    required: bool


@cache
def _specs(record: type[Record]) -> tuple[_FieldSpec, ...]:
    hints = get_type_hints(record)
    return tuple(
        _FieldSpec(
            name=one.name,
            key=one.metadata.get("key", one.name),
            convert=_converter(hints[one.name]),
            omit=one.default is None,
            inline=hints[one.name] == Event,
            required=one.default is dataclasses.MISSING,
        )
        for one in dataclasses.fields(record)  # type: ignore[arg-type]
    )


def _converter(hint: Any) -> Callable[[Any], Any]:
    """Return the function that checks and converts a decoded JSON value to the type of a field."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return partial(_first_fitting, [_converter(arg) for arg in args if arg is not NoneType], NoneType in args)
    if origin is tuple:
        return partial(_tuple, _converter(args[0]))
    if origin is Mapping:
        return partial(_mapping, _converter(args[1]))
    if hint is float:
        return _number
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint._parse
    return partial(_instance, hint) if hint in (int, str, bool) else lambda value: value


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is not a number")
    return value


def _instance(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is not of type {kind.__name__}")
    return value


def _tuple(convert: Callable[[Any], Any], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r:.40} is not a list")
    return tuple(map(convert, value))


def _mapping(convert: Callable[[Any], Any], value: Any) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.40} is not a JSON object")
    return {str(key): convert(item) for key, item in value.items()}


def _first_fitting(converters: list[Callable[[Any], Any]], optional: bool, value: Any) -> Any:
    """Convert to the first type of a union that fits the value."""
    if value is None and optional:
        return None
    for convert in converters[:-1]:
        try:
            return convert(value)
        except (KeyError, TypeError, ValueError):
            continue
    return converters[-1](value)
