"""Output of commands: results go to stdout, everything else to stderr. Also the options that commands share."""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import rich_click as click
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from taciturn.algorithms import ALGORITHMS
from taciturn.core.storage import to_json
from taciturn.data.feature_maps import NONE
from taciturn.errors import InputError
from taciturn.reporting.curves import run_label
from taciturn.reporting.evaluation_tables import (
    confusion_table,
    evaluation_sentence,
    evaluation_table,
    last_evaluations,
)
from taciturn.reporting.statements import PAPER_HEADLINE, headline
from taciturn.reporting.tables import GROUP_HEADINGS, SPREAD, group_rows, has_seeds, result_table, rounds_done
from taciturn.result import Run
from taciturn.runs.records import EvaluationRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULT_COLUMNS = ("", "run", "seed", "test error", "objective", "rounds", "seconds", "sent up")  # 80 characters
READABLE, GAP = 80, 2  # characters of a line, and around a column of a table
SHORTEST = 6  # characters of a part of a word
SHORT = 20  # characters of a text that stays on one line, such as "additive, ε = 0.5"
WITHOUT_LETTERS = re.compile(r"[\d.,+\-e%± ]+")  # a number, also among texts
PATH = click.Path(path_type=Path)
JSON_HELP = "print one JSON object, and nothing else, on stdout"
JSON = click.option("--json", "as_json", is_flag=True, help=JSON_HELP)


class _CommandConsole(Console):
    """A console that leaves a closed pipe to the entry point, which exits with 141; rich exits with 1."""

    def on_broken_pipe(self) -> None:
        """Raise the error again."""
        raise BrokenPipeError


stdout = _CommandConsole()
stderr = _CommandConsole(stderr=True)


