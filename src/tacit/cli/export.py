"""`tacit export`."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from tacit.cli.output import stderr, stdout
from tacit.errors import InputError
from tacit.export import TARGETS, Request
from tacit.results.folder import RunFolder


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--to", "target", required=True, metavar="csv|onnx|mlflow|tensorboard", help="what to export for")
@click.option("--out", type=click.Path(path_type=Path), help="file or folder to write; default: in the run folder")
@click.option(
    "--run-index", type=int, help="which run of the folder; default: all of them for metrics, the first for a model"
)
@click.option(
    "--with-local",
    is_flag=True,
    help="take along metrics computed from private records without noise: the owner's only",
)
@click.option(
    "--tracking-uri", default="", help="mlflow: where; default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db"
)
@click.option("--experiment", default="", help="mlflow: the experiment's name; default: tacit")
def export(
    run: Path,
    target: str,
    out: Path | None,
    run_index: int | None,
    with_local: bool,
    tracking_uri: str,
    experiment: str,
) -> None:
    """Hand a run to another program: its model, or its metrics by round.

    \b
    csv          coefficients, in the table's own units too: a model one can apply by hand
    onnx         the model with its encoding, for any ONNX runtime (pip install 'tacit[onnx]')
    mlflow       settings, metrics, tags and files (pip install 'tacit[mlflow]')
    tensorboard  metrics as event files (pip install 'tacit[tensorboard]')

    \b
    Examples:
      tacit export runs/a --to csv
      tacit export runs/a --to onnx --out model.onnx --run-index 2
      tacit export runs/a --to mlflow --tracking-uri http://localhost:5000 --experiment clinics
      tacit export runs/a --to tensorboard --out board
    """
    chosen = TARGETS[target]
    given = {"out": out, "with_local": with_local, "tracking_uri": tracking_uri, "experiment": experiment}
    for name, value in given.items():
        if value and name not in chosen.takes:
            raise InputError(f"{name.replace('_', '-')} means nothing to an export to {target}: leave it out")
    request = Request(RunFolder.open(run), out, run_index, with_local, tracking_uri, experiment)
    with stderr.status(f"exporting {run} to {target}"):
        said = chosen.write(request)
    for line in said:
        stdout.print(line, soft_wrap=True, highlight=False)
