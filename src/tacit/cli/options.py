"""Flags made from the table of settings, so that a flag and a config key can never differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click

from tacit.settings.settings import FIELDS

F = TypeVar("F", bound=Callable[..., Any])


def setting_flags(function: F) -> F:
    """A flag for every setting; one that is not given stays None, so that the file and the preset can speak."""
    for entry in reversed(FIELDS.values()):
        function = _flag(entry)(function)
    return function


def _flag(entry: dataclasses.Field[Any]) -> Callable[[F], F]:
    flag, help_text = entry.name.replace("_", "-"), entry.metadata["help"]
    panel = f"{entry.metadata['group']} settings"
    if isinstance(entry.default, bool):
        return click.option(f"--{flag}/--no-{flag}", entry.name, default=None, help=help_text, panel=panel)
    shown = entry.default[0] if isinstance(entry.default, tuple) else entry.default
    default = f" [default: {shown}]" if shown != "" else ""
    metavar = "NUMBER" if isinstance(shown, (int, float)) else "VALUE"
    return click.option(f"--{flag}", entry.name, metavar=metavar, help=help_text + default, panel=panel)
