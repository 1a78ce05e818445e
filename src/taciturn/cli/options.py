"""Flags made from the table of settings, and command groups that suggest the nearest name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping
from typing import Any, TypeVar

import rich_click as click
from click.shell_completion import CompletionItem

from taciturn.data import SOURCES
from taciturn.errors import unknown_name
from taciturn.settings.rules import choices_of, path
from taciturn.settings.settings import FIELDS


class NearestGroup(click.RichGroup):
    """Like click's group, with our sentence for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise unknown_name("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


GROUPS = tuple(dict.fromkeys(entry.metadata["group"] for entry in FIELDS.values()))
F = TypeVar("F", bound=Callable[..., Any])


def setting_flags(groups: Container[str], but: Container[str] = ()) -> Callable[[F], F]:
    """A flag for every setting of some groups, `but` for those that a command has its own flags for.

    One that is not given stays None, so that file and preset can speak.
    """

    def decorate(function: F) -> F:
        for entry in reversed(FIELDS.values()):
            if entry.metadata["group"] in groups and entry.name not in but:
                function = _flag(entry)(function)
        return function

    return decorate


def list_flag(name: str, panel: str, help_text: str) -> Callable[[F], F]:
    """A flag for several values of a setting, whatever a run takes of it."""
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        metavar="V1,V2,...",
        multiple=True,
        help=help_text,
        panel=panel,
        shell_complete=_completion(FIELDS[name], many=True),
    )


def given_settings(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given; a flag given several times means all of its values."""
    joined = {name: ",".join(value) if isinstance(value, tuple) else value for name, value in flags.items()}
    return {name: value for name, value in joined.items() if value is not None and flags[name] != ()}


def _flag(entry: dataclasses.Field[Any]) -> Callable[[F], F]:
    flag, help_text = entry.name.replace("_", "-"), entry.metadata["help"]
    panel = f"{entry.metadata['group']} settings"
    if isinstance(entry.default, bool):
        return click.option(f"--{flag}/--no-{flag}", entry.name, default=None, help=help_text, panel=panel)
    shown = ",".join(map(str, entry.default)) if isinstance(entry.default, tuple) else entry.default
    default = f" [default: {shown}]" if shown != "" else ""
    metavar = "NUMBER" if isinstance(shown, (int, float)) else "VALUE"
    many = isinstance(entry.default, tuple)
    shell = _completion(entry, many)
    return click.option(
        f"--{flag}",
        entry.name,
        metavar=metavar,
        multiple=many,
        help=help_text + default,
        panel=panel,
        shell_complete=shell,
    )


def _completion(entry: dataclasses.Field[Any], many: bool) -> Callable[[Any, Any, str], list[CompletionItem]]:
    """What a shell offers for a setting: its names, of a list the last, and files where it takes a path."""
    rule = entry.metadata["rule"]

    def complete(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
        before, comma, last = typed.rpartition(",") if many else ("", "", typed)
        names = [n for n in SOURCES if SOURCES[n].published] if entry.name == "data" else choices_of(rule)
        found = [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last)]
        return [CompletionItem(typed, type="file")] if rule is path and not found else found  # bash takes one kind

    return complete
