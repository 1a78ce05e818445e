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
from taciturn.cli.options import SuggestingGroup
from taciturn.cli.output import JSON, PATH, check_new, print_json, say
from taciturn.core.storage import write_text
from taciturn.diagnostics import PARTS, DiagnosticFinding, check_installation, is_healthy
from taciturn.errors import InputError, unknown_name
from taciturn.settings.resolve import allow_plugins, load_plugins
from taciturn.settings.settings import FIELDS

MARKS = {"good": "[green]✓[/]", "absent": "[dim]–[/]", "bad": "[red]✗[/]"}
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.option("--plugins", multiple=True, metavar="FILE", help="a Python file that registers more algorithms")
@JSON
def algorithms(plugins: tuple[str, ...], as_json: bool) -> None:
    """List the algorithms: what each does, its equation, its privacy guarantee and its reference.

    \b
    Examples:
      taciturn algorithms
      taciturn algorithms --plugins mine.py
    """
    allow_plugins({"plugins": plugins})
    load_plugins(plugins)
    specs = {name: ALGORITHMS[name] for name in ALGORITHMS}
    if as_json:
        print_json({name: _describe(spec) for name, spec in specs.items()})
        return
    width = max(map(len, specs)) + 2
    for name, spec in specs.items():
        lines = f"\n{' ' * width}".join(line for line in _describe(spec).values() if line)
        say(f"[bold]{name:{width}}[/]{lines}", markup=True)


def _describe(spec: AlgorithmSpec) -> dict[str, str]:
    guarantee = f"privacy: {spec.promise}" + (" (central reference)" if spec.central else "")
    return {"summary": spec.summary, "equation": spec.equation, "guarantee": guarantee, "reference": spec.reference}


@click.group(cls=SuggestingGroup)
def config() -> None:
    """Write config files."""


@config.command()
@click.argument("file", required=False, type=PATH)
def init(file: Path | None) -> None:
    """Write a commented config file with every setting, to stdout if no FILE is given.

    \b
    Examples:
      taciturn config init study.toml
    """
    if file is None:
        click.echo(commented_config(), nl=False)
        return
    check_new(file)
    write_text(file, commented_config())
    say(f"{file}: uncomment the settings that you change, then run 'taciturn run {file}'")


def commented_config() -> str:
    """Return a config file with every setting, its explanation and its default, all commented out.

    A setting takes effect when its line is uncommented; until then the data set's preset applies.
    """
    parts = ["# Settings of a Taciturn run. Uncomment the ones you want to change.\n"]
    for group, entries in groupby(FIELDS.values(), key=lambda entry: entry.metadata["group"]):
        parts.append(f"\n# ---- {group} ----\n")
        parts += [f"\n# {entry.metadata['help']}\n# {_default_line(entry)}" for entry in entries]
    return "".join(parts)


def _default_line(entry: dataclasses.Field[Any]) -> str:
    return tomli_w.dumps({entry.name: list(entry.default) if isinstance(entry.default, tuple) else entry.default})


@click.command()
@JSON
def doctor(as_json: bool) -> int:
    """Check the installation: version, devices, optional packages, data sets and writable folders.

    The exit code is 1 if something must be fixed.

    \b
    Examples:
      taciturn doctor
      taciturn doctor --json
    """
    found = check_installation()
    healthy = is_healthy(found)
    if as_json:
        print_json({"good": healthy, "findings": [finding._asdict() for finding in found]})
        return 0 if healthy else 1
    for part in PARTS:
        say(f"[bold]{part}[/]", markup=True)
        for finding in found:
            if finding.part == part:
                print_finding(finding)
    say("\neverything works: try 'taciturn run'" if healthy else "\nfix the lines with a ✗, then run this again")
    return 0 if healthy else 1


def print_finding(finding: DiagnosticFinding) -> None:
    """Print one line of the doctor's report."""
    advice = f"; {escape(finding.advice)}" if finding.advice else ""
    say(f"  {MARKS[finding.state]} {finding.name:12} {escape(finding.words)}{advice}", markup=True)


@click.command()
@click.argument("shell", required=False)
@click.pass_context
def completion(context: click.Context, shell: str | None) -> None:
    """Print a script that enables shell completion of commands, options and choices in SHELL (bash, zsh or fish).

    \b
    Examples:
      taciturn completion bash >> ~/.bashrc
      taciturn completion zsh >> ~/.zshrc
      taciturn completion fish > ~/.config/fish/completions/taciturn.fish
    """
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if not chosen:
        raise InputError(f"no shell is given and $SHELL is not set; choose one of {', '.join(SHELLS)}")
    kind = get_completion_class(chosen) if chosen in SHELLS else None
    if kind is None:
        raise unknown_name("shell", chosen, SHELLS)
    click.echo(kind(context.find_root().command, {}, "taciturn", "_TACITURN_COMPLETE").source())
