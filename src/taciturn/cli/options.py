"""Options generated from the table of settings, and command groups that suggest the nearest command."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

import rich_click as click
from click.shell_completion import CompletionItem

from taciturn.data import SOURCES
from taciturn.errors import InputError, unknown_name
from taciturn.settings.rules import choices_of, flag_name, path
from taciturn.settings.settings import FIELDS

MEANT = {"help": "--help", "train": "run", "fit": "run", "list": "runs", "ls": "runs"}  # what people type for a command


class SuggestingGroup(click.RichGroup):
    """A click group whose error for an unknown command suggests the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            meant, commands = MEANT.get(args[0], ""), self.list_commands(ctx)
            if meant.startswith("-") or meant in commands:
                raise InputError(f"no command '{args[0]}': use '{ctx.command_path} {meant}'")
            raise unknown_name("command", args[0], commands)
        return super().resolve_command(ctx, args)


class CommandsByName(MutableMapping[str, click.Command]):
    """Commands of a group, each imported only when it is used.

    Parameters
    ----------
    places : mapping of str to str
        Where each command is, by its name: "module:variable".
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places, self._found = dict(places), dict[str, click.Command]()

    def __getitem__(self, name: str) -> click.Command:
        """Return a command; KeyError if there is none of the name."""
        if name not in self._found:
            module, _, variable = self._places[name].partition(":")
            self._found[name] = getattr(import_module(module), variable)
        return self._found[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        """Add or replace a command."""
        self._places[name], self._found[name] = "", command

    def __delitem__(self, name: str) -> None:
        """Remove a command."""
        del self._places[name]
        self._found.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return the number of commands."""
        return len(self._places)


GROUPS = tuple(dict.fromkeys(entry.metadata["group"] for entry in FIELDS.values()))
F = TypeVar("F", bound=Callable[..., Any])


def setting_flags(groups: Container[str], exclude: Container[str] = ()) -> Callable[[F], F]:
    """Return a decorator that adds an option for every setting of some groups.

    An option that is not given stays None, so that a config file or preset can set it.

    Parameters
    ----------
    groups : container of str
        Groups of settings; see `GROUPS`.
    exclude : container of str
        Settings for which the command has its own options.
    """

    def decorate(function: F) -> F:
        for entry in reversed(FIELDS.values()):
            if entry.metadata["group"] in groups and entry.name not in exclude:
                function = _flag(entry)(function)
        return function

    return decorate


def list_flag(name: str, panel: str, help_text: str) -> Callable[[F], F]:
    """Return an option for several values of a setting that has one value in a run."""
    complete = _completion(FIELDS[name], many=True)
    flag, metavar = f"--{name.replace('_', '-')}", "V1,V2,..."
    return click.option(
        flag, name, metavar=metavar, multiple=True, help=help_text, panel=panel, shell_complete=complete
    )


def given_settings(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were given; the values of a repeated option are joined with commas.

    >>> given_settings({"rounds": "3", "epsilon": ("1", "2,3"), "clip": None, "algorithm": ()})
    {'rounds': '3', 'epsilon': '1,2,3'}
    """
    joined = {name: ",".join(value) if isinstance(value, tuple) else value for name, value in flags.items()}
    return {name: value for name, value in joined.items() if value is not None and flags[name] != ()}


def _flag(entry: dataclasses.Field[Any]) -> Callable[[F], F]:
    flag, help_text = flag_name(entry.name), entry.metadata["help"]
    panel = f"{entry.metadata['group']} settings"
    if isinstance(entry.default, bool):
        return click.option(f"--{flag}/--no-{flag}", entry.name, default=None, help=help_text, panel=panel)
    many = isinstance(entry.default, tuple)
    default = ",".join(map(str, entry.default)) if isinstance(entry.default, tuple) else entry.default
    return click.option(
        f"--{flag}",
        entry.name,
        metavar="NUMBER" if isinstance(default, (int, float)) else "VALUE",
        multiple=many,
        help=help_text + (f" [default: {default}]" if default != "" else ""),
        panel=panel,
        shell_complete=_completion(entry, many),
    )


def _completion(entry: dataclasses.Field[Any], many: bool) -> Callable[[Any, Any, str], list[CompletionItem]]:
    """Return the shell completion of a setting: its choices, or files where it takes a path."""
    rule = entry.metadata["rule"]

    def complete(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
        before, comma, last = typed.rpartition(",") if many else ("", "", typed)
        names = [n for n in SOURCES if SOURCES[n].published] if entry.name == "data" else choices_of(rule)
        found = [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last)]
        return [CompletionItem(typed, type="file")] if rule is path and not found else found  # bash takes one kind

    return complete
