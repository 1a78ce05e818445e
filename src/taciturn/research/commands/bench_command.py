"""`taciturn bench`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rich_click as click

from taciturn.cli.output import print_json, print_table, stderr, stdout
from taciturn.core.storage import to_json, write_text
from taciturn.errors import InputError
from taciturn.research import bench as benchmarks
from taciturn.research.bench.benchmark import figure_rows, markdown

SHOW_AFTER, LINE_SECONDS = 2.0, 10.0


@click.command(context_settings={"show_default": True})
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="run all of them but the longest, one after the other")
@click.option("--repeats", default=9, type=click.IntRange(1), metavar="NUMBER", help="turns of every candidate")
@click.option("--small", is_flag=True, help="a size for trying it out; its numbers mean nothing")
@click.option(
    "--data-dir", default="", metavar="FOLDER", help="where MNIST lies, if not in $TACITURN_DATA or the cache"
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FOLDER", help="write NAME.json, .md, .svg and .png here"
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object, and nothing else, on stdout")
def bench(
    names: tuple[str, ...],
    everything: bool,
    repeats: int,
    small: bool,
    data_dir: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Time Taciturn beside its peers, on the same records in the same run.

    Without a NAME, the benchmarks there are. Candidates take turns; the best of all turns counts, and what counts of it
    is the ratio to something measured beside it. Peers that are not installed are left out, and named.

    \b
    Examples:
      taciturn bench
      taciturn bench mnist-round
      taciturn bench mnist-round --json
      taciturn bench batch growth --out bench
      taciturn bench --all --out bench
    """
    usual = tuple(name for name in benchmarks.BENCHMARKS if not benchmarks.BENCHMARKS[name].long)
    chosen = (*usual, *(name for name in names if name not in usual)) if everything else names
    if not chosen:
        _list(as_json)
        return
    for name in chosen:
        benchmarks.BENCHMARKS[name]  # a misspelt name is refused before any time is spent
    if out is not None:
        _make(out)
    found = []
    for name in chosen:
        with _watching(name) as watch:
            found.append(benchmarks.run(name, benchmarks.Options(small, repeats, data_dir, watch)))
        if out is not None:
            _write(found[-1], out)
        if not as_json:
            _print(found[-1])
    if as_json:
        summaries = {report.name: report.summary() for report in found}
        print_json(summaries[chosen[0]] if len(chosen) == 1 else summaries)


def _list(as_json: bool) -> None:
    summaries = {name: benchmarks.BENCHMARKS[name].summary for name in benchmarks.BENCHMARKS}
    if as_json:
        print_json(summaries)
        return
    for name, summary in summaries.items():
        stdout.print(f"[bold]{name:14}[/] {summary}", highlight=False, soft_wrap=True)


def _make(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: --out takes a folder")
    folder.mkdir(parents=True, exist_ok=True)


def _write(report: benchmarks.Report, folder: Path) -> None:
    from taciturn.reporting.figures.style import save
    from taciturn.research.bench.bench_figure import picture

    write_text(folder / f"{report.name}.json", to_json(report.summary()) + "\n")
    write_text(folder / f"{report.name}.md", markdown(report))
    if report.timings or report.growth:
        for ending in ("svg", "png"):
            save(picture(report), folder / f"{report.name}.{ending}")


def _print(report: benchmarks.Report) -> None:
    stdout.print(f"[bold]{report.title}[/bold]", highlight=False, soft_wrap=True)
    if report.timings or report.growth:
        print_table(report.headings(), report.rows())
    stdout.print()
    for key, value in figure_rows(report.figures):
        stdout.print(f"{key:32} {value}", highlight=False, soft_wrap=True)
    for note in report.notes:
        stdout.print(f"note  {note}", highlight=False, soft_wrap=True)
    stdout.print()


@contextmanager
def _watching(name: str) -> Iterator[benchmarks.Watch]:
    """A line that changes on a terminal, one now and then in a log; no thread, which would be timed with the rest."""
    began = spoke = time.monotonic()

    def watch(text: str) -> None:
        nonlocal spoke
        now = time.monotonic()
        if stderr.is_terminal and now - began > SHOW_AFTER:
            stderr.file.write(f"\r\x1b[2K{name}: {text}")
            stderr.file.flush()
        elif not stderr.is_terminal and now - max(began, spoke) > (SHOW_AFTER if spoke == began else LINE_SECONDS):
            spoke = now
            stderr.print(f"{name}: {text}", soft_wrap=True, highlight=False)

    try:
        yield watch
    finally:
        if stderr.is_terminal:
            stderr.file.write("\r\x1b[2K")
