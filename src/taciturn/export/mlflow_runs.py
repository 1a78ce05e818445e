"""Runs in MLflow: settings, metrics by round, tags and files."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import tomli_w

from taciturn.errors import InputError
from taciturn.export.coefficients import coefficients_text
from taciturn.export.metric_series import LOCAL_PREFIX, MetricSeries, local_names, local_note, read_metrics
from taciturn.export.target import TARGETS, ExportRequest, ExportTarget, import_optional, missing_package
from taciturn.reporting.tables import format_setting
from taciturn.runs.folder import RunFolder, public_config
from taciturn.runs.model import read_model
from taciturn.version import VERSION

EXTRA = "mlflow"
IDENTITY, ROUNDS, FINISHED = "taciturn.run", "taciturn.rounds", "taciturn.finished"
BATCH = 1000  # metrics that MLflow accepts at once
DEFAULT_STORE = "sqlite:///mlflow.db"  # MLflow's own default; its store of plain files is deprecated


def write_mlflow(request: ExportRequest) -> list[str]:
    """Create an MLflow run per run and return messages; an existing one gets the rounds that it lacks.

    Raises
    ------
    InputError
        If MLflow has everything already, refuses, or is not installed.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # otherwise it reports usage to its makers
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # report a misspelt address soon
    mlflow = import_optional("mlflow", EXTRA)
    for chatty in ("mlflow", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    uri = request.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", "") or DEFAULT_STORE
    name, runs = request.experiment or "taciturn", read_metrics(request)
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        experiment = _experiment_id(client, name, uri)
        done = [_write_run(client, experiment, request, run) for run in runs]
    except ModuleNotFoundError as error:
        raise missing_package(error, EXTRA) from error
    except mlflow.exceptions.MlflowException as error:
        first = str(error.message).splitlines()[0].partition(". ")[0]
        raise InputError(f"MLflow at {uri} refused: {first}") from error
    messages = [message for message, _ in done]
    if not any(new for _, new in done):
        raise InputError(f"nothing is new in {request.folder.path}: {messages[0]}, in experiment '{name}'")
    how = f"open it at {uri}" if uri.startswith("http") else f"open it with 'mlflow ui --backend-store-uri {uri}'"
    return [*local_note(request), *messages, f"experiment '{name}' at {uri}", how]


def _experiment_id(client: Any, name: str, uri: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    if not uri.startswith("sqlite:///"):
        return str(client.create_experiment(name))
    files = Path(uri.removeprefix("sqlite:///")).resolve().parent / "mlartifacts"  # beside the database, not in .
    return str(client.create_experiment(name, artifact_location=(files / name).as_uri()))


def _write_run(client: Any, experiment: str, request: ExportRequest, run: MetricSeries) -> tuple[str, bool]:
    """Write what MLflow lacks of one run; return a message and whether anything was written."""
    folder, identity, last = request.folder, _identity(request.folder, run), run.rows[-1][0]
    known = client.search_runs([experiment], f"tags.`{IDENTITY}` = '{identity}'")
    if known:
        run_id, tags = known[0].info.run_id, known[0].data.tags
    else:
        name = f"{folder.path.resolve().name}: {run.label}"
        tags = {IDENTITY: identity, ROUNDS: "0", FINISHED: "false"}
        run_id = client.create_run(experiment, run_name=name, tags=tags).info.run_id
        client.log_batch(run_id, params=_params(folder, run))
    done = int(tags[ROUNDS])
    if done >= last and (tags[FINISHED] == "true" or not folder.finished):
        return f"{run.label}: there already as MLflow run {run_id}", False
    for batch in _metric_batches(folder, run, done):
        client.log_batch(run_id, metrics=batch)
    _add_files(client, run_id, folder, run)
    client.log_batch(run_id, tags=_tags(request, run, last))
    client.set_terminated(run_id, "FINISHED" if folder.finished else "RUNNING")
    return f"{run.label}: rounds {done + 1} to {last} in MLflow run {run_id}", True


def _identity(folder: RunFolder, run: MetricSeries) -> str:
    """Return a hash of a run's start and first metrics, which does not depend on where its folder is."""
    with folder.metrics.open(encoding="utf-8") as file:
        first = next(line for line in file if json.loads(line)["run"] == run.number)
    return hashlib.sha256((folder.start.read_text(encoding="utf-8") + first).encode()).hexdigest()[:32]


def _metric_batches(folder: RunFolder, run: MetricSeries, done: int) -> Iterator[list[Any]]:
    metric = import_optional("mlflow.entities", EXTRA).Metric
    time = int(1000 * folder.start.stat().st_mtime)  # the same in every export, so that MLflow stores no value twice
    metrics = (
        metric(name, value, time, step) for step, values in run.rows if step > done for name, value in values.items()
    )
    while batch := list(islice(metrics, BATCH)):
        yield batch


def _params(folder: RunFolder, run: MetricSeries) -> list[Any]:
    """Return the settings, without the folders of paths."""
    param = import_optional("mlflow.entities", EXTRA).Param
    settings = public_config(folder.read_config()) | {"algorithm": run.algorithm, **run.seed_setting}
    return [param(name, format_setting(value)) for name, value in settings.items() if value not in ("", [])]


def _tags(request: ExportRequest, run: MetricSeries, last: int) -> list[Any]:
    tag = import_optional("mlflow.entities", EXTRA).RunTag
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
        **{f"taciturn.{name}": seed for name, seed in run.seed_setting.items()},
    }
    if request.with_local and local_names(request):
        tags["taciturn.local_only"] = f"{LOCAL_PREFIX} contains figures for the owner of the records only"
    return [tag(name, str(value)) for name, value in tags.items()]


def _add_files(client: Any, run_id: str, folder: RunFolder, run: MetricSeries) -> None:
    """Add those files of the run folder that may be shared, and the model as a table."""
    client.log_text(run_id, tomli_w.dumps(public_config(folder.read_config())), folder.config.name)
    for path in (folder.ledger, folder.report):
        if path.is_file():
            client.log_artifact(run_id, str(path))
    if folder.finished:
        client.log_text(
            run_id, coefficients_text(folder, read_model(folder, run.number), run.number), "coefficients.csv"
        )


TARGETS.register("mlflow")(ExportTarget(write_mlflow, frozenset({"with_local", "tracking_uri", "experiment"})))
