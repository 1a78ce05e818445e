"""Rules for settings' values: parsers that turn the value from a file or a flag into a checked value."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from taciturn.errors import InputError, shown, unknown_name

MAX_TEXT = 4096  # characters of a value

Rule: TypeAlias = Callable[[str, Any], Any]
"""(the setting's name, the given value) -> the parsed value; raises InputError."""


@dataclass(frozen=True)
class ChoiceRule:
    """A rule that can list the names it accepts, for shell completion and help."""

    rule: Rule
    choices: Callable[[], Iterable[str]]

    def __call__(self, name: str, given: Any) -> Any:
        return self.rule(name, given)


def flag_name(setting: str) -> str:
    """Return a setting's name as on the command line.

    >>> flag_name("partition_key")
    'partition-key'
    """
    return setting.replace("_", "-")


def choices_of(rule: Rule) -> list[str]:
    """Return the names that a rule accepts; empty if it accepts other values.

    Examples
    --------
    >>> choices_of(optional(one_of("colour", lambda: ("red", "blue"))))
    ['auto', 'red', 'blue']
    """
    return list(rule.choices()) if isinstance(rule, ChoiceRule) else []


def check_plain(name: str, given: Any) -> None:
    """Refuse a value that is not a number, a string, a path, or a list or mapping of these, before a rule sees it.

    Raises
    ------
    InputError
        With the type of the value, which is not shown.
    """
    items = given if isinstance(given, list | tuple) else given.values() if isinstance(given, Mapping) else [given]
    for item in items:
        if not (item is None or isinstance(item, str | bool | int | float | np.generic | os.PathLike)):
            inside = "" if item is given else f" that holds {shown(item)}"
            raise InputError(f"{name} is {shown(given)}{inside}: it must be a number, a string, or a list of them")


def text(name: str, given: Any) -> str:
    """Accept a string of one line."""
    if not isinstance(given, str) or len(given) > MAX_TEXT or "\n" in given:
        raise InputError(f"{name} is {shown(given)}: it must be a string of one line")
    return given


def path(name: str, given: Any) -> str:
    """Accept a path as a string or a `Path`; ~ is expanded."""
    return os.path.expanduser(text(name, os.fspath(given) if isinstance(given, os.PathLike) else given))  # noqa: PTH111


def boolean(name: str, given: Any) -> bool:
    """Accept true or false, as a boolean or as text."""
    if isinstance(given, str) and given.lower() in {"true", "false"}:
        return given.lower() == "true"
    if not isinstance(given, bool):
        raise InputError(f"{name} is {shown(given)}: it must be true or false")
    return given


def one_of(kind: str, choices: Callable[[], Iterable[str]]) -> Rule:
    """Return a rule that accepts one of several names; `choices` is called at every use, so plugins can add some."""

    def rule(name: str, given: Any) -> str:
        names = list(choices())
        if not isinstance(given, str) or shown(given) != repr(given):
            raise InputError(f"{name} is {shown(given)}: it must be one of {', '.join(sorted(names))}")
        if given not in names:
            raise unknown_name(kind, given, names)
        return given

    return ChoiceRule(rule, choices)


def integer(low: int, high: float = math.inf) -> Rule:
    """Return a rule that accepts an integer from `low` to `high`.

    Examples
    --------
    >>> integer(1)("rounds", "20")
    20
    >>> integer(1)("rounds", 0)
    Traceback (most recent call last):
        ...
    taciturn.errors.InputError: rounds is 0: it must be a whole number of at least 1
    """

    def rule(name: str, given: Any) -> int:
        whole = _whole(given)
        number = _number(name, given, "a whole number") if whole is None else whole
        if number % 1 != 0 or not low <= number <= high:
            limits = f"of at least {low}" if math.isinf(high) else f"from {low} to {high}"
            raise InputError(f"{name} is {_number_shown(given)}: it must be a whole number {limits}")
        return int(number)

    return rule


def real(low: float = -math.inf, high: float = math.inf, *, open_low: bool = True, infinite: bool = False) -> Rule:
    """Return a rule that accepts a number in a range.

    Parameters
    ----------
    low, high
        The range; `high` is excluded.
    open_low
        Whether `low` is excluded too.
    infinite
        Whether inf is accepted.
    """

    def rule(name: str, given: Any) -> float:
        number = _number(name, given, "a number")
        if infinite and number == math.inf:
            return number
        if not ((low < number if open_low else low <= number) and number < high):
            parts = [f"above {low:g}" if open_low else f"at least {low:g}"] if low > -math.inf else ["finite"]
            if high < math.inf:
                parts.append(f"below {high:g}")
            elif number == math.inf and low > -math.inf:
                parts.append("finite")
            rule = f"{' and '.join(parts)}{', or inf' if infinite else ''}"
            raise InputError(f"{name} is {_number_shown(given)}: it must be {rule}")
        return number

    return rule


def list_of(rule: Rule, empty: bool = False) -> Rule:
    """Return a rule that accepts a list of different values, a comma-separated string, or a single value.

    Parameters
    ----------
    rule
        The rule of every item.
    empty
        Whether an empty list is accepted.

    Examples
    --------
    >>> list_of(integer(0))("seeds", "1, 2")
    (1, 2)
    """

    def parse(name: str, given: Any) -> tuple[Any, ...]:
        items = given.split(",") if isinstance(given, str) else given if isinstance(given, (list, tuple)) else [given]
        values = tuple(rule(name, item.strip() if isinstance(item, str) else item) for item in items)
        if not values and not empty:
            raise InputError(f"{name} is empty: it needs at least one value")
        if len(set(values)) < len(values):
            repeated = next(value for i, value in enumerate(values) if value in values[:i])
            raise InputError(f"{name} names {_number_shown(repeated)} twice")
        return values

    return ChoiceRule(parse, lambda: choices_of(rule))


def number_or(kind: str, names: tuple[str, ...]) -> Rule:
    """Return a rule that accepts a positive number or one of several names."""

    def rule(name: str, given: Any) -> float | str:
        if isinstance(given, str):
            if given in names:
                return given
            if shown(given) != repr(given):
                raise InputError(f"{name} is {shown(given)}: it must be a number or one of {', '.join(names)}")
            try:
                float(given)
            except ValueError as error:
                raise unknown_name(kind, given, (*names, "NUMBER")) from error
        return float(real(0.0)(name, given))

    return ChoiceRule(rule, lambda: names)


def optional(rule: Rule) -> Rule:
    """Return a rule that accepts "auto" or what another rule accepts."""

    def parse(name: str, given: Any) -> Any:
        return given if isinstance(given, str) and given == "auto" else rule(name, given)

    return ChoiceRule(parse, lambda: ["auto", *choices_of(rule)])


def counts(name: str, given: Any) -> int | dict[str, int]:
    """Accept one number of records for all agents, or one per agent.

    Examples
    --------
    >>> counts("records-max", "400"), counts("records-max", "north=300,south=400")
    (400, {'north': 300, 'south': 400})
    """
    count = integer(1)
    if isinstance(given, str) and "=" in given:
        pairs = [item.partition("=") for item in given.split(",")]
        for item, sign, _ in pairs:
            if not sign:
                raise InputError(f"{name} has '{item}': each must be NAME=NUMBER, as in north=300,south=400")
        given = {agent.strip(): number.strip() for agent, _, number in pairs}
        if len(given) < len(pairs):
            raise InputError(f"{name} names an agent twice: {', '.join(agent for agent, _, _ in pairs)}")
    if isinstance(given, Mapping):
        return {str(agent): count(f"{name} of {agent}", number) for agent, number in given.items()}
    return int(count(name, given))


def _whole(given: Any) -> int | None:
    """Return an exact integer, or None; going through a float would change a large one."""
    try:
        return int(given) if isinstance(given, str) or type(given) is int else None
    except ValueError:
        return None


def _number(name: str, given: Any, expected: str) -> float:
    try:
        number = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError):  # their messages may show the value
        number = math.nan
    if math.isnan(number):
        raise InputError(f"{name} is {shown(given)}: it must be {expected}")
    return number


def _number_shown(given: Any) -> str:
    return given if isinstance(given, str) and shown(given) == repr(given) else shown(given)
