"""`tacit algorithms` and `tacit config`."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from pathlib import Path
from typing import Any

import rich_click as click
import tomli_w

from tacit.algorithms import ALGORITHMS, Method
from tacit.cli.group import NearestGroup
from tacit.cli.output import print_json, stdout
from tacit.errors import InputError
from tacit.results.files import write_text
from tacit.settings.plugins import allow, load_plugins
from tacit.settings.settings import FIELDS


@click.command()
@click.option("--plugins", multiple=True, metavar="FILE", help="a Python file that adds some of your own")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def algorithms(plugins: tuple[str, ...], as_json: bool) -> None:
    """The algorithms there are: what each is, its equation, what privacy it promises, and where it comes from.

    \b
    Examples:
      tacit algorithms
      tacit algorithms --plugins mine.py
    """
    allow(plugins)
    load_plugins(plugins)
    methods = {name: ALGORITHMS[name] for name in ALGORITHMS}
    if as_json:
        print_json({name: _words(method) for name, method in methods.items()})
        return
    wide = max(map(len, methods)) + 2
    for name, method in methods.items():
        lines = [line for line in _words(method).values() if line]
        stdout.print(f"[bold]{name:{wide}}[/]" + f"\n{' ' * wide}".join(lines), highlight=False, soft_wrap=True)


def _words(method: Method) -> dict[str, str]:
    """What a method is, its equation, its promise and where it comes from."""
    promise = f"privacy: {method.promise}" + (" (central reference)" if method.central else "")
    return {
        "summary": method.summary,
        "equation": method.equation,
        "guarantee": promise,
        "reference": method.reference,
    }


@click.group(cls=NearestGroup)
def config() -> None:
    """Config files."""


@config.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
def init(file: Path | None) -> None:
    """Write a commented config file with every setting (to stdout if no FILE is named).

    \b
    Examples:
      tacit config init study.toml
    """
    if file is None:
        click.echo(commented_config(), nl=False)
        return
    if file.exists():
        raise InputError(f"{file} exists: choose another name")
    write_text(file, commented_config())
    stdout.print(
        f"{file}: remove the # before what you change, then 'tacit run {file}'", soft_wrap=True, highlight=False
    )


def commented_config() -> str:
    """Every setting with its explanation and default, commented out: the data set's preset speaks until one is set."""
    parts = ["# Settings of a Tacit run. Remove the # before the ones you want to change.\n"]
    for group, entries in groupby(FIELDS.values(), key=lambda entry: entry.metadata["group"]):
        parts.append(f"\n# ---- {group} ----\n")
        parts += [f"\n# {entry.metadata['help']}\n# {_line(entry)}" for entry in entries]
    return "".join(parts)


def _line(entry: dataclasses.Field[Any]) -> str:
    return tomli_w.dumps({entry.name: list(entry.default) if isinstance(entry.default, tuple) else entry.default})
