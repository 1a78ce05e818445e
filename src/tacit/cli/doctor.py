"""`tacit doctor` and `tacit completion`: the first minutes."""

from __future__ import annotations

import os
from pathlib import Path

import rich_click as click
from click.shell_completion import get_completion_class
from rich.markup import escape

from tacit.cli.output import print_json, stdout
from tacit.errors import InputError, no_such

MARKS = {"good": "[green]✓[/]", "absent": "[dim]–[/]", "bad": "[red]✗[/]"}
SHELLS = {  # where each reads a user's own file when it starts
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/tacit.fish",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def doctor(as_json: bool) -> int:
    """What is installed, which devices and extras there are, and where data lies.

    The exit code is 1 if something must be mended.

    \b
    Examples:
      tacit doctor
      tacit doctor --json
    """
    from tacit import doctor as examination  # noqa: PLC0415  it asks every package for its version

    found = examination.examine()
    good = all(one.state != "bad" for one in found)
    if as_json:
        print_json(examination.as_json(found))
        return 0 if good else 1
    for part in examination.PARTS:
        stdout.print(f"[bold]{part}[/]")
        for one in found:
            if one.part == part:
                _line(one)
    stdout.print("\nall is well: try 'tacit run'" if good else "\nmend what has a ✗, then ask again", highlight=False)
    return 0 if good else 1


def _line(one: tuple[str, str, str, str, str]) -> None:
    _, name, state, words, advice = one
    text = f"  {MARKS[state]} {name:12} {escape(words)}" + (f"; {escape(advice)}" if advice else "")
    stdout.print(text, soft_wrap=True, highlight=False, markup=True)


@click.command()
@click.argument("shell", required=False)
def completion(shell: str | None) -> None:
    """Print the lines that teach SHELL (bash, zsh or fish) to complete tacit's commands, options and choices.

    \b
    Examples:
      tacit completion bash >> ~/.bashrc
      tacit completion zsh >> ~/.zshrc
      tacit completion fish > ~/.config/fish/completions/tacit.fish
    """
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in SHELLS:
        raise (
            no_such("shell", chosen, SHELLS)
            if chosen
            else InputError("which shell? tacit completion bash, zsh or fish")
        )
    kind = get_completion_class(chosen)
    from tacit.cli import cli  # noqa: PLC0415  the whole command line, which has this command in it

    if kind is None:
        raise no_such("shell", chosen, SHELLS)
    click.echo(kind(cli, {}, "tacit", "_TACIT_COMPLETE").source())
