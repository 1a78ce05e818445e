"""`taciturn algorithms`, `config`, `doctor` and `completion`."""

from __future__ import annotations

import dataclasses
import os
from itertools import groupby
from pathlib import Path
from typing import Any

import rich_click as click
import tomli_w
from click.shell_completion import get_completion_class
from rich.markup import escape

from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.cli.options import NearestGroup
from taciturn.cli.output import print_json, stdout
from taciturn.core.storage import write_text
from taciturn.errors import InputError, unknown_name
from taciturn.settings.resolve import allow_plugins, load_plugins
from taciturn.settings.settings import FIELDS


@click.command()
@click.option("--plugins", multiple=True, metavar="FILE", help="a Python file that adds some of your own")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def algorithms(plugins: tuple[str, ...], as_json: bool) -> None:
    """The algorithms there are: what each is, its equation, what privacy it promises, and where it comes from.

    \b
    Examples:
      taciturn algorithms
      taciturn algorithms --plugins mine.py
    """
    allow_plugins({"plugins": plugins})
    load_plugins(plugins)
    methods = {name: ALGORITHMS[name] for name in ALGORITHMS}
    if as_json:
        print_json({name: _words(method) for name, method in methods.items()})
        return
    wide = max(map(len, methods)) + 2
    for name, method in methods.items():
        lines = [line for line in _words(method).values() if line]
        stdout.print(f"[bold]{name:{wide}}[/]" + f"\n{' ' * wide}".join(lines), highlight=False, soft_wrap=True)


def _words(method: AlgorithmSpec) -> dict[str, str]:
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
      taciturn config init study.toml
    """
    if file is None:
        click.echo(commented_config(), nl=False)
        return
    if file.exists():
        raise InputError(f"{file} exists: choose another name")
    write_text(file, commented_config())
    stdout.print(
        f"{file}: remove the # before what you change, then 'taciturn run {file}'", soft_wrap=True, highlight=False
    )


def commented_config() -> str:
    """Every setting with its explanation and default, commented out: the data set's preset speaks until one is set."""
    parts = ["# Settings of a Taciturn run. Remove the # before the ones you want to change.\n"]
    for group, entries in groupby(FIELDS.values(), key=lambda entry: entry.metadata["group"]):
        parts.append(f"\n# ---- {group} ----\n")
        parts += [f"\n# {entry.metadata['help']}\n# {_line(entry)}" for entry in entries]
    return "".join(parts)


def _line(entry: dataclasses.Field[Any]) -> str:
    return tomli_w.dumps({entry.name: list(entry.default) if isinstance(entry.default, tuple) else entry.default})


MARKS = {"good": "[green]✓[/]", "absent": "[dim]–[/]", "bad": "[red]✗[/]"}
SHELLS = {  # where each reads a user's own file when it starts
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/taciturn.fish",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def doctor(as_json: bool) -> int:
    """What is installed, which devices and extras there are, and where data lies.

    The exit code is 1 if something must be mended.

    \b
    Examples:
      taciturn doctor
      taciturn doctor --json
    """
    from taciturn import diagnostics as examination

    found = examination.examine()
    good = all(one.state != "bad" for one in found)
    if as_json:
        print_json(examination.as_json(found))
        return 0 if good else 1
    for part in examination.PARTS:
        stdout.print(f"[bold]{part}[/]")
        for one in found:
            if one.part == part:
                _line_doctor(one)
    stdout.print(
        "\nall is well: try 'taciturn run'" if good else "\nmend what has a ✗, then ask again", highlight=False
    )
    return 0 if good else 1


def _line_doctor(one: tuple[str, str, str, str, str]) -> None:
    _, name, state, words, advice = one
    text = f"  {MARKS[state]} {name:12} {escape(words)}" + (f"; {escape(advice)}" if advice else "")
    stdout.print(text, soft_wrap=True, highlight=False, markup=True)


@click.command()
@click.argument("shell", required=False)
def completion(shell: str | None) -> None:
    """Print the lines that teach SHELL (bash, zsh or fish) to complete taciturn's commands, options and choices.

    \b
    Examples:
      taciturn completion bash >> ~/.bashrc
      taciturn completion zsh >> ~/.zshrc
      taciturn completion fish > ~/.config/fish/completions/taciturn.fish
    """
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in SHELLS:
        raise (
            unknown_name("shell", chosen, SHELLS)
            if chosen
            else InputError("which shell? taciturn completion bash, zsh or fish")
        )
    kind = get_completion_class(chosen)
    from taciturn.cli import cli

    if kind is None:
        raise unknown_name("shell", chosen, SHELLS)
    click.echo(kind(cli, {}, "taciturn", "_TACITURN_COMPLETE").source())
