"""Reading of TOML files in sections: each key has a rule, and every error names the file and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from taciturn.errors import InputError, TaciturnError, unknown_name
from taciturn.settings.rules import Rule

REQUIRED = object()


class Key(NamedTuple):
    """One key of a section: the rule that checks its value, and the default if it may be omitted."""

    rule: Rule
    default: Any = REQUIRED


def read_config_file(path: Path, advice: str) -> bytes:
    """Return the content of a configuration file.

    Parameters
    ----------
    path : Path
        The file.
    advice : str
        How the user can create the file; part of the error message if it is missing.

    Raises
    ------
    InputError
        If the file does not exist or is a folder.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}: {advice}") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder; give the file in it") from error


def parse_toml(path: Path, content: bytes) -> dict[str, Any]:
    """Return the document in `content`; `path` is only used in the error message.

    Raises
    ------
    InputError
        If the content is not valid TOML in UTF-8.
    """
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from error


def read_section(
    path: Path, document: Mapping[str, object], name: str, layout: Mapping[str, Key], optional: bool = False
) -> dict[str, Any]:
    """Return the checked values of one section.

    Parameters
    ----------
    path : Path
        The file, for error messages.
    document : Mapping
        The parsed file.
    name : str
        The section; "" for the top level, of which only plain keys count.
    layout : Mapping[str, Key]
        The keys that the section may have.
    optional : bool, default False
        Whether the section may be missing; all its keys then have their defaults.

    Raises
    ------
    InputError
        If the section or a required key is missing, a key is unknown, or a value breaks its rule.
    """
    section = {k: v for k, v in document.items() if not isinstance(v, dict)} if not name else document.get(name)
    if section is None and optional:
        section = {}
    if not isinstance(section, dict):
        raise InputError(f"{path} has no section [{name}]")
    for key in section:
        if key not in layout:
            raise InputError(f"{path}: {unknown_name('key', key, layout, f'[{name}]' if name else '')}")
    return {key: _read_value(path, name, section, key, entry) for key, entry in layout.items()}


def check_sections(path: Path, document: Mapping[str, object], names: tuple[str, ...]) -> None:
    """Raise an `InputError` if the document has a section that is not in `names`."""
    for key, value in document.items():
        if isinstance(value, dict) and key not in names:
            raise InputError(f"{path}: {unknown_name('section', key, names)}")


def name_list(choices: Callable[[], Any]) -> Rule:
    """Return the rule for a non-empty list of names out of `choices()`."""

    def rule(name: str, given: Any) -> tuple[str, ...]:
        if not isinstance(given, list) or not given:
            raise InputError(f"{name} is {given!r}; it must be a list of at least one name")
        for item in given:
            if not isinstance(item, str) or item not in choices():
                raise unknown_name(name, item, choices())
        return tuple(given)

    return rule


def string_list(name: str, given: Any) -> tuple[str, ...]:
    """Return a list of strings as a tuple; the rule for `name`."""
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise InputError(f"{name} is {given!r:.60}; it must be a list of strings")
    return tuple(given)


def _read_value(path: Path, section: str, values: Mapping[str, object], key: str, entry: Key) -> Any:
    name = f"[{section}] {key}" if section else key
    if key not in values:
        if entry.default is REQUIRED:
            raise InputError(f"{path} needs {name}")
        return entry.default
    try:
        return entry.rule(name, values[key])
    except TaciturnError as error:
        raise InputError(f"{path}: {error}") from error
