"""Metrics as TensorBoard's event files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from taciturn.core.storage import atomic_write, make_folder
from taciturn.export.metric_series import MetricSeries, private_names, read_metrics, said_about
from taciturn.export.target import TARGETS, ExportRequest, Target, needed
from taciturn.reporting.tables import format_setting
from taciturn.runs.folder import public_config

EXTRA = "tensorboard"
PROTO, SESSION = "tensorboard.compat.proto", "_hparams_/session_start_info"
FILE_VERSION = "brain.Event:2"  # the only one there is
HPARAMS = ("data", "mode", "rounds", "local_updates", "clip", "rho", "eta", "delta", "agents", "partition")


def write_events(request: ExportRequest) -> list[str]:
    """A folder for each run, with a scalar for each metric and round."""
    event, summary = needed(f"{PROTO}.event_pb2", EXTRA).Event, needed(f"{PROTO}.summary_pb2", EXTRA)
    runs = read_metrics(request)
    private = request.with_local and bool(private_names(request))
    place = request.place("tensorboard", private)
    settings = public_config(request.folder.read_config())
    make_folder(place, private=private)
    for run in runs:
        make_folder(place / run.folder_name, private=private)
        _write(place / run.folder_name, _events(run, settings, event, summary), private)
    shown = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    return [*said_about(request), f"{shown} in {place}", f"look at it with 'tensorboard --logdir {place}'"]


def _events(run: MetricSeries, settings: dict[str, Any], event: Any, summary: Any) -> Iterator[Any]:
    """The settings, for the page HPARAMS, and a scalar for each metric and round."""
    now = time.time()
    named = {name: settings[name] for name in HPARAMS if settings.get(name) not in ("", None)}
    own = {"algorithm": run.algorithm, "epsilon": f"{run.epsilon:g}", **run.seeded}
    yield event(wall_time=now, file_version=FILE_VERSION)
    yield event(wall_time=now, summary=summary.Summary(value=[_session(named | own, now, summary)]))
    for step, values in run.rows:
        scalars = [summary.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        yield event(wall_time=now, step=step, summary=summary.Summary(value=scalars))


def _session(settings: dict[str, Any], now: float, summary: Any) -> Any:
    """The settings as TensorBoard's plugin for hyperparameters keeps them; its own function would need tensorflow."""
    data = needed("tensorboard.plugins.hparams.plugin_data_pb2", EXTRA)
    info = data.SessionStartInfo(start_time_secs=now)
    for name, value in settings.items():
        if isinstance(value, (int, float)):
            info.hparams[name].number_value = value
        else:
            info.hparams[name].string_value = format_setting(value)
    content = data.HParamsPluginData(session_start_info=info, version=0).SerializeToString()
    kept = summary.SummaryMetadata.PluginData(plugin_name="hparams", content=content)
    return summary.Summary.Value(tag=SESSION, metadata=summary.SummaryMetadata(plugin_data=kept))


def _write(folder: Path, events: Iterable[Any], private: bool) -> None:
    record_writer = needed("tensorboard.summary.writer.record_writer", EXTRA).RecordWriter
    with atomic_write(folder / f"events.out.tfevents.{int(time.time())}.taciturn", private) as file:
        writer = record_writer(file)
        for event in events:
            writer.write(event.SerializeToString())
        writer.flush()


TARGETS.register("tensorboard")(
    Target("metrics by round, for TensorBoard", write_events, frozenset({"out", "with_local"}))
)
