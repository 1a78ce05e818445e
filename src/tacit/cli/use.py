"""`tacit predict` and `tacit evaluate`."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import rich_click as click

from tacit.cli.output import print_json, stderr, stdout
from tacit.errors import InputError
from tacit.results.files import write_text
from tacit.results.folder import RunFolder
from tacit.study.use import evaluate as evaluate_model
from tacit.study.use import predict as predict_with
from tacit.study.use import read_model

WHICH = click.option(
    "--run-index", default=0, show_default=True, help="which run of the folder, where there are several"
)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("table", type=click.Path(path_type=Path))
@WHICH
@click.option("--out", type=click.Path(path_type=Path), help="CSV file to write; default: stdout")
def predict(run: Path, table: Path, run_index: int, out: Path | None) -> None:
    """Predict every row of a TABLE (.csv or .parquet) with a trained model.

    \b
    Examples:
      tacit predict runs/a new_patients.csv --out predictions.csv
    """
    if out is not None and out.exists():
        raise InputError(f"{out} exists: choose another name")
    rows = list(predict_with(read_model(RunFolder.open(run), run_index), table))
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else ["prediction"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if out is None:
        click.echo(text.getvalue(), nl=False)
    else:
        write_text(out, text.getvalue())
        stderr.print(f"{len(rows)} predictions in {out}", soft_wrap=True, highlight=False)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("data")
@WHICH
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def evaluate(run: Path, data: str, run_index: int, as_json: bool) -> None:
    """Assess a trained model on DATA: a labelled table, or a data set's test records.

    \b
    Examples:
      tacit evaluate runs/a mnist14
      tacit evaluate runs/a labelled_patients.csv
    """
    quality = evaluate_model(read_model(RunFolder.open(run), run_index), data)
    if as_json:
        print_json(quality)
        return
    for key, value in quality.items():
        if key == "recall":
            stdout.print(
                "[bold]recall[/]    " + "  ".join(f"{n}: {_share(r)}" for n, r in value.items()), highlight=False
            )
        elif key == "confusion":
            stdout.print("[bold]confusion[/] (rows: true, columns: predicted)")
            stdout.print("\n".join("  " + " ".join(f"{count:6}" for count in row) for row in value), highlight=False)
        elif value is not None:
            stdout.print(
                f"[bold]{key:9}[/] {value:.4g}" if isinstance(value, float) else f"[bold]{key:9}[/] {value}",
                highlight=False,
            )


def _share(recall: float | None) -> str:
    return "none" if recall is None or math.isnan(recall) else f"{100.0 * recall:.1f} %"
