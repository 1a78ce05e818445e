"""`taciturn runs`, `show`, `effects`, `plot`, `report`, `compare` and `dashboard`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from taciturn.cli.output import (
    JSON,
    PATH,
    check_figure,
    note,
    print_json,
    print_result,
    print_table,
    save_figure,
    say,
    stderr,
)
from taciturn.errors import InputError
from taciturn.reporting.curves import full_label
from taciturn.reporting.ranking import HEADINGS, WORDS, Ranked, cells, promises, ranking, seeds_range
from taciturn.reporting.report import write_report
from taciturn.reporting.side_by_side import (
    differences,
    errors_side_by_side,
    folder_names,
    other_test_records,
    predicts_numbers,
)
from taciturn.reporting.statements import SIMULATED
from taciturn.reporting.tables import (
    EFFECT_HEADINGS,
    EFFECT_TEXTS,
    LEVEL_HEADINGS,
    effect_rows,
    format_error,
    format_setting,
    format_share,
    level_rows,
    markdown_table,
)
from taciturn.result import Run, draw_sent
from taciturn.runs.effects import read_effects
from taciturn.runs.folder import RunFolder, make_local_folder
from taciturn.settings.rules import flag_name, integer
from taciturn.training_display import TrainingDisplay

if TYPE_CHECKING:
    from taciturn.dashboard.catalogue import CatalogueRow

RUNS = click.argument("runs", nargs=-1, required=True, type=PATH)
RANKING_COLUMNS = HEADINGS[:3] + HEADINGS[4:-1]  # 80 characters
OWNERS_NOTE = "note: the test errors are computed from private records without noise: for the owner of the records only"
DIFFERENT_TESTS = (
    "note: these runs were not tested on the same records ({} differ), so part of the difference between their errors "
    "is chance; train them with one --test file, or with the same --test-share and --partition-key"
)


@click.command()
@click.argument("folder", default="runs", type=PATH)
@JSON
def runs(folder: Path, as_json: bool) -> None:
    """List the runs in a folder at any depth, newest first: what was trained, with which budget, and how far it is.

    \b
    Examples:
      taciturn runs
      taciturn runs runs/sweep
      taciturn runs --json
    """
    from taciturn.dashboard.catalogue import find_runs, read_row

    found = find_runs(folder)
    listed = [read_row(one, folder, local=True, busy=RunFolder(one.path).busy) for one in found]
    listed.sort(key=lambda row: row.started, reverse=True)
    if as_json:
        print_json({"folder": str(folder), "runs": [asdict(row) for row in listed]})
        return
    if not listed:
        note(f"there are no runs in {folder}; 'taciturn run' makes one")
        return
    rows = [_listed_row(row) for row in listed]
    print_table(("run", "started", "state", "methods", "total ε", "data", "test error"), rows, left=4)
    if any(row.errors and row.errors_local for row in listed):
        note(OWNERS_NOTE)


def _listed_row(row: CatalogueRow) -> tuple[str, ...]:
    """Return the cells of a run; what cannot be read of a damaged one is empty."""
    low, high = row.errors or (None, None)
    errors = "" if low is None else format_share(low, row.regression)
    if high is not None and high != low:
        errors = f"{errors} to {format_share(high, row.regression)}"
    state = f"{row.state}, round {row.done} of {row.planned}" if row.state == "running" else row.state
    began = datetime.fromtimestamp(row.started).strftime("%Y-%m-%d %H:%M") if row.started > 0.0 else ""
    return row.name, began, state, ", ".join(row.algorithms), ", ".join(row.epsilon or ()), row.data, errors


@click.command()
@RUNS
@click.option("--json", "as_json", is_flag=True, help="print one JSON object for each run folder, one a line")
def show(runs: tuple[Path, ...], as_json: bool) -> None:
    """Show the results of runs: means over seeds for one run folder, every single run for several.

    \b
    Examples:
      taciturn show runs/20260101-120000-mnist14-objpm
      taciturn show runs/*
    """
    folders = [RunFolder.open(path) for path in runs]
    if as_json:
        for folder in folders:
            unfinished = {"run": str(folder.path), "finished": False, "rows": len(folder.read_metrics())}
            print_json(Run(folder).summary if folder.finished else unfinished)
    elif len(folders) == 1 and folders[0].finished:
        print_result(Run(folders[0]))
    else:
        rows = [row for folder in folders for row in _state_rows(folder)]
        print_table(("folder", "run", "test error", "round"), rows, left=2)


def _state_rows(folder: RunFolder) -> list[tuple[str, str, str, str]]:
    name = folder.path.name
    if folder.finished:
        return [(name, full_label(e), format_error(e), str(e.rounds)) for e in folder.read_summary().runs]
    rows = folder.read_metrics()
    state = "running" if folder.busy else "not finished (taciturn resume)"
    return [(name, state, "", str(rows[-1].round) if rows else "0")]


@click.command()
@RUNS
@click.option(
    "--what",
    type=click.Choice(["curves", "sent", "effects"]),
    default="curves",
    show_default=True,
    help="curves against rounds, the weights that an agent sends in one round, with and without noise, or the effect "
    "of every column of a table on the model",
)
@click.option("--run-index", type=int, help="sent, effects: which run of the folder; default: 0")
@click.option("--agent", help="sent: the agent; default: the first")
@click.option("--round", "t", type=int, help="sent: the round; default: 1")
@click.option(
    "--out",
    type=PATH,
    help="figure to write (.png, .svg, .pdf); default: curves.png, sent.png or effects.png in the run folder or its "
    "local-only folder, or in the current folder for several runs",
)
def plot(
    runs: tuple[Path, ...], what: str, run_index: int | None, agent: str | None, t: int | None, out: Path | None
) -> None:
    """Draw test error, objective, residual and noise against rounds, what an agent sends, or a model's effects.

    A run folder does not contain what an agent would send without noise. --what sent repeats the run from its seeds and
    records, which takes at most as long as the run did. That figure is for the owner of the records only, and is
    written to the local-only folder.

    \b
    Examples:
      taciturn plot runs/a
      taciturn plot runs/a runs/b --out both.svg
      taciturn plot runs/a --what sent
      taciturn plot runs/a --what sent --agent north --round 20
      taciturn plot runs/a --what effects --out effects.svg
    """
    folders = [RunFolder.open(path) for path in runs]
    if what == "curves":
        if (run_index, agent, t) != (None, None, None):
            raise InputError("--run-index, --agent and --round need --what sent or effects")
        path = _draw_curves(folders, out)
    elif len(folders) > 1:
        raise InputError(f"--what {what} takes one run folder, but {len(folders)} are given")
    elif what == "effects":
        if (agent, t) != (None, None):
            raise InputError("--agent and --round need --what sent")
        path = _draw_effects(folders[0], run_index or 0, out)
    else:
        path = _draw_sent(folders[0], run_index or 0, agent, 1 if t is None else t, out)
    say(str(path))


def _draw_curves(folders: list[RunFolder], out: Path | None) -> Path:
    from taciturn.reporting.figures.run_figure import figure, owners_alone

    default = Path("curves.png")
    if len(folders) == 1:
        default = (folders[0].local if folders[0].has_local else folders[0].path) / default
    path = out or default
    check_figure(path)
    private = owners_alone(folders)
    save_figure(figure(folders), path, private=bool(private))
    if out is not None and private:
        names, verb = " and ".join(private), "were" if len(private) > 1 else "was"
        note(f"note: {names} {verb} computed without noise: the figure is for the owner of the records only")
    return path


def _draw_effects(folder: RunFolder, run: int, out: Path | None) -> Path:
    """Draw a model's effects; they follow from released values, so the figure is public."""
    from taciturn.reporting.figures.effects_figure import effects_figure

    path = out or folder.path / "effects.png"
    check_figure(path)
    save_figure(effects_figure(read_effects(folder).run(run)), path)
    return path


@click.command()
@click.argument("run", type=PATH)
@click.option("--column", metavar="NAME", help="every level of one column; default: the range of each column")
@click.option("--run-index", default=0, show_default=True, help="which run of the folder, if it has several")
@JSON
def effects(run: Path, column: str | None, run_index: int, as_json: bool) -> None:
    """Explain the model of a table: the effect of every column, with the standard error of the noise.

    The standard errors are those of the privacy noise alone. They do not include the choice of the records.

    \b
    Examples:
      taciturn effects runs/a
      taciturn effects runs/a --column age
      taciturn effects runs/a --json
    """
    found = read_effects(RunFolder.open(run)).run(run_index)
    one = None if column is None else found.column(column)
    if as_json:
        print_json(found if one is None else one)
        return
    if one is None:
        print_table(EFFECT_HEADINGS, effect_rows(found), left=1, texts=EFFECT_TEXTS)
    else:
        print_table(
            LEVEL_HEADINGS if len(found.outputs) == 1 else ("of", *LEVEL_HEADINGS), level_rows(found, one), left=1
        )
    about = found.outputs[0] if len(found.outputs) == 1 else "each class, relative to the mean of all"
    within = "noise: the share of records whose effect is within 2 standard errors of the noise alone"
    meaning = within if one is None else "± 2 standard errors of the noise alone, * beyond them"
    say(f"\neffects on {about}, in {found.unit}; {meaning}; shares of records are noisy too")


def _draw_sent(folder: RunFolder, run: int, agent: str | None, t: int, out: Path | None) -> Path:
    """Repeat the run and draw an upload, in local-only unless the user names another file."""
    check_figure(out)
    with TrainingDisplay(stderr) as display:
        found = Run(folder).sent(run_index=run, agent=agent, round=t, watch=display)
    path = out or make_local_folder(folder.local) / "sent.png"
    save_figure(draw_sent(folder, found), path, private=True)
    return path


@click.command()
@click.argument("run", type=PATH)
def report(run: Path) -> None:
    """Write report.html again from the run folder.

    \b
    Examples:
      taciturn report runs/a
    """
    folder = RunFolder.open(run)
    write_report(folder)
    say(str(folder.report))


@click.command()
@RUNS
@click.option("--ranked", is_flag=True, help="several runs: all their algorithms and budgets in one table, best first")
@click.option("--out", type=PATH, help="draw all of them, best on top (.png, .svg, .pdf)")
@click.option("--markdown", "as_markdown", is_flag=True, help="print Markdown tables")
@JSON
def compare(runs: tuple[Path, ...], ranked: bool, out: Path | None, as_markdown: bool, as_json: bool) -> None:
    """Rank the algorithms and budgets of a run; for several runs, show which settings and errors differ.

    Means are over seeds, with 95 % Student-t intervals that show what other seeds would give. 'taciturn sweep' tests
    whether a difference is significant. A note is printed if runs were tested on different records.

    \b
    Examples:
      taciturn compare runs/a
      taciturn compare runs/a --markdown --out methods.png
      taciturn compare runs/a runs/b
      taciturn compare runs/a runs/b runs/c --ranked
    """
    if as_markdown and as_json:
        raise InputError("--markdown and --json cannot be combined; choose one")
    folders = [RunFolder.open(path) for path in runs]
    rows, regression = ranking(folders), predicts_numbers(folders)
    private, different = any(row.own for row in rows), other_test_records(folders)
    if out is not None:
        from taciturn.reporting.figures.summary_figures import ranking_figure

        save_figure(ranking_figure(rows, regression), out, private)
    if as_json:
        print_json(
            {
                "runs": folder_names(folders),
                "settings": differences(folders),
                "test_error": errors_side_by_side(folders),
                "ranking": [row.to_json() for row in rows],
                "other_test_records": different,
                "local_only": private,
                "picture": None if out is None else str(out),
            }
        )
        return
    if len(folders) == 1 or ranked:
        _print_ranking(rows, regression, as_markdown)
    else:
        _print_side_by_side(folders, regression, as_markdown)
    if out is not None and not as_markdown:
        say(f"\nfigure  {out}")
    if different:
        note(DIFFERENT_TESTS.format(", ".join(different)))
    if private:
        note(OWNERS_NOTE)


def _print_ranking(rows: Sequence[Ranked], regression: bool, as_markdown: bool) -> None:
    table = [cells(row, regression) for row in rows]
    if as_markdown:
        click.echo(markdown_table(HEADINGS, table, WORDS))
        return
    shown = [HEADINGS.index(name) for name in RANKING_COLUMNS]
    print_table(RANKING_COLUMNS, [[line[i] for i in shown] for line in table])
    seeds = seeds_range(rows)
    meaning = f"mean of {seeds} seeds ± half its 95 % interval (Student t)" if seeds else "one run gives no interval"
    say(f"test error: {meaning}\n")
    if any(row.simulated for row in rows):
        say(f"{SIMULATED}\n")
    guarantees = promises(rows)
    width = max(len(name) for name, _ in guarantees) + 2
    for name, words in guarantees:
        say(f"{name:{width}}{words}")


def _print_side_by_side(folders: Sequence[RunFolder], regression: bool, as_markdown: bool) -> None:
    names, settings = folder_names(folders), differences(folders)
    found = [(flag_name(key), *map(format_setting, values)) for key, values in settings.items()]
    if found:
        _print_either(("setting", *names), found, as_markdown, wrap=True)
    else:
        say("the settings are the same")
    say()
    errors, headings = errors_side_by_side(folders), ("test error, mean over seeds", *names)

    def shown(value: float | None, sign: str = "") -> str:
        return "" if value is None else format_share(value, regression, sign)

    table = [(label, *map(shown, values)) for label, values in errors.items()]
    changes = [_difference(values) for values in errors.values()]
    if any(value is not None for value in changes):
        headings = (*headings, "difference")
        table = [(*row, shown(value, "+")) for row, value in zip(table, changes, strict=True)]
    _print_either(headings, table, as_markdown)


def _difference(errors: Sequence[float | None]) -> float | None:
    """Return the second of two known errors minus the first, and None for anything else."""
    match errors:
        case [float(first), float(second)]:
            return second - first
    return None


def _print_either(
    headings: Sequence[str], rows: Sequence[Sequence[str]], as_markdown: bool, wrap: bool = False
) -> None:
    if as_markdown:
        click.echo(markdown_table(headings, rows, headings[:1]))
    else:
        print_table(headings, rows, wrap=wrap)


@click.command()
@click.argument("runs", default="runs", type=PATH)
@click.option("--port", metavar="NUMBER", help="port to listen on [default: 8321, or a free one if that is taken]")
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option("--open/--no-open", "opened", default=None, help="open a browser [default: if there is a display]")
@click.option("--token", metavar="TEXT", help="token that visitors need [default: random if the host is not loopback]")
@click.option("--with-local", is_flag=True, help="show figures without noise even if the host is not loopback")
def dashboard(
    runs: Path, port: str | None, host: str, opened: bool | None, token: str | None, with_local: bool
) -> None:
    """Show the runs in a folder in the browser: live curves, budgets, settings and ledgers.

    RUNS is a run folder, or a folder that contains run folders at any depth. The dashboard writes nothing and contacts
    no other machine. Ctrl-C stops it.

    \b
    Examples:
      taciturn dashboard
      taciturn dashboard runs/sweep --port 9000
      taciturn dashboard --host 0.0.0.0
    """
    from taciturn.dashboard.serve import bind

    server = bind(runs, host, None if port is None else integer(0, 65535)("port", port), token, with_local)
    if server.token:
        note("note: the connection between the browser and this machine is not encrypted")
    say(f"{server.address}  (Ctrl-C stops it)")
    sys.stdout.flush()
    if opened or (opened is None and _has_display()):
        webbrowser.open(server.address)
    server.serve()
    note("stopped")


def _has_display() -> bool:
    display = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return display and sys.stdout.isatty()
