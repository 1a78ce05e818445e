"""`taciturn predict`, `evaluate` and `export`."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import rich_click as click

from taciturn.cli.output import JSON, PATH, check_new, note, print_fields, print_json, print_table, say, stderr
from taciturn.core.storage import write_text
from taciturn.errors import InputError
from taciturn.export import TARGETS, ExportRequest
from taciturn.runs.folder import RunFolder
from taciturn.runs.model import Model, read_model
from taciturn.runs.model import evaluate as evaluate_model
from taciturn.runs.model import predict as predict_rows

RUN_INDEX = click.option("--run-index", default=0, show_default=True, help="which run of the folder, if it has several")


@click.command()
@click.argument("run", type=PATH)
@click.argument("table", type=PATH)
@RUN_INDEX
@click.option("--keep", multiple=True, metavar="COLUMN", help="a column of the table to copy beside the predictions")
@click.option("--out", type=PATH, help="CSV file to write; default: stdout")
def predict(run: Path, table: Path, run_index: int, keep: tuple[str, ...], out: Path | None) -> None:
    """Predict every row of a TABLE (.csv or .parquet) with the model of RUN, in the table's order.

    \b
    Examples:
      taciturn predict runs/a new_patients.csv --keep patient --out predictions.csv
    """
    check_new(out)
    rows = list(predict_rows(_open_model(run, run_index), table, keep))
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if out is None:
        click.echo(text.getvalue(), nl=False)
    else:
        write_text(out, text.getvalue())
        note(f"{len(rows):,} predictions in {out}")


@click.command()
@click.argument("run", type=PATH)
@click.argument("data")
@RUN_INDEX
@JSON
def evaluate(run: Path, data: str, run_index: int, as_json: bool) -> None:
    """Evaluate the model of RUN on DATA: all rows of a labelled table, or a data set's test records.

    \b
    Examples:
      taciturn evaluate runs/a mnist14
      taciturn evaluate runs/a labelled_patients.csv
    """
    quality = evaluate_model(_open_model(run, run_index), data)
    if as_json:
        print_json(quality)
        return
    formats = {"error": "{:.2%}", "records": "{:,}"}
    figures = {name: value for name, value in quality.items() if name not in {"recall", "confusion"}}
    shown = {name: formats.get(name, "{:.6g}").format(v) for name, v in figures.items() if v is not None}
    print_fields({name: text.replace("%", " %") for name, text in shown.items()}, 9)
    if "confusion" in quality:
        say("\nrows: the true class and the share of it that was found; columns: the predicted class")
        rows = [
            (name, _format_recall(recall), *map(str, counts))
            for (name, recall), counts in zip(quality["recall"].items(), quality["confusion"], strict=True)
        ]
        print_table(("true", "found", *quality["recall"]), rows)


def _open_model(run: Path, index: int) -> Model:
    """Return the model, and print which one it is if the folder has several."""
    folder = RunFolder.open(run)
    model = read_model(folder, index)
    count = len(folder.read_summary()["runs"])
    if count > 1:
        note(f"using run {index} of {count}: {model.label} (--run-index chooses another)")
    return model


def _format_recall(recall: float | None) -> str:
    return "none" if recall is None or math.isnan(recall) else f"{100.0 * recall:.1f} %"


@click.command()
@click.argument("run", type=PATH)
@click.option("--to", "target", required=True, metavar="csv|onnx|mlflow|tensorboard", help="what to export to")
@click.option("--out", type=PATH, help="file or folder to write; default: in the run folder")
@click.option(
    "--run-index", type=int, help="which run of the folder; default: all of them for metrics, the first for a model"
)
@click.option(
    "--with-local",
    is_flag=True,
    help="include metrics computed from private records without noise, for their owner only",
)
@click.option("--tracking-uri", default="", help="mlflow: default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db")
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
    """Export a run's model, or its metrics by round, for another program.

    \b
    csv          coefficients, also in the table's units: a model that can be applied by hand
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
            raise InputError(f"--{name.replace('_', '-')} has no effect on an export to {target}; remove it")
    request = ExportRequest(RunFolder.open(run), out, run_index, with_local, tracking_uri, experiment)
    with stderr.status(f"exporting {run} to {target}"):
        lines = chosen.write(request)
    for line in lines:
        say(line)
