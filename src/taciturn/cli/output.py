"""How results reach the terminal: what was asked for on stdout, everything else on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from taciturn import api
from taciturn.algorithms import ALGORITHMS
from taciturn.core.storage import to_json
from taciturn.data.feature_maps import NONE
from taciturn.reporting.statements import PAPER_HEADLINE, headline
from taciturn.reporting.tables import GROUP_HEADINGS, group_rows, has_seeds, result_table, rounds_done

TERMINAL_HEADINGS = ("", "run", "seed", "test error", "objective", "rounds", "seconds", "sent up")  # 80 columns

stdout = Console()
stderr = Console(stderr=True)


def map_words(features_by: str) -> str:
    """A word on the feature map behind the number of features."""
    return "" if features_by == NONE else f" by map {features_by}"


def print_json(value: Any) -> None:
    """One JSON object."""
    click.echo(to_json(value))


def print_sentence(sentence: str) -> None:
    """A line on stderr, as it is."""
    stderr.print(sentence, soft_wrap=True, highlight=False, markup=False)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, wrap: bool = False) -> None:
    """A table; the first columns are text, the others numbers; wrap: long values take several lines."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(
            heading, justify="left" if i < left else "right", no_wrap=not wrap, overflow="fold" if wrap else "ellipsis"
        )
    for row in rows:
        table.add_row(*row)
    stdout.print(table)


def print_result(run: api.Run) -> None:
    """What a finished run gave, and where its report is."""
    if has_seeds(run.runs):
        print_table(GROUP_HEADINGS, group_rows(run.runs))
    else:
        print_table(*result_table(run.runs, TERMINAL_HEADINGS), left=2)
    stdout.print()
    names = list(dict.fromkeys(entry["algorithm"] for entry in run.runs))
    wide = max(7, *map(len, names)) + 2
    for name in names:
        words = ALGORITHMS[name].summary if name in ALGORITHMS else "of a plugin"
        stdout.print(f"{name:{wide}}{words}", soft_wrap=True, highlight=False)
    privacy = PAPER_HEADLINE if run.summary["mode"] == "paper" else headline(run.summary["privacy"])
    stdout.print(f"{'privacy':{wide}}{privacy}", soft_wrap=True, highlight=False)
    planned, done = run.folder.read_config()["rounds"], rounds_done(run.runs, run.folder.read_header().method_facts)
    if done is not None and done < planned:
        stdout.print(f"{'stopped':{wide}}after {done} of {planned} rounds: the budget allows no more", highlight=False)
    stdout.print(f"{'report':{wide}}{run.folder.report}", soft_wrap=True, highlight=False)
    declared = run.folder.read_start(local=False)["data"].get("declared")
    if declared and not declared["published"] and run.folder.has_local:
        words = "for the owner of the records alone: figures without noise, cells that do not fit the schema"
        stdout.print(
            f"{'':{wide}}{run.folder.local / run.folder.report.name} ({words})", soft_wrap=True, highlight=False
        )
