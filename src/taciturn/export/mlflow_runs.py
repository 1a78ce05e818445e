"""Runs kept in MLflow: settings, metrics by round, tags, files."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import tomli_w

from taciturn.errors import InputError
from taciturn.export.coefficients import coefficients_text
from taciturn.export.metric_series import OWNERS, MetricSeries, private_names, read_metrics, said_about
from taciturn.export.target import TARGETS, ExportRequest, Target, missing, needed
from taciturn.reporting.tables import format_setting
from taciturn.runs.folder import RunFolder, public_config
from taciturn.runs.model import read_model
from taciturn.version import VERSION

EXTRA = "mlflow"
IDENTITY, ROUNDS, FINISHED = "taciturn.run", "taciturn.rounds", "taciturn.finished"
BATCH = 1000  # metrics that MLflow takes at once
DEFAULT_STORE = "sqlite:///mlflow.db"  # MLflow's own default; its folders of files are no longer kept up


def write_mlflow(request: ExportRequest) -> list[str]:
    """An MLflow run for each run; one that is there already gets the rounds it lacks, or is refused."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would tell its makers what is done here
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a misspelt address is told at once
    mlflow = needed("mlflow", EXTRA)
    for chatty in ("mlflow", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    uri = request.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", "") or DEFAULT_STORE
    runs = read_metrics(request)
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        name = request.experiment or "taciturn"
        experiment = _experiment(client, name, uri)
        done = [_write(client, experiment, request, run) for run in runs]
    except ModuleNotFoundError as error:
        raise missing(error, EXTRA) from None
    except mlflow.exceptions.MlflowException as error:
        first = str(error.message).splitlines()[0].partition(". ")[0]
        raise InputError(f"MLflow at {uri} refused: {first}") from None
    said = [sentence for sentence, _ in done]
    if not any(new for _, new in done):
        raise InputError(f"nothing is new in {request.folder.path}: {said[0]}, in experiment '{name}'")
    how = f"look at it with 'mlflow ui --backend-store-uri {uri}'" if _is_database(uri) else f"look at it at {uri}"
    return [*said_about(request), *said, f"experiment '{name}' at {uri}", how]


def _experiment(client: Any, name: str, uri: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    if not uri.startswith("sqlite:///"):
        return str(client.create_experiment(name))
    files = Path(uri.removeprefix("sqlite:///")).resolve().parent / "mlartifacts"  # beside the database, not in .
    return str(client.create_experiment(name, artifact_location=(files / name).as_uri()))


def _write(client: Any, experiment: str, request: ExportRequest, run: MetricSeries) -> tuple[str, bool]:
    """What was done with one run, in words, and whether anything had to be."""
    folder, identity, last = request.folder, _identity(request.folder, run), run.rows[-1][0]
    there = client.search_runs([experiment], f"tags.`{IDENTITY}` = '{identity}'")
    if there:
        number, tags = there[0].info.run_id, there[0].data.tags
    else:
        name = f"{folder.path.resolve().name}: {run.label}"
        tags = {IDENTITY: identity, ROUNDS: "0", FINISHED: "false"}
        number = client.create_run(experiment, run_name=name, tags=tags).info.run_id
        client.log_batch(number, params=_params(folder, run))
    done = int(tags[ROUNDS])
    if done >= last and (tags[FINISHED] == "true" or not folder.finished):
        return f"{run.label}: there already as MLflow run {number}", False
    for batch in _batches(folder, run, done):
        client.log_batch(number, metrics=batch)
    _add_files(client, number, folder, run)
    client.log_batch(number, tags=_tags(request, run, last))
    client.set_terminated(number, "FINISHED" if folder.finished else "RUNNING")
    return f"{run.label}: rounds {done + 1} to {last} in MLflow run {number}", True


def _identity(folder: RunFolder, run: MetricSeries) -> str:
    """A run by what it began with and its first figures, wherever its folder lies."""
    with folder.metrics.open(encoding="utf-8") as file:
        first = next(line for line in file if f'"run": {run.number},' in line)
    return hashlib.sha256((folder.start.read_text(encoding="utf-8") + first).encode()).hexdigest()[:32]


def _batches(folder: RunFolder, run: MetricSeries, done: int) -> Iterator[list[Any]]:
    metric = needed("mlflow.entities", EXTRA).Metric
    began = int(1000 * folder.start.stat().st_mtime)  # the same at every export, so that nothing is kept twice
    all_of = (
        metric(name, value, began, step) for step, values in run.rows if step > done for name, value in values.items()
    )
    while batch := list(islice(all_of, BATCH)):
        yield batch


def _params(folder: RunFolder, run: MetricSeries) -> list[Any]:
    """The settings; of paths only the last part."""
    param = needed("mlflow.entities", EXTRA).Param
    settings = public_config(folder.read_config()) | {"algorithm": run.algorithm, **run.seeded}
    return [param(name, format_setting(value)) for name, value in settings.items() if value not in ("", [])]


def _tags(request: ExportRequest, run: MetricSeries, last: int) -> list[Any]:
    tag = needed("mlflow.entities", EXTRA).RunTag
    settings = request.folder.read_config()
    tags = {
        ROUNDS: last,
        FINISHED: str(request.folder.finished).lower(),
        "taciturn.version": VERSION,
        "taciturn.data": Path(settings["data"]).name,
        "taciturn.mode": settings["mode"],
        "taciturn.algorithm": run.algorithm,
        "taciturn.total_epsilon" if settings["mode"] == "certified" else "taciturn.epsilon": f"{run.epsilon:g}",
        "taciturn.delta": f"{settings['delta']:g}",
        **{f"taciturn.{name}": seed for name, seed in run.seeded.items()},
    }
    if request.with_local and private_names(request):
        tags["taciturn.local_only"] = f"{OWNERS} holds figures for the owner of the records alone"
    return [tag(name, str(value)) for name, value in tags.items()]


def _add_files(client: Any, number: str, folder: RunFolder, run: MetricSeries) -> None:
    """What of the run folder may be shared, and the model as a table."""
    client.log_text(number, tomli_w.dumps(public_config(folder.read_config())), folder.config.name)
    for path in (folder.ledger, folder.report):
        if path.is_file():
            client.log_artifact(number, str(path))
    if folder.finished:
        client.log_text(number, coefficients_text(read_model(folder, run.number)), "coefficients.csv")


def _is_database(uri: str) -> bool:
    return not uri.startswith("http")


TARGETS.register("mlflow")(
    Target(
        "settings, metrics and files, in MLflow", write_mlflow, frozenset({"with_local", "tracking_uri", "experiment"})
    )
)
