"""TOML files in sections, read by a layout: a missing key, a misspelt one or a wrong value is one sentence."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from taciturn.errors import InputError, TaciturnError, unknown_name
from taciturn.settings.rules import Rule

REQUIRED = object()


class Key(NamedTuple):
    """One key of a section: its rule, and its value where it is left out."""

    rule: Rule
    default: Any = REQUIRED


def read_toml(path: Path, advice: str) -> dict[str, Any]:
    """A TOML file; `advice` says how one gets it."""
    return parse_toml(path, read_file(path, advice))


def read_file(path: Path, advice: str) -> bytes:
    """The content of a file; `advice` says how one gets it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}: {advice}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder: give the file in it") from None


def parse_toml(path: Path, content: bytes) -> dict[str, Any]:
    """What a TOML file says."""
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None


def read_section(
    where: Path, document: Mapping[str, Any], name: str, layout: Mapping[str, Key], optional: bool = False
) -> dict[str, Any]:
    """The values of a section, checked; "" is the top of the file, of which only plain keys count."""
    section = {k: v for k, v in document.items() if not isinstance(v, dict)} if not name else document.get(name)
    if section is None and optional:
        section = {}
    if not isinstance(section, dict):
        raise InputError(f"{where} has no section [{name}]")
    for key in section:
        if key not in layout:
            raise InputError(f"{where}: {unknown_name(f'key in [{name}]' if name else 'key', key, layout)}")
    return {key: _value(where, name, section, key, entry) for key, entry in layout.items()}


def check_sections(where: Path, document: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Refuse a section nobody reads."""
    for key, value in document.items():
        if isinstance(value, dict) and key not in names:
            raise InputError(f"{where}: {unknown_name('section', key, names)}")


def names(choices: Callable[[], Any]) -> Rule:
    """A list of names among some choices."""

    def rule(name: str, given: Any) -> tuple[str, ...]:
        if not isinstance(given, list) or not given:
            raise InputError(f"{name} is {given!r}: it must be a list of at least one name")
        for one in given:
            if not isinstance(one, str) or one not in choices():
                raise unknown_name(name, one, choices())
        return tuple(given)

    return rule


def texts(name: str, given: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise InputError(f"{name} is {given!r:.60}: it must be a list of texts")
    return tuple(given)


def _value(where: Path, section: str, found: Mapping[str, Any], key: str, entry: Key) -> Any:
    full = f"[{section}] {key}" if section else key
    if key not in found:
        if entry.default is REQUIRED:
            raise InputError(f"{where} needs {full}")
        return entry.default
    try:
        return entry.rule(full, found[key])
    except TaciturnError as error:
        raise InputError(f"{where}: {error}") from None
