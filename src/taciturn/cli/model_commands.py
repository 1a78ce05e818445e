"""`taciturn predict`, `evaluate` and `export`."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from taciturn import api
from taciturn.cli.output import (
    JSON,
    PATH,
    check_figure,
    check_new,
    note,
    print_json,
    print_table,
    save_figure,
    say,
    stderr,
)
from taciturn.core.storage import write_text
from taciturn.data import SOURCES
from taciturn.errors import InputError
from taciturn.export import TARGETS, ExportRequest, requested_model
from taciturn.reporting.quality_tables import baseline_words, shown_tables
from taciturn.reporting.tables import csv_text
from taciturn.runs.folder import RunFolder
from taciturn.runs.model import Model
from taciturn.runs.model import predict as predict_rows
from taciturn.runs.quality import ClassificationQuality, Quality

RUN_INDEX = click.option("--run-index", default=0, show_default=True, help="which run of the folder, if it has several")


@click.command()
@click.argument("run", type=PATH)
@click.argument("table", type=PATH)
@RUN_INDEX
@click.option("--keep", multiple=True, metavar="COLUMN", help="a column of the table to copy to the output")
@click.option("--out", type=PATH, help="CSV file to write; default: stdout")
def predict(run: Path, table: Path, run_index: int, keep: tuple[str, ...], out: Path | None) -> None:
    """Predict every row of a TABLE (.csv or .parquet) with the model of RUN, in the table's order.

    \b
    Examples:
      taciturn predict runs/a new_patients.csv --keep patient --out predictions.csv
    """
    check_new(out)
    rows = list(predict_rows(_open_model(run, run_index), table, keep))
    if out is None:
        click.echo(csv_text(rows), nl=False)
    else:
        write_text(out, csv_text(rows))
        note(f"{len(rows):,} predictions in {out}")


@click.command()
@click.argument("run", type=PATH)
@click.argument("data", required=False)
@RUN_INDEX
@click.option("--threshold", type=float, help="least probability at which the positive class is predicted")
@click.option("--positive", metavar="CLASS", help="the positive class of two; default: the second by name")
@click.option("--out", type=PATH, help="draw the reliability diagram (.png, .svg, .pdf)")
@JSON
def evaluate(
    run: Path,
    data: str | None,
    run_index: int,
    threshold: float | None,
    positive: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Evaluate the model of RUN on labelled records, with 95 % intervals and a baseline.

    DATA is a table (all rows are used) or a data set (its test records are used). Without DATA the model is evaluated
    on the run's own test records: those that --test-share held out, or the table given with --test.

    Shares have Wilson's intervals, AUROC Newcombe's, means Student's t. They assume independent rows. The results are
    computed without noise: if the records are private, they are for their owner only.

    \b
    Examples:
      taciturn evaluate runs/a
      taciturn evaluate runs/a mnist14
      taciturn evaluate runs/a labelled_patients.csv --threshold 0.3 --out reliability.png
    """
    check_figure(out)
    model = _open_model(run, run_index)
    opened = api.open_run(run)
    quality = opened.evaluate(data, run_index=run_index, threshold=threshold, positive=positive)
    if out is not None:
        _draw_reliability(quality, out)
    if data is None and opened.runs[run_index].private_test:
        note("note: computed from private records without noise: for the owner of the records only")
    elif data and data not in SOURCES and Path(data).resolve() == Path(model.settings.data).resolve():
        alone = "; without DATA, only the held-out rows are used" if model.settings.test_share else ""
        note(f"note: the model was trained on rows of {data}{alone}")
    if as_json:
        print_json(quality)
        return
    for i, (words, table) in enumerate(shown_tables(quality)):
        say(f"{chr(10) * (i > 0)}{words}")
        print_table(table.headings, table.rows)
        if i == 0:
            say(baseline_words(quality))
    if out is not None:
        say(f"\nfigure  {out}")


def _draw_reliability(quality: Quality, out: Path) -> None:
    from taciturn.reporting.figures.calibration_figure import reliability_figure

    if not isinstance(quality, ClassificationQuality):
        raise InputError("the label is a number: a reliability diagram needs classes; remove --out")
    save_figure(reliability_figure({"": quality}), out, private=True)


def _open_model(run: Path, index: int) -> Model:
    """Return the model, and print which one it is if the folder has several."""
    model, messages = requested_model(ExportRequest(RunFolder.open(run), run=index))
    for message in messages:
        note(message)
    return model


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
      taciturn export runs/a --to mlflow --tracking-uri http://localhost:5000 --experiment heart
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
