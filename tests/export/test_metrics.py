"""Metrics in other programs: complete, under the right names, stored once, also for unfinished runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import taciturn
from taciturn.errors import InputError, Interrupted
from taciturn.export import TARGETS, ExportRequest
from taciturn.export.metric_series import read_metrics
from taciturn.runs.folder import RunFolder
from tests.cli.helpers import refused
from tests.cli.helpers import taciturn as command
from tests.experiments.test_grid import CLINICS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the packages exported to, among themselves
PRIVATE = {"local_only/test_error", "local_only/train_objective", "local_only/seconds"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a folder with two runs on private data."""
    return taciturn.run(**CLINICS, total_epsilon="1,inf", out=tmp_path_factory.mktemp("metrics") / "r").folder


def stopped(path: Path, rounds: int) -> RunFolder:
    """Return a run that was interrupted after so many rounds."""
    seen: list[int] = []
    with pytest.raises(Interrupted):
        taciturn.run(
            **{**CLINICS, "rounds": 9}, out=path, watch=lambda p: seen.append(p.t), stop=lambda: max(seen) >= rounds
        )
    return RunFolder.open(path)


def test_owners_figures_are_left_out_or_named_as_such(run: RunFolder) -> None:
    shown = read_metrics(ExportRequest(run))
    assert [one.number for one in shown] == [0, 1] and [step for step, _ in shown[0].rows] == [1, 2, 3]
    assert "consensus_residual" in shown[0].rows[0][1] and not any("test_error" in name for name in shown[0].rows[0][1])
    own = read_metrics(ExportRequest(run, with_local=True, run=1))
    assert len(own) == 1 and own[0].rows[0][1].keys() >= PRIVATE
    assert own[0].rows[-1][1]["local_only/test_error"] == run.read_summary()["runs"][1]["test_error"]
    with pytest.raises(InputError, match="its runs are 0 to 1"):
        read_metrics(ExportRequest(run, run=2))


def test_tensorboard_reads_every_round(run: RunFolder, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    said = TARGETS["tensorboard"].write(ExportRequest(run))
    assert "without train_objective" in said[0] and f"tensorboard --logdir {run.path / 'tensorboard'}" in said[-1]
    local = TARGETS["tensorboard"].write(ExportRequest(run, with_local=True))
    assert "for their owner only" in local[0] and (run.local / "tensorboard").is_dir()
    for place, private in ((run.path, set()), (run.local, PRIVATE)):
        found = accumulator(str(place / "tensorboard" / "1-optimum-no-noise-seed-1"))
        found.Reload()
        tags = set(found.Tags()["scalars"])
        assert {name for name in tags if name.startswith("local_only/")} == private
        assert {"consensus_residual", "noise", "rho", "eta", "bytes_up", "bytes_down"} <= tags
        rows = [row for row in run.read_metrics() if row["run"] == 1]
        events = found.Scalars("consensus_residual")
        assert [(event.step, event.value) for event in events] == [
            (row["round"], pytest.approx(row["consensus_residual"])) for row in rows
        ]
        assert "_hparams_/session_start_info" in found.PluginTagToContent("hparams")
    with pytest.raises(InputError, match="exists"):
        TARGETS["tensorboard"].write(ExportRequest(run))


def test_mlflow_stores_a_run_once_and_continues_it(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'm.db'}"
    folder = stopped(tmp_path / "r", rounds=4)
    with pytest.raises(InputError, match="has not ended"):
        TARGETS["csv"].write(ExportRequest(folder))
    done = int(folder.read_metrics()[-1]["round"])
    asked = ExportRequest(folder, tracking_uri=uri, experiment="clinics")
    said = TARGETS["mlflow"].write(asked)
    assert "without train_objective" in said[0] and f"rounds 1 to {done} in MLflow run" in said[1]
    with pytest.raises(InputError, match=r"nothing is new .* there already as MLflow run"):
        TARGETS["mlflow"].write(asked)
    taciturn.resume(folder.path)
    assert f"rounds {done + 1} to 9 in MLflow run" in TARGETS["mlflow"].write(asked)[1]
    client: Any = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("clinics")
    kept = client.search_runs([experiment.experiment_id])
    assert len(kept) == 1 and kept[0].info.status == "FINISHED"
    history = client.get_metric_history(kept[0].info.run_id, "consensus_residual")
    assert [(one.step, one.value) for one in history] == [
        (row["round"], row["consensus_residual"]) for row in folder.read_metrics()
    ]
    assert not any("test_error" in name for name in kept[0].data.metrics)
    assert kept[0].data.params["clip"] and kept[0].data.params["data"] == "records.csv"  # no path of this machine
    tags = kept[0].data.tags
    assert (tags["taciturn.mode"], tags["taciturn.total_epsilon"], tags["taciturn.delta"]) == (
        "certified",
        "1",
        "1e-06",
    )
    files = {file.path for file in client.list_artifacts(kept[0].info.run_id)}
    assert files == {"config.toml", "ledger.jsonl", "report.html", "coefficients.csv"}
    assert (tmp_path / "mlartifacts" / "clinics").is_dir()
    config = next((tmp_path / "mlartifacts").rglob("config.toml")).read_text()
    assert 'data = "records.csv"' in config and "/" not in config


def test_the_command(run: RunFolder) -> None:
    assert "effects of the columns in additive" in command("export", run.path, "--to", "csv").stdout
    assert (run.path / "coefficients.csv").read_text().startswith("output,column,value,share,effect,standard_error")
    nothing = refused("export", run.path, "--to", "csv", "--experiment", "a")
    assert "--experiment" in nothing and "csv" in nothing


def test_owner_only_files_are_private_wherever_they_are_written(run: RunFolder, tmp_path: Path) -> None:
    """Files with figures that have no noise are private; public ones follow the umask."""
    pytest.importorskip("tensorboard")
    before = os.umask(0o022)
    try:
        for name, local in (("own", True), ("all", False)):
            TARGETS["tensorboard"].write(ExportRequest(run, tmp_path / name, with_local=local))
        for words in (("plot", run.path), ("plot", run.path, "--what", "sent"), ("compare", run.path)):
            command(*words, "--out", tmp_path / "own" / f"{'-'.join(map(str, words[2:]))}{words[0]}.png")
    finally:
        os.umask(before)
    own, public = (list((tmp_path / name).rglob("*")) for name in ("own", "all"))
    assert sum(path.suffix == ".png" for path in own) == 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "own", *own))
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in (tmp_path / "all", *public))