class _ConsoleHandler(logging.Handler):
    """Prints log records on stderr, above any progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        note(self.format(record))


def configure_logging(verbosity: int) -> None:
    """Send the package's log messages to stderr.

    Parameters
    ----------
    verbosity : int
        0 shows errors only, 1 (`-v`) adds information and warnings, 2 (`-vv`) adds debugging messages and tracebacks.
    """
    logger = logging.getLogger("taciturn")
    handler = _ConsoleHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.handlers = [handler]
    logger.setLevel((logging.ERROR, logging.INFO, logging.DEBUG)[min(verbosity, 2)])
    logger.propagate = False
    owners = logging.getLogger("taciturn.records")  # what the owner of the records must see
    shown = _ConsoleHandler()
    shown.setFormatter(logging.Formatter("note: %(message)s"))
    owners.handlers, owners.propagate = [shown], False
    owners.setLevel(logging.WARNING)


def say(text: str = "", *, markup: bool = False) -> None:
    """Print one line of the result on stdout."""
    stdout.print(text, soft_wrap=True, highlight=False, markup=markup)


def note(text: str) -> None:
    """Print one line on stderr."""
    stderr.print(text, soft_wrap=True, highlight=False, markup=False)


def print_fields(fields: Mapping[str, object], width: int) -> None:
    """Print names and values, one pair a line; names are `width` characters wide."""
    for name, value in fields.items():
        say(f"[bold]{name:{width}}[/] {escape(str(value))}", markup=True)


def print_json(value: Any) -> None:
    """Print a value as one JSON object."""
    click.echo(to_json(value))


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 1,
    wrap: bool = False,
    texts: Sequence[int] | None = None,
    spare: Sequence[int] = (),
) -> None:
    """Print a table without truncating numbers or, if it can, breaking words.

    On a terminal, long text takes several lines, and columns that can be spared are left out where they do not fit. A
    table that is still too wide is printed for at least 80 columns, and the terminal wraps it. Elsewhere a row is a
    line.

    Parameters
    ----------
    headings : sequence of str
        One for each column.
    rows : sequence of sequences of str
        The cells.
    left : int
        The number of columns, from the first, that hold text; the others hold numbers and are right-aligned.
    wrap : bool
        Whether all long cells take several lines.
    texts : sequence of int, optional
        The columns that hold texts, if they are not the first ones.
    spare : sequence of int, optional
        The columns that are left out where not all have room.
    """
    folded = set(range(len(headings)) if wrap else range(left) if texts is None else texts)
    columns = [(heading, *(row[i] for row in rows)) for i, heading in enumerate(headings)]
    shown, narrowest = list(range(len(headings))), [max(map(cell_len, cells)) for cells in columns]
    if stdout.is_terminal:
        shown, narrowest = _fitted(columns, folded, spare)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i in shown:
        justify: Literal["left", "right"] = "left" if i < left else "right"
        whole = narrowest[i] == max(map(cell_len, columns[i]))
        table.add_column(headings[i], justify=justify, no_wrap=whole, overflow="fold", min_width=narrowest[i])
    for row in rows:
        table.add_row(*(row[i] for i in shown))
    own, needed = stdout.width, _width(narrowest, shown)
    stdout.width = own if needed <= own else max(needed, READABLE)
    try:
        stdout.print(table, crop=False)
    finally:
        stdout.width = own


def _fitted(
    columns: Sequence[Sequence[str]], folded: Container[int], spare: Container[int]
) -> tuple[list[int], list[int]]:
    """Return which columns a terminal has room for, and the least width of each column."""
    narrowest = [_narrowest(cells, i in folded) for i, cells in enumerate(columns)]
    shown = list(range(len(columns)))
    if _width(narrowest, shown) > stdout.width:
        shown = [i for i in shown if i not in spare]
    if _width(narrowest, shown) > stdout.width:  # to break a long name is better than to break every line
        narrowest = [_narrowest(cells, i in folded, SHORTEST) for i, cells in enumerate(columns)]
    return shown, narrowest


def _narrowest(cells: Sequence[str], folded: bool, longest: int = READABLE) -> int:
    """Return the least width of a column: of its longest word, up to `longest`, if its texts may be folded."""
    return max(
        min(max(map(cell_len, cell.split()), default=0), longest)
        if folded and cell_len(cell) > SHORT and not WITHOUT_LETTERS.fullmatch(cell)
        else cell_len(cell)
        for cell in cells
    )


def _width(narrowest: Sequence[int], shown: Sequence[int]) -> int:
    return sum(narrowest[i] + GAP for i in shown) - GAP


def describe_map(name: str) -> str:
    """Return the words about a feature map that follow the number of features."""
    return "" if name == NONE else f" by map {name}"


def print_result(run: Run) -> None:
    """Print the results of a finished run and where its report is."""
    if has_seeds(run.runs):
        print_table(GROUP_HEADINGS, group_rows(run.runs), spare=[GROUP_HEADINGS.index(name) for name in SPREAD])
    else:
        print_table(*result_table(run.runs, RESULT_COLUMNS), left=2)
    say()
    names = list(dict.fromkeys(entry.algorithm for entry in run.runs))
    width = max(7, *map(len, names)) + 2
    for name in names:
        say(f"{name:{width}}{ALGORITHMS[name].summary if name in ALGORITHMS else 'from a plugin'}")
    for row in last_evaluations(run.folder.read_evaluations()):
        label = f"{run_label(row.algorithm, row.epsilon)}: " if len(run.runs) > 1 else ""
        say(f"{'measured':{width}}{label}{evaluation_sentence(row)}")
    privacy = PAPER_HEADLINE if run.summary.mode == "paper" else headline(run.summary.privacy)
    say(f"{'privacy':{width}}{privacy}")
    planned, done = run.folder.read_config()["rounds"], rounds_done(run.runs, run.folder.read_header().method_facts)
    if done is not None and done < planned:
        say(f"{'stopped':{width}}after {done} of {planned} rounds: the budget allows no more")
    say(f"{'report':{width}}{run.folder.report}")
    declared = run.folder.read_start(local=False).data.declared
    if declared and not declared.published and run.folder.has_local:
        words = "for the owner of the records only: figures without noise, cells that do not fit the schema"
        say(f"{'':{width}}{run.folder.local / run.folder.report.name} ({words})")


def print_evaluation(row: EvaluationRow, names: Sequence[str]) -> None:
    """Print what a private evaluation measured.

    Parameters
    ----------
    row : EvaluationRow
        The evaluation.
    names : sequence of str
        The classes; empty if the label is a number.
    """
    say(evaluation_sentence(row))
    if row.quality is None:
        return
    for table in (evaluation_table(row.quality), confusion_table(row.quality, names)):
        if table is not None:
            say()
            print_table(table.headings, table.rows)
    say("± are standard errors, from the noise and from sampling the records; to combine them, add their squares")


def check_new(path: Path | None) -> None:
    """Raise if a file that a command is about to write exists."""
    if path is not None and path.exists():
        raise InputError(f"{path} exists; choose another name")


def check_figure(path: Path | None) -> None:
    """Raise if a figure cannot be written to this path; matplotlib is imported only if there is one."""
    if path is not None:
        from taciturn.reporting.figures.style import check_place

        check_place(path)


def save_figure(figure: Figure, path: Path, private: bool = False) -> None:
    """Write a figure to a .png, .svg or .pdf file; a private one is readable by its owner only."""
    from taciturn.reporting.figures.style import save

    save(figure, path, private)
