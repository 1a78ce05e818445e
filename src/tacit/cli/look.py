"""`tacit show`, `compare`, `plot` and `report`: views of run folders."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from tacit import api
from tacit.cli.output import print_json, print_result, print_table, stdout
from tacit.errors import InputError
from tacit.results.folder import RunFolder
from tacit.views.compare import differences, errors_side_by_side, predicts_numbers
from tacit.views.curves import run_label
from tacit.views.report import write_report
from tacit.views.tables import format_error, format_setting, format_share

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
        return [
            (name, run_label(e["algorithm"], e["epsilon"]) + f", seed {e['seed']}", format_error(e), str(e["rounds"]))
            for e in folder.read_summary()["runs"]
        ]
    rows = folder.read_metrics()
    state = "running" if folder.busy else "not finished (tacit resume)"
    return [(name, state, "", str(rows[-1]["round"]) if rows else "0")]


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def compare(first: Path, second: Path, as_json: bool) -> None:
    """Two runs side by side: which settings differ, and how the errors do.

    \b
    Examples:
      tacit compare runs/a runs/b
    """
    a, b = RunFolder.open(first), RunFolder.open(second)
    settings, errors = differences(a, b), errors_side_by_side(a, b)
    if as_json:
        print_json(
            {"settings": {key: [x, y] for key, x, y in settings}, "test_error": {k: [x, y] for k, x, y in errors}}
        )
        return
    names = (a.path.name, b.path.name)
    if settings:
        rows = [(key.replace("_", "-"), format_setting(x), format_setting(y)) for key, x, y in settings]
        print_table(("setting", *names), rows)
    else:
        stdout.print("the settings are the same")
    stdout.print()
    regression = predicts_numbers([a, b])

    def shown(value: float | None, sign: str = "") -> str:
        return "" if value is None else format_share(value, regression, sign)

    differ = [y - x if x is not None and y is not None else None for _, x, y in errors]
    table = [(key, shown(x), shown(y), shown(d, "+")) for (key, x, y), d in zip(errors, differ, strict=True)]
    print_table(("test error, mean over seeds", *names, "difference"), table)


@click.command()
@RUNS
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="the picture (.png, .svg, .pdf); default: curves.png in the run folder or its local-only, else in .",
)
def plot(runs: tuple[Path, ...], out: Path | None) -> None:
    """Draw test error, objective, residual and noise against rounds.

    \b
    Examples:
      tacit plot runs/a
      tacit plot runs/a runs/b --out both.svg
    """
    folders = [RunFolder.open(path) for path in runs]
    path = out or _picture_place(folders)
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to put {path.name} into")
    from tacit.views.plots import figure, save  # noqa: PLC0415  matplotlib takes its time, and most commands draw nothing

    save(figure(folders), path)
    stdout.print(str(path), soft_wrap=True, highlight=False)


def _picture_place(folders: list[RunFolder]) -> Path:
    """In the run folder; with figures that are local-only, in the folder for those."""
    if len(folders) > 1:
        return Path("curves.png")
    return (folders[0].local if folders[0].local.is_dir() else folders[0].path) / "curves.png"


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
