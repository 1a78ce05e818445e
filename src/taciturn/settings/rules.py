"""Rules a setting's value must keep, as parsers: they take what a file or a flag gives and return the value."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from taciturn.errors import InputError, unknown_name

Rule: TypeAlias = Callable[[str, Any], Any]
"""(the setting's name, what was given) -> the value."""


@dataclass(frozen=True)
class Choosing:
    """A rule that can name what it takes."""

    rule: Rule
    choices: Callable[[], Iterable[str]]

    def __call__(self, name: str, given: Any) -> Any:
        """The value."""
        return self.rule(name, given)


def choices_of(rule: Rule) -> list[str]:
    """The names that a rule takes; none where any value will do."""
    return list(rule.choices()) if isinstance(rule, Choosing) else []


def text(name: str, given: Any) -> str:
    """Any string."""
    if not isinstance(given, str):
        raise InputError(f"{name} is {given!r}: it must be a text")
    return given


def path(name: str, given: Any) -> str:
    """A file or folder, as a string or a path; ~ is the user's home."""
    return os.path.expanduser(text(name, os.fspath(given) if isinstance(given, os.PathLike) else given))  # noqa: PTH111


def boolean(name: str, given: Any) -> bool:
    """True or false."""
    if isinstance(given, str) and given.lower() in {"true", "false"}:
        return given.lower() == "true"
    if not isinstance(given, bool):
        raise InputError(f"{name} is {given!r}: it must be true or false")
    return given


def one_of(kind: str, choices: Callable[[], Iterable[str]]) -> Rule:
    """One of some names."""

    def rule(name: str, given: Any) -> str:
        names = list(choices())
        if given not in names:
            raise unknown_name(kind, given, names)
        return str(given)

    return Choosing(rule, choices)


def integer(low: int, high: float = math.inf) -> Rule:
    """A whole number in a range."""

    def rule(name: str, given: Any) -> int:
        whole = _whole(given)
        number = _number(name, given, "a whole number") if whole is None else whole
        if number % 1 != 0 or not low <= number <= high:
            limits = f"of at least {low}" if math.isinf(high) else f"from {low} to {high}"
            raise InputError(f"{name} is {given}: it must be a whole number {limits}")
        return int(number)

    return rule


def real(low: float = -math.inf, high: float = math.inf, *, open_low: bool = True, infinite: bool = False) -> Rule:
    """A number above `low` (or at it, unless open_low) and below `high`; infinite: inf is allowed."""

    def rule(name: str, given: Any) -> float:
        number = _number(name, given, "a number")
        if infinite and number == math.inf:
            return number
        inside = (low < number if open_low else low <= number) and number < high
        if not inside:
            parts = [f"above {low:g}" if open_low else f"at least {low:g}"] if low > -math.inf else ["finite"]
            if high < math.inf:
                parts.append(f"below {high:g}")
            elif number == math.inf and low > -math.inf:
                parts.append("finite")
            raise InputError(f"{name} is {given}: it must be {' and '.join(parts)}{', or inf' if infinite else ''}")
        return number

    return rule


def several(rule: Rule, empty: bool = False) -> Rule:
    """One value or more: a list, or a text with commas; where `empty` allows it, an empty list is no value."""

    def parse(name: str, given: Any) -> tuple[Any, ...]:
        items = given.split(",") if isinstance(given, str) else given if isinstance(given, (list, tuple)) else [given]
        values = tuple(rule(name, item.strip() if isinstance(item, str) else item) for item in items)
        if not values and not empty:
            raise InputError(f"{name} is empty: it needs at least one value")
        if len(set(values)) < len(values):
            raise InputError(f"{name} names {_first_repeated(values)} twice")
        return values

    return Choosing(parse, lambda: choices_of(rule))


def number_or(kind: str, names: tuple[str, ...]) -> Rule:
    """A positive number, or one of some names."""

    def rule(name: str, given: Any) -> float | str:
        if isinstance(given, str):
            if given in names:
                return given
            try:
                float(given)
            except ValueError:
                raise unknown_name(kind, given, (*names, "NUMBER")) from None
        return float(real(0.0)(name, given))

    return Choosing(rule, lambda: names)


def optional(rule: Rule) -> Rule:
    """A value, or "auto" to leave it to the method."""

    def parse(name: str, given: Any) -> Any:
        return given if given == "auto" else rule(name, given)

    return Choosing(parse, lambda: ["auto", *choices_of(rule)])


def counts(name: str, given: Any) -> int | dict[str, int]:
    """A number of records for every agent, or one for each by name: 400, or north=300,south=400."""
    count = integer(1)
    if isinstance(given, str) and "=" in given:
        pairs = [item.partition("=") for item in given.split(",")]
        given = {agent.strip(): number.strip() for agent, _, number in pairs}
        if len(given) < len(pairs):
            raise InputError(f"{name} names an agent twice: {', '.join(agent for agent, _, _ in pairs)}")
    if isinstance(given, Mapping):
        return {str(agent): count(f"{name} of {agent}", number) for agent, number in given.items()}
    return int(count(name, given))


def _whole(given: Any) -> int | None:
    """An exact whole number; a float would change a large one."""
    try:
        return int(given) if isinstance(given, str) or type(given) is int else None
    except ValueError:
        return None


def _number(name: str, given: Any, what: str) -> float:
    if isinstance(given, bool):
        raise InputError(f"{name} is {given}: it must be {what}")
    try:
        number = float(given)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {given!r}: it must be {what}") from None
    if math.isnan(number):
        raise InputError(f"{name} is nan: it must be {what}")
    return number


def _first_repeated(values: tuple[Any, ...]) -> Any:
    return next(value for i, value in enumerate(values) if value in values[:i])
