"""Metrics as TensorBoard's event files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from taciturn.core.storage import atomic_write, make_folder
from taciturn.export.metric_series import MetricSeries, local_names, local_note, read_metrics
from taciturn.export.target import TARGETS, ExportRequest, ExportTarget, import_optional
from taciturn.reporting.tables import format_setting
from taciturn.runs.folder import public_config

EXTRA = "tensorboard"
PROTO, SESSION = "tensorboard.compat.proto", "_hparams_/session_start_info"
FILE_VERSION = "brain.Event:2"  # TensorBoard knows no other
HPARAMS = ("data", "mode", "rounds", "local_updates", "clip", "rho", "eta", "delta", "agents", "partition")


def write_events(request: ExportRequest) -> list[str]:
    """Write a folder per run, with a scalar per metric and round, and return messages about them."""
    event = import_optional(f"{PROTO}.event_pb2", EXTRA).Event
    summary = import_optional(f"{PROTO}.summary_pb2", EXTRA)
    runs = read_metrics(request)
    private = request.with_local and bool(local_names(request))
    path = request.output_path("tensorboard", private)
    settings = public_config(request.folder.read_config())
    make_folder(path, private=private)
    for run in runs:
        make_folder(path / run.folder_name, private=private)
        _write_file(path / run.folder_name, _events(run, settings, event, summary), private)
    count = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    return [*local_note(request), f"{count} in {path}", f"open it with 'tensorboard --logdir {path}'"]


def _events(run: MetricSeries, settings: Mapping[str, object], event: Any, summary: Any) -> Iterator[Any]:
    """Yield the settings, for the page HPARAMS, and a scalar per metric and round."""
    now = time.time()
    shown = {name: settings[name] for name in HPARAMS if settings.get(name) not in ("", None)}
    shown |= {"algorithm": run.algorithm, "epsilon": f"{run.epsilon:g}", **run.seed_setting}
    yield event(wall_time=now, file_version=FILE_VERSION)
    yield event(wall_time=now, summary=summary.Summary(value=[_session(shown, now, summary)]))
    for step, values in run.rows:
        scalars = [summary.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        yield event(wall_time=now, step=step, summary=summary.Summary(value=scalars))


def _session(settings: Mapping[str, object], now: float, summary: Any) -> Any:
    """Return the settings as TensorBoard's hyperparameter plugin stores them; its own function needs tensorflow."""
    plugin = import_optional("tensorboard.plugins.hparams.plugin_data_pb2", EXTRA)
    info = plugin.SessionStartInfo(start_time_secs=now)
    for name, value in settings.items():
        if isinstance(value, (int, float)):
            info.hparams[name].number_value = value
        else:
            info.hparams[name].string_value = format_setting(value)
    content = plugin.HParamsPluginData(session_start_info=info, version=0).SerializeToString()
    data = summary.SummaryMetadata.PluginData(plugin_name="hparams", content=content)
    return summary.Summary.Value(tag=SESSION, metadata=summary.SummaryMetadata(plugin_data=data))


def _write_file(folder: Path, events: Iterable[Any], private: bool) -> None:
    record_writer = import_optional("tensorboard.summary.writer.record_writer", EXTRA).RecordWriter
    with atomic_write(folder / f"events.out.tfevents.{int(time.time())}.taciturn", private) as file:
        writer = record_writer(file)
        for event in events:
            writer.write(event.SerializeToString())
        writer.flush()


TARGETS.register("tensorboard")(ExportTarget(write_events, frozenset({"out", "with_local"})))
