"""The values a schema may hold, checked one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tacit.data.texts import is_missing
from tacit.errors import InputError, no_such


def check_keys(where: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a key nobody reads."""
    known = tuple(known)
    for key in given:
        if key not in known:
            raise no_such(f"key in {where}", key, known)


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
