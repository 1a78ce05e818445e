"""How results reach the terminal: what was asked for on stdout, everything else on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tacit import api
from tacit.algorithms import ALGORITHMS
from tacit.privacy.guarantee import headline
from tacit.privacy.statement import PAPER_HEADLINE
from tacit.results.files import to_json
from tacit.views.tables import GROUP_HEADINGS, HEADINGS, group_rows, has_seeds, result_rows

TERMINAL_HEADINGS = ("", "run", "seed", "test error", "objective", "rounds", "seconds", "sent up")  # 80 columns

stdout = Console()
stderr = Console(stderr=True)


def print_json(value: Any) -> None:
    """One JSON object."""
    click.echo(to_json(value))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """A table; the first columns are text, the others numbers."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    stdout.print(table)


def print_result(run: api.Run) -> None:
    """What a finished run gave, and where its report is."""
    if has_seeds(run.runs):
        print_table(GROUP_HEADINGS, group_rows(run.runs))
    else:
        shown = [HEADINGS.index(name) for name in TERMINAL_HEADINGS]
        print_table(TERMINAL_HEADINGS, [[row[i] for i in shown] for row in result_rows(run.runs)], left=2)
    stdout.print()
    for name in dict.fromkeys(entry["algorithm"] for entry in run.runs):
        words = ALGORITHMS[name].summary if name in ALGORITHMS else "of a plugin"
        stdout.print(f"{name:8} {words}", soft_wrap=True, highlight=False)
    privacy = PAPER_HEADLINE if run.summary["mode"] == "paper" else headline(run.summary["privacy"])
    stdout.print(f"privacy  {privacy}", soft_wrap=True, highlight=False)
    planned, done = run.folder.read_config()["rounds"], min(entry["rounds"] for entry in run.runs)
    if done < planned:
        stdout.print(f"stopped  after {done} of {planned} rounds: the budget allows no more", highlight=False)
    stdout.print(f"report   {run.folder.report}", soft_wrap=True, highlight=False)
