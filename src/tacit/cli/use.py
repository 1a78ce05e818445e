"""`tacit predict` and `tacit evaluate`."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import rich_click as click

from tacit.cli.output import print_json, print_table, stderr, stdout
from tacit.errors import InputError
from tacit.results.files import write_text
from tacit.results.folder import RunFolder
from tacit.study.use import Model, read_model
from tacit.study.use import evaluate as evaluate_model
from tacit.study.use import predict as predict_with

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
      tacit predict runs/a new_patients.csv --keep patient --out predictions.csv
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
      tacit evaluate runs/a mnist14
      tacit evaluate runs/a labelled_patients.csv
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
