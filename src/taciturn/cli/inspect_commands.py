"""`taciturn show`, `plot`, `report`, `compare` and `dashboard`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from taciturn import api
from taciturn.cli.output import print_json, print_result, print_table, stderr, stdout
from taciturn.cli.progress_display import Watcher
from taciturn.core.storage import make_folder, write_text
from taciturn.data import source_for
from taciturn.data.feature_maps import keeps_positions
from taciturn.errors import InputError
from taciturn.progress import subscribe
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
from taciturn.reporting.tables import format_error, format_setting, format_share, markdown_table
from taciturn.runs.folder import LOCAL_ONLY, RunFolder
from taciturn.settings.rules import integer
from taciturn.training.upload_replay import ReplayedUploads


def draw_sent(folder: RunFolder, run: int, agent: str | None, t: int, out: Path | None) -> Path:
    """Make the run again and draw the upload; the picture lies in local-only unless the user names another place."""
    from taciturn.reporting.figures.style import (
        check_place,
        save,
    )
    from taciturn.reporting.figures.summary_figures import (
        Weights,
        sent_figure,
    )

    if out is not None:
        check_place(out)
    watcher = Watcher(stderr)
    try:
        with subscribe(watcher.told):
            found = api.sent(folder.path, run=run, agent=agent, round=t, watch=watcher)
    finally:
        watcher.close()
    config = folder.read_config()
    image = source_for(config["data"]).image if keeps_positions(config["features"]) else None
    weights = Weights(found.clean, found.noisy, found.model, found.features, found.classes)
    title = f"What {found.agent} sends in round {found.round} of {found.last}"
    path = out or own_place(folder) / "sent.png"
    save(sent_figure(weights, image, title, caption(found)), path, private=True)
    return path


def caption(found: ReplayedUploads) -> str:
    """What the picture is, what it is not, and for whom."""
    before = "; the rounds before had theirs" if found.round > 1 else ""
    silent = " This run has no noise." if (found.clean == found.noisy).all() else ""
    return (
        "Computed without noise: for the owner of the records alone. "
        f"{full_label(found.label)}. Without noise means without that of this round{before}.{silent} " + _checked(found)
    )


def _checked(found: ReplayedUploads) -> str:
    if found.differs is None:
        return f"The run has not ended: w is the model of round {found.last}, made again."
    if found.differs == 0.0:
        return f"All {found.last} rounds were made again, and w is the run's model to the byte."
    return f"All {found.last} rounds were made again; w differs from the run's model by at most {found.differs:.1g}."


def own_place(folder: RunFolder) -> Path:
    """The folder for the owner of the records alone; a run in mode paper gets one here."""
    if not folder.local.is_dir():
        make_folder(folder.local)
        write_text(folder.local / "README.txt", LOCAL_ONLY)
    return folder.local


RUNS = click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))


@click.command()
@RUNS
@click.option("--json", "as_json", is_flag=True, help="print one JSON object for each run, a line each")
def show(runs: tuple[Path, ...], as_json: bool) -> None:
    """What runs gave: one table for a run, with means over seeds; every single run for several folders.

    \b
    Examples:
      taciturn show runs/20260101-120000-mnist14-objpm
      taciturn show runs/*
    """
    opened = [RunFolder.open(path) for path in runs]
    if as_json:
        for folder in opened:
            print_json(api.Run(folder).summary if folder.finished else _unfinished(folder))
    elif len(opened) == 1 and opened[0].finished:
        print_result(api.Run(opened[0]))
    else:
        print_table(
            ("folder", "run", "test error", "round"), [row for folder in opened for row in _lines(folder)], left=2
        )


def _unfinished(folder: RunFolder) -> dict[str, object]:
    return {"run": str(folder.path), "finished": False, "rows": len(folder.read_metrics())}


def _lines(folder: RunFolder) -> list[tuple[str, str, str, str]]:
    name = folder.path.name
    if folder.finished:
        return [(name, full_label(e), format_error(e), str(e["rounds"])) for e in folder.read_summary()["runs"]]
    rows = folder.read_metrics()
    state = "running" if folder.busy else "not finished (taciturn resume)"
    return [(name, state, "", str(rows[-1]["round"]) if rows else "0")]


@click.command()
@RUNS
@click.option(
    "--what",
    type=click.Choice(["curves", "sent"]),
    default="curves",
    show_default=True,
    help="curves against rounds, or what an agent sends in one round: weights with and without noise",
)
@click.option("--run-index", type=int, help="sent: which run of the folder; default: 0")
@click.option("--agent", help="sent: who sends it; default: the first agent")
@click.option("--round", "t", type=int, help="sent: in which round; default: 1")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="the picture (.png, .svg, .pdf); default: curves.png in the run folder or its local-only, else in .; sent.png",
)
def plot(
    runs: tuple[Path, ...], what: str, run_index: int | None, agent: str | None, t: int | None, out: Path | None
) -> None:
    """Draw test error, objective, residual and noise against rounds, or what an agent sends.

    What an agent would send without noise is not in a run folder: the run is made again from its seeds and the
    records, which takes at most as long as it took. The picture is for the owner of the records alone: local-only.

    \b
    Examples:
      taciturn plot runs/a
      taciturn plot runs/a runs/b --out both.svg
      taciturn plot runs/a --what sent
      taciturn plot runs/a --what sent --agent north --round 20
    """
    folders = [RunFolder.open(path) for path in runs]
    if what == "curves":
        if (run_index, agent, t) != (None, None, None):
            raise InputError("--run-index, --agent and --round choose what an agent sends: they need --what sent")
        path = _curves(folders, out)
    else:
        path = _sent(folders, run_index or 0, agent, 1 if t is None else t, out)
    stdout.print(str(path), soft_wrap=True, highlight=False)


def _curves(folders: list[RunFolder], out: Path | None) -> Path:
    path = out or _picture_place(folders)
    from taciturn.reporting.figures.run_figure import (
        figure,
        owners_alone,
    )
    from taciturn.reporting.figures.style import (
        check_place,
        save,
    )

    check_place(path)
    own = owners_alone(folders)
    save(figure(folders), path, private=bool(own))
    if out is not None and own:
        words = (
            f"note: {' and '.join(own)} were computed without noise: the picture is for the owner of the records alone"
        )
        stderr.print(words, soft_wrap=True, highlight=False)
    return path


def _sent(folders: list[RunFolder], run_index: int, agent: str | None, t: int, out: Path | None) -> Path:
    if len(folders) > 1:
        raise InputError(f"what an agent sends is drawn of one run at a time, but {len(folders)} folders are named")
    return draw_sent(folders[0], run_index, agent, t, out)


def _picture_place(folders: list[RunFolder]) -> Path:
    """In the run folder; with figures that are local-only, in the folder for those."""
    if len(folders) > 1:
        return Path("curves.png")
    return (folders[0].local if folders[0].has_local else folders[0].path) / "curves.png"


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
def report(run: Path) -> None:
    """Write report.html again from the run folder.

    \b
    Examples:
      taciturn report runs/a
    """
    folder = RunFolder.open(run)
    write_report(folder)
    stdout.print(str(folder.report), soft_wrap=True, highlight=False)


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
    of two is more than chance, 'taciturn sweep' says. A note says where runs were tested on different records.

    \b
    Examples:
      taciturn compare runs/a
      taciturn compare runs/a --markdown --out methods.png
      taciturn compare runs/a runs/b
      taciturn compare runs/a runs/b runs/c --ranked
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
        "ranking": [row.to_json() for row in rows],
        "other_test_records": other_test_records(folders),
        "local_only": any(row.own for row in rows),
        "picture": None if out is None else str(out),
    }


def _draw(rows: Sequence[Ranked], regression: bool, out: Path) -> None:
    from taciturn.reporting.figures.style import save
    from taciturn.reporting.figures.summary_figures import ranking_figure

    save(ranking_figure(rows, regression), out, private=any(row.own for row in rows))


def _print_ranking(rows: Sequence[Ranked], regression: bool, as_markdown: bool) -> None:
    table = [cells(row, regression) for row in rows]
    if as_markdown:
        click.echo(markdown_table(HEADINGS, table, WORDS))
        return
    shown = [HEADINGS.index(name) for name in TERMINAL]
    print_table(TERMINAL, [[line[i] for i in shown] for line in table])
    seeds = seeds_range(rows)
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


@click.command()
@click.argument("runs", default="runs", type=click.Path(path_type=Path))
@click.option("--port", metavar="NUMBER", help="where to listen [default: 8321, or a free one where that is taken]")
@click.option("--host", default="127.0.0.1", show_default=True, help="the address to listen at")
@click.option("--open/--no-open", "opened", default=None, help="open a browser [default: where there is a display]")
@click.option(
    "--token", metavar="TEXT", help="ask visitors for this [default: a random one if the host is not loopback]"
)
@click.option(
    "--with-local", is_flag=True, help="show what was computed without noise on a host that is not loopback too"
)
def dashboard(
    runs: Path, port: str | None, host: str, opened: bool | None, token: str | None, with_local: bool
) -> None:
    """Show the runs in a folder on a page in the browser: curves while they grow, budgets, settings, ledgers.

    RUNS is a folder that holds run folders at any depth, or a run folder. Nothing is written there, and nothing is
    asked of any other machine. Ctrl-C ends it.

    \b
    Examples:
      taciturn dashboard
      taciturn dashboard runs/sweep --port 9000
      taciturn dashboard --host 0.0.0.0
    """
    from taciturn.dashboard.serve import bind

    made = bind(runs, host, None if port is None else integer(0, 65535)("port", port), token, with_local)
    if made.token:
        stderr.print("note: what the browser and this machine tell each other is not encrypted", soft_wrap=True)
    stdout.print(f"{made.address}  (Ctrl-C ends it)", soft_wrap=True, highlight=False)
    sys.stdout.flush()
    if opened or (opened is None and _has_display()):
        webbrowser.open(made.address)
    made.serve()
    stderr.print("stopped")


def _has_display() -> bool:
    """Whether somebody sits at this machine."""
    shown = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return shown and sys.stdout.isatty()
