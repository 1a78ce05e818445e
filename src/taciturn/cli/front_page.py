"""The first page of the command line, and the list of its commands.

`taciturn --help` is the first thing that people type, so this module imports nothing that takes time. The click group
in `taciturn.cli.command_line` takes its commands and its help from here.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from taciturn.version import VERSION


class Listed(NamedTuple):
    """A command on the first page.

    Parameters
    ----------
    place : str
        The module below `taciturn`, and the variable in it: "cli.plan_command:plan". It is imported when it is used.
    summary : str
        What the command does, in one line of the page.
    """

    place: str
    summary: str


COMMANDS: dict[str, dict[str, Listed]] = {
    "Train": {
        "plan": Listed("cli.plan_command:plan", "show what a budget buys, before any record is read"),
        "run": Listed("cli.run_commands:train", "train a model; without arguments, on bundled digits"),
        "resume": Listed("cli.run_commands:resume", "continue a run that was stopped or killed"),
        "frontier": Listed("cli.experiment_commands:frontier", "measure error against epsilon, by method and trust"),
        "sweep": Listed("cli.experiment_commands:sweep", "train at every point of a grid of settings"),
    },
    "Inspect runs": {
        "runs": Listed("cli.inspect_commands:runs", "list the runs in a folder, newest first"),
        "show": Listed("cli.inspect_commands:show", "show the results of runs"),
        "compare": Listed("cli.inspect_commands:compare", "rank methods and budgets; compare settings of runs"),
        "plot": Listed("cli.inspect_commands:plot", "draw error, objective, noise, traffic or effects"),
        "effects": Listed("cli.inspect_commands:effects", "explain a table's model, column by column"),
        "report": Listed("cli.inspect_commands:report", "write report.html again from the run folder"),
        "dashboard": Listed("cli.inspect_commands:dashboard", "watch runs in the browser"),
    },
    "Privacy": {
        "ledger": Listed("cli.signature_commands:ledger", "show what is spent and what is left"),
        "audit": Listed("cli.audit_command:audit", "attack the releases; report the epsilon that this proves"),
    },
    "Use a model": {
        "predict": Listed("cli.model_commands:predict", "predict every row of a table"),
        "evaluate": Listed("cli.model_commands:evaluate", "measure a model on labelled records"),
        "export": Listed("cli.model_commands:export", "write a model or its metrics for another program"),
    },
    "Train over a network": {
        "federation": Listed("cli.federation_commands:federation", "one coordinator, and an agent at every site"),
    },
    "Data and settings": {
        "data": Listed("cli.data_commands:data", "list, download and describe data; draft a schema"),
        "algorithms": Listed("cli.catalog_commands:algorithms", "list the algorithms, with equations and guarantees"),
        "config": Listed("cli.catalog_commands:config", "write config files"),
    },
    "Research": {
        "reproduce": Listed("research.commands:reproduce", "repeat the paper's experiments and compare the results"),
        "theory": Listed("research.commands:theory", "compare the paper's theorems with measurements"),
        "bench": Listed("research.commands:bench", "time Taciturn against comparable libraries"),
    },
    "Installation": {
        "doctor": Listed("cli.catalog_commands:doctor", "check the installation"),
        "completion": Listed("cli.catalog_commands:completion", "print a script for shell completion"),
    },
}
"""The commands below their headings."""

PURPOSE = "Train one model on the data of several parties that do not share their records."
SECTIONS = {
    "Examples": (
        ("taciturn run", "train on bundled data; total epsilon 1"),
        ("taciturn plan --total-epsilon 3", "show what a budget buys"),
        ("taciturn run --total-epsilon 3", "train with it"),
        ("taciturn -v run", "train, and log every step to stderr"),
        ("taciturn dashboard", "watch runs in a browser"),
        ("taciturn ledger runs/a", "show what a run spent"),
        ("taciturn federation demo", "train over a network on this machine"),
        ("taciturn doctor", "check the installation"),
    ),
    "Exit codes": (
        ("0", "success"),
        ("1", "a check failed: a claim is refuted, a ledger is not complete"),
        ("2", "an input is wrong or the command failed; stderr says why"),
        ("3", "privacy violation: nothing of the run may be published"),
        ("130", "stopped by Ctrl-C or a signal"),
    ),
}
VERBOSE = "log to stderr; -vv adds debugging output and tracebacks"
OPTIONS = (("-v, --verbose", VERBOSE), ("--version", "show the version"), ("-h, --help", "show this page"))
HELP_FLAGS = ("-h", "--help")


def front_page(color: bool = False) -> str:
    """Return the page that `taciturn --help` prints.

    Parameters
    ----------
    color : bool, optional
        Whether to print headings in bold and commands in colour, as on a terminal.

    Examples
    --------
    >>> print(front_page().splitlines()[0])
    Usage: taciturn [OPTIONS] COMMAND [ARGS]...
    """
    tables = {
        **{heading: [(name, one.summary) for name, one in listed.items()] for heading, listed in COMMANDS.items()},
        "Options": OPTIONS,
        **SECTIONS,
    }
    bold, name, plain = ("\033[1m", "\033[36m", "\033[0m") if color else ("", "", "")
    lines = [f"{bold}Usage:{plain} taciturn [OPTIONS] COMMAND [ARGS]...", "", PURPOSE]
    for heading, rows in tables.items():
        width = max(13, *(len(left) for left, _ in rows))
        lines += ["", f"{bold}{heading}:{plain}"]
        lines += [f"  {name}{left:<{width}}{plain}  {right}" for left, right in rows]
    return "\n".join([*lines, "", "'taciturn COMMAND --help' shows a command's options and examples."])


def help_text() -> str:
    """Return purpose, examples and exit codes as click's help texts are written."""
    parts = [PURPOSE]
    for heading, rows in SECTIONS.items():
        width = max(len(left) for left, _ in rows)
        parts.append("\n".join(["\b", f"{heading}:", *(f"  {left:<{width}}  {right}" for left, right in rows)]))
    return "\n\n".join(parts)


def answer(words: list[str]) -> str | None:
    """Return what is printed for arguments that ask for the first page or the version; None for all others.

    Examples
    --------
    >>> answer(["run"]) is None
    True
    """
    if words and words[0] in HELP_FLAGS:
        return front_page(color=colored())
    return f"taciturn, version {VERSION}" if words == ["--version"] else None


def colored() -> bool:
    """Return whether stdout is a terminal that shows colours, and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
