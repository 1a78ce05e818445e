"""`taciturn predict`, `evaluate` and `export`."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import rich_click as click

from taciturn.cli.output import print_json, print_table, stderr, stdout
from taciturn.core.storage import write_text
from taciturn.errors import InputError
from taciturn.export import TARGETS, ExportRequest
from taciturn.runs.folder import RunFolder
from taciturn.runs.model import Model, read_model
from taciturn.runs.model import evaluate as evaluate_model
from taciturn.runs.model import predict as predict_with

WHICH = click.option(
    "--run-index", default=0, show_default=True, help="which run of the folder, where there are several"
)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("table", type=click.Path(path_type=Path))
@WHICH
@click.option("--keep", multiple=True, metavar="COLUMN", help="a column of the table to copy beside the predictions")
@click.option("--out", type=click.Path(path_type=Path), help="CSV file to write; default: stdout")
def predict(run: Path, table: Path, run_index: int, keep: tuple[str, ...], out: Path | None) -> None:
    """Predict every row of a TABLE (.csv or .parquet) with the model of RUN, in the table's order.

    \b
    Examples:
      taciturn predict runs/a new_patients.csv --keep patient --out predictions.csv
    """
    if out is not None and out.exists():
        raise InputError(f"{out} exists: choose another name")
    rows = list(predict_with(_model(run, run_index), table, keep))
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if out is None:
        click.echo(text.getvalue(), nl=False)
    else:
        write_text(out, text.getvalue())
        stderr.print(f"{len(rows):,} predictions in {out}", soft_wrap=True, highlight=False)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("data")
@WHICH
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def evaluate(run: Path, data: str, run_index: int, as_json: bool) -> None:
    """Assess the model of RUN on DATA: a labelled table (all of it), or a data set's test records.

    \b
    Examples:
      taciturn evaluate runs/a mnist14
      taciturn evaluate runs/a labelled_patients.csv
    """
    quality = evaluate_model(_model(run, run_index), data)
    if as_json:
        print_json(quality)
        return
    for key, value in quality.items():
        if value is not None and key not in {"recall", "confusion"}:
            shown = f"{100.0 * value:.2f} %" if key == "error" else f"{value:,}" if key == "records" else f"{value:.6g}"
            stdout.print(f"[bold]{key:9}[/] {shown}", highlight=False)
    if "confusion" in quality:
        stdout.print(
            "\nrows: the true class and how much of it was found; columns: what was predicted", highlight=False
        )
        rows = [
            (name, _share(share), *map(str, counts))
            for (name, share), counts in zip(quality["recall"].items(), quality["confusion"], strict=True)
        ]
        print_table(("true", "found", *quality["recall"]), rows)


def _model(run: Path, index: int) -> Model:
    """The model, with a word on which one it is where the folder has several."""
    folder = RunFolder.open(run)
    model = read_model(folder, index)
    count = len(folder.read_summary()["runs"])
    if count > 1:
        words = f"using run {index} of {count}: {model.label} (--run-index chooses)"
        stderr.print(words, soft_wrap=True, highlight=False)
    return model


def _share(recall: float | None) -> str:
    return "none" if recall is None or math.isnan(recall) else f"{100.0 * recall:.1f} %"


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
@click.option("--experiment", default="", help="mlflow: the experiment's name; default: taciturn")
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
    onnx         the model with its encoding, for any ONNX runtime (pip install 'taciturn[onnx]')
    mlflow       settings, metrics, tags and files (pip install 'taciturn[mlflow]')
    tensorboard  metrics as event files (pip install 'taciturn[tensorboard]')

    \b
    Examples:
      taciturn export runs/a --to csv
      taciturn export runs/a --to onnx --out model.onnx --run-index 2
      taciturn export runs/a --to mlflow --tracking-uri http://localhost:5000 --experiment clinics
      taciturn export runs/a --to tensorboard --out board
    """
    chosen = TARGETS[target]
    given = {"out": out, "with_local": with_local, "tracking_uri": tracking_uri, "experiment": experiment}
    for name, value in given.items():
        if value and name not in chosen.takes:
            raise InputError(f"{name.replace('_', '-')} means nothing to an export to {target}: leave it out")
    request = ExportRequest(RunFolder.open(run), out, run_index, with_local, tracking_uri, experiment)
    with stderr.status(f"exporting {run} to {target}"):
        said = chosen.write(request)
    for line in said:
        stdout.print(line, soft_wrap=True, highlight=False)
