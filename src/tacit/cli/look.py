"""`tacit show`, `plot` and `report`: views of run folders."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from tacit import api
from tacit.cli.output import print_json, print_result, print_table, stderr, stdout
from tacit.cli.sent import draw_sent
from tacit.errors import InputError
from tacit.results.folder import RunFolder
from tacit.views.curves import full_label
from tacit.views.report import write_report
from tacit.views.tables import format_error

RUNS = click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))


@click.command()
@RUNS
@click.option("--json", "as_json", is_flag=True, help="print one JSON object for each run, a line each")
def show(runs: tuple[Path, ...], as_json: bool) -> None:
    """What runs gave: one table for a run, with means over seeds; every single run for several folders.

    \b
    Examples:
      tacit show runs/20260101-120000-mnist14-objpm
      tacit show runs/*
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
    state = "running" if folder.busy else "not finished (tacit resume)"
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
      tacit plot runs/a
      tacit plot runs/a runs/b --out both.svg
      tacit plot runs/a --what sent
      tacit plot runs/a --what sent --agent north --round 20
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
    from tacit.views.plots import figure, owners_alone  # noqa: PLC0415  matplotlib takes its time, and most commands draw nothing
    from tacit.views.style import check_place, save  # noqa: PLC0415

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
      tacit report runs/a
    """
    folder = RunFolder.open(run)
    write_report(folder)
    stdout.print(str(folder.report), soft_wrap=True, highlight=False)
