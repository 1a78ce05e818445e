"""`tacit compare`: the algorithms of a run, or several runs, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from tacit.cli.output import print_json, print_table, stderr, stdout
from tacit.errors import InputError
from tacit.privacy.guarantee import SIMULATED
from tacit.results.folder import RunFolder
from tacit.views.compare import differences, errors_side_by_side, folder_names, other_test_records, predicts_numbers
from tacit.views.ranking import HEADINGS, WORDS, Ranked, cells, facts, promises, ranking, repeated
from tacit.views.tables import format_setting, format_share, markdown_table

TERMINAL = HEADINGS[:3] + HEADINGS[4:-1]  # 80 columns
NOTE = "the test errors were computed from private records without noise: this is for the owner of the records alone"

OTHERS = (
    "these runs were not tested on the same records ({} differ): part of the difference of their errors is chance. "
    "Train them with one --test file, or with the same --test-share and --partition-key"
)


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--ranked", is_flag=True, help="several runs: all their algorithms and budgets in one table, best first")
@click.option("--out", type=click.Path(path_type=Path), help="draw all of them, best on top (.png, .svg, .pdf)")
@click.option("--markdown", "as_markdown", is_flag=True, help="print tables for a Markdown page")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object, and nothing else, on stdout")
def compare(runs: tuple[Path, ...], ranked: bool, out: Path | None, as_markdown: bool, as_json: bool) -> None:
    """The algorithms and budgets of a run, best first; of several runs which settings differ, and how the errors do.

    Means are over seeds, with Student-t intervals of 95 %. They tell what other seeds would give; whether a difference
    of two is more than chance, 'tacit sweep' says. A note says where runs were tested on different records.

    \b
    Examples:
      tacit compare runs/a
      tacit compare runs/a --markdown --out methods.png
      tacit compare runs/a runs/b
      tacit compare runs/a runs/b runs/c --ranked
    """
    if as_markdown and as_json:
        raise InputError("--markdown and --json are two forms of the same tables: choose one")
    folders = [RunFolder.open(path) for path in runs]
    rows, regression = ranking(folders), predicts_numbers(folders)
    if out is not None:
        _draw(rows, regression, out)
    if as_json:
        print_json(_document(folders, rows, out))
        return
    if len(folders) == 1 or ranked:
        _print_ranking(rows, regression, as_markdown)
    else:
        _print_side_by_side(folders, regression, as_markdown)
    if out is not None and not as_markdown:
        stdout.print(f"\npicture  {out}", soft_wrap=True, highlight=False)
    if differ := other_test_records(folders):
        stderr.print(f"note: {OTHERS.format(', '.join(differ))}", soft_wrap=True, highlight=False)
    if any(row.own for row in rows):
        stderr.print(f"note: {NOTE}", soft_wrap=True, highlight=False)


def _document(folders: Sequence[RunFolder], rows: Sequence[Ranked], out: Path | None) -> dict[str, Any]:
    return {
        "runs": folder_names(folders),
        "settings": differences(folders),
        "test_error": errors_side_by_side(folders),
        "ranking": [facts(row) for row in rows],
        "other_test_records": other_test_records(folders),
        "local_only": any(row.own for row in rows),
        "picture": None if out is None else str(out),
    }


def _draw(rows: Sequence[Ranked], regression: bool, out: Path) -> None:
    from tacit.views.ranking_picture import ranking_figure  # noqa: PLC0415  matplotlib takes its time, and most commands draw nothing
    from tacit.views.style import save  # noqa: PLC0415

    save(ranking_figure(rows, regression), out, private=any(row.own for row in rows))


def _print_ranking(rows: Sequence[Ranked], regression: bool, as_markdown: bool) -> None:
    table = [cells(row, regression) for row in rows]
    if as_markdown:
        click.echo(markdown_table(HEADINGS, table, WORDS))
        return
    shown = [HEADINGS.index(name) for name in TERMINAL]
    print_table(TERMINAL, [[line[i] for i in shown] for line in table])
    seeds = repeated(rows)
    words = f"mean of {seeds} seeds ± half its 95 % interval (Student t)" if seeds else "one run gives no interval"
    stdout.print(f"test error: {words}\n", soft_wrap=True, highlight=False)
    if any(row.simulated for row in rows):
        stdout.print(f"{SIMULATED}\n", soft_wrap=True, highlight=False)
    lines = promises(rows)
    wide = max(len(name) for name, _ in lines) + 2
    for name, words in lines:
        stdout.print(f"{name:{wide}}{words}", soft_wrap=True, highlight=False)


def _print_side_by_side(folders: Sequence[RunFolder], regression: bool, as_markdown: bool) -> None:
    names, settings = folder_names(folders), differences(folders)
    found = [(key.replace("_", "-"), *map(format_setting, values)) for key, values in settings.items()]
    if found:
        _print(("setting", *names), found, as_markdown, wrap=True)
    else:
        stdout.print("the settings are the same")
    stdout.print()
    errors, headings = errors_side_by_side(folders), ("test error, mean over seeds", *names)

    def shown(value: float | None, sign: str = "") -> str:
        return "" if value is None else format_share(value, regression, sign)

    table = [(label, *map(shown, values)) for label, values in errors.items()]
    differ = [_difference(found) for found in errors.values()]
    if any(value is not None for value in differ):
        headings = (*headings, "difference")
        table = [(*row, shown(value, "+")) for row, value in zip(table, differ, strict=True)]
    _print(headings, table, as_markdown)


def _difference(found: Sequence[float | None]) -> float | None:
    """Of two errors that are known, how much larger the second is."""
    match found:
        case [float(first), float(second)]:
            return second - first
    return None


def _print(headings: Sequence[str], rows: Sequence[Sequence[str]], as_markdown: bool, wrap: bool = False) -> None:
    if as_markdown:
        click.echo(markdown_table(headings, rows, headings[:1]))
    else:
        print_table(headings, rows, wrap=wrap)
