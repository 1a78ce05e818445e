"""`taciturn bench`: all benchmarks, those of the package and those of a checkout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rich_click as click

from taciturn.cli.output import JSON, PATH, print_fields, print_json, print_table, save_figure, say, stderr
from taciturn.core.storage import to_json, write_text
from taciturn.errors import InputError, unknown_name
from taciturn.research import bench as benchmarks
from taciturn.research.bench.benchmark import markdown
from taciturn.research.bench.repository import repository_programs, run_program
from taciturn.training_display import SHOW_AFTER, LogLines

NAME_WIDTH = 18
OWN_WORDS = f"{__name__}.words"  # the arguments of a checkout's program, in the context


class BenchCommand(click.RichCommand):
    """A command that leaves the arguments of a checkout's program to that program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, unless they begin with the name of such a program."""
        if args and args[0] in repository_programs():
            ctx.meta[OWN_WORDS] = args
            args = []
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Run the benchmarks, or the program."""
        if OWN_WORDS not in ctx.meta:
            super().invoke(ctx)
            return
        name, *words = ctx.meta[OWN_WORDS]
        ctx.exit(run_program(repository_programs()[name], words))


@click.command(cls=BenchCommand, context_settings={"show_default": True})
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="run all of them except the longest, one after the other")
@click.option("--repeats", default=9, type=click.IntRange(1), metavar="NUMBER", help="turns of every candidate")
@click.option("--small", is_flag=True, help="a small size to try it out; its numbers mean nothing")
@click.option(
    "--data-dir", default="", metavar="FOLDER", help="folder of MNIST  [default: $TACITURN_DATA, else the cache]"
)
@click.option("--out", type=PATH, metavar="FOLDER", help="write NAME.json, .md, .svg and .png to this folder")
@JSON
def bench(
    names: tuple[str, ...], everything: bool, repeats: int, small: bool, data_dir: str, out: Path | None, as_json: bool
) -> None:
    """Time Taciturn and comparable libraries, on the same records in the same run.

    Without a NAME it lists the benchmarks, with what each measures and how long it takes on two cores. Candidates take
    turns and the best of all turns counts; compare ratios, not seconds. Libraries that are not installed are left out,
    and the output names them.

    In a checkout of the repository the list also has the programs that produce the figures of the documentation. Such a
    program has its own options: `taciturn bench NAME --help` shows them.

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
        _check(name)  # before any time is spent
    if out is not None:
        _make(out)
    found = []
    for name in chosen:
        with _display(name) as watch:
            found.append(benchmarks.run(name, benchmarks.Options(small, repeats, data_dir, watch)))
        if out is not None:
            _write(found[-1], out)
        if not as_json:
            _print(found[-1])
    if as_json:
        summaries = {report.name: report.summary() for report in found}
        print_json(summaries[chosen[0]] if len(chosen) == 1 else summaries)


def _check(name: str) -> None:
    programs = repository_programs()
    if name in programs:
        raise InputError(f"{name} has its own options; run it alone: taciturn bench {name}")
    if name not in benchmarks.BENCHMARKS:
        raise unknown_name("benchmark", name, (*benchmarks.BENCHMARKS, *programs))


def _list(as_json: bool) -> None:
    own = {name: benchmarks.BENCHMARKS[name] for name in benchmarks.BENCHMARKS}
    programs = repository_programs()
    if as_json:
        summaries = {name: one.summary for name, one in own.items()}
        print_json(summaries | {name: one.summary for name, one in programs.items()})
        return
    print_fields({name: f"{one.summary} ({one.takes})" for name, one in own.items()}, NAME_WIDTH)
    if programs:
        say("\nof this checkout, each with its own options:")
        print_fields({name: f"{one.summary} ({one.takes})" for name, one in programs.items()}, NAME_WIDTH)


def _make(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out is {folder}, which is a file; it must be a folder")
    folder.mkdir(parents=True, exist_ok=True)


def _write(report: benchmarks.Report, folder: Path) -> None:
    from taciturn.research.bench.bench_figure import picture

    write_text(folder / f"{report.name}.json", to_json(report.summary()) + "\n")
    write_text(folder / f"{report.name}.md", markdown(report))
    if report.timings or report.growth:
        for ending in ("svg", "png"):
            save_figure(picture(report), folder / f"{report.name}.{ending}")


def _print(report: benchmarks.Report) -> None:
    say(f"[bold]{report.title}[/bold]", markup=True)
    if report.timings or report.growth:
        print_table(report.headings(), report.rows())
    say()
    for key, value, *goal in report.figure_rows():
        say(f"{key:32} {value:14} {' '.join(goal)}".rstrip())
    for note in report.notes:
        say(f"note  {note}")
    say()


@contextmanager
def _display(name: str) -> Iterator[benchmarks.Watch]:
    """Show progress, on a terminal in one line; without a thread, which would be timed with the candidates."""
    start, lines = time.monotonic(), LogLines(stderr)

    def watch(text: str) -> None:
        lines.print(f"{name}: {text}")
        if stderr.is_terminal and time.monotonic() - start > SHOW_AFTER:
            stderr.file.write(f"\r\x1b[2K{name}: {text}")
            stderr.file.flush()

    try:
        yield watch
    finally:
        if stderr.is_terminal:
            stderr.file.write("\r\x1b[2K")
