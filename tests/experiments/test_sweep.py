"""Whole sweeps: rows are runs, private figures stay in local-only, finished points are kept, failures are reported."""

from __future__ import annotations

import csv
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import taciturn
from taciturn.errors import BudgetExhausted, InputError
from taciturn.experiments import Sweep
from taciturn.experiments.cost import estimate_cost
from taciturn.privacy.accountants import tightest
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.events import Event
from taciturn.reporting.intervals import interval
from taciturn.runs.folder import RunFolder
from tests.cli.helpers import EXAMPLE, PATIENCE, refused, started, wait_for_rows
from tests.cli.helpers import taciturn as command
from tests.experiments.test_grid import CLINICS

OVER = {"algorithm": ["objp", "objpm"], "clip": [0.5, 1.0]}
ASKED: dict[str, Any] = {**CLINICS, "partition_key": 0, "seeds": 3, "total_epsilon": 2.0}


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep whose test records are held out of private ones."""
    return taciturn.sweep(over=OVER, out=tmp_path_factory.mktemp("sweep") / "s", **ASKED)


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_row_equals_a_separate_run_of_its_point(private: Sweep, tmp_path: Path) -> None:
    assert len(private.rows) == 12
    alone = taciturn.run(**ASKED, algorithm="objp,objpm", clip=1.0, out=tmp_path / "r")
    mine = [row for row in private.rows if row.setting("clip") == 1.0]
    assert [row.test_error for row in mine] == [entry["test_error"] for entry in alone.runs]
    assert (private.path / "runs" / "2-clip=1" / "model.npz").read_bytes() == (
        tmp_path / "r" / "model.npz"
    ).read_bytes()
    written = read(private.path / "local-only" / "results.csv")
    assert [float(row["test_error"]) for row in written] == [row.test_error for row in private.rows]
    assert all(float(row["spent_epsilon"]) == pytest.approx(2.0, rel=1e-3) for row in written)


def test_the_announced_cost_equals_that_of_the_ledgers(private: Sweep) -> None:
    events: Counter[Event] = Counter()
    for path in (private.path / "runs").iterdir():
        for agents in RunFolder.open(path).read_ledger().events.values():
            events.update(agents["north"])
    assert estimate_cost(private.grid).spending[0].epsilon == pytest.approx(tightest(events, 1e-6).epsilon)


def test_means_and_comparisons_follow_from_the_rows(private: Sweep) -> None:
    at = (("algorithm", "objpm"), ("clip", 0.5), ("epsilon", 2.0))
    errors = [row.error for row in private.rows if (row.algorithm, row.setting("clip")) == ("objpm", 0.5)]
    assert private.means[at] == interval(errors) and len(private.means) == 4
    assert [dict(one.at) for one in private.comparisons] == [{"clip": 0.5}, {"clip": 1.0}]
    written = read(private.path / "local-only" / "comparisons.csv")
    assert [float(row["difference"]) for row in written] == [one.difference.mean for one in private.comparisons]
    assert [row["pairs"] for row in written] == ["3", "3"]


def test_no_figure_without_noise_leaves_local_only(private: Sweep) -> None:
    public = [
        path for path in private.path.rglob("*") if path.is_file() and not {"local-only", "checkpoint"} & {*path.parts}
    ]
    assert {"results.csv", "sweep.md", "sweep.toml"} <= {path.name for path in public}
    assert not {"comparisons.csv", "sweep.png", "sweep.svg"} & {path.name for path in public}
    text = "".join(path.read_text(errors="replace") for path in public)
    for row in private.rows:
        assert str(row.train_objective) not in text and str(row.test_error) not in text
    assert "`local-only`" in (private.path / "sweep.md").read_text()
    own = (private.path / "local-only" / "sweep.md").read_text()
    assert "For the owner of the records only" in own and "| objpm | 0.5 |" in own
    assert "must not leave" in (private.path / "local-only" / "README.txt").read_text()
    assert (private.path / "local-only" / "sweep.png").read_bytes()[1:4] == b"PNG"


def test_a_public_test_set_needs_no_secrecy(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "records.csv", tmp_path / "public.csv")
    asked = {**CLINICS, "test_share": 0.0, "test": str(tmp_path / "public.csv")}
    done = taciturn.sweep(over={"partition_key": [0, 1], "total_epsilon": "2,inf"}, out=tmp_path / "s", **asked)
    assert not done.private and done.unit == "partition_key"
    assert (tmp_path / "s" / "comparisons.csv").is_file() and (tmp_path / "s" / "sweep.svg").is_file()
    assert (
        read(tmp_path / "s" / "results.csv")[0]["test_error"] and not read(tmp_path / "s" / "results.csv")[0]["seconds"]
    )
    assert {at: found.n for at, found in done.means.items()} == {
        (("algorithm", "additive"), ("epsilon", 2.0)): 2,
        (("algorithm", "optimum"), ("epsilon", float("inf"))): 2,
    }


def test_repeating_a_sweep_keeps_its_results_and_another_grid_is_refused(private: Sweep) -> None:
    models = {path: path.stat().st_mtime_ns for path in private.path.glob("runs/*/model.npz")}
    again = taciturn.sweep(over=OVER, compare=["clip"], out=private.path, **ASKED)
    assert {path: path.stat().st_mtime_ns for path in models} == models and again.rows == private.rows
    assert [one.setting for one in again.comparisons] == ["clip", "clip"]
    for over, changed, words in (
        ({**OVER, "clip": [0.5, 2.0]}, {}, "its clip is 0.5, 1, and now it is 0.5, 2"),
        (OVER, {"rounds": 4}, "its rounds is 3, and now it is 4"),
        ({"algorithm": ["objp", "objpm"]}, {"clip": 0.5}, "its clip is 0.5, 1, and now it is 0.5"),
    ):
        with pytest.raises(InputError, match=words):
            taciturn.sweep(over=over, out=private.path, **{**ASKED, **changed})
    with pytest.raises(InputError, match="exists and is not a sweep"):
        taciturn.sweep(over=OVER, out=private.path / "runs", **ASKED)


def test_a_point_that_may_have_released_something_is_not_started_again(private: Sweep, tmp_path: Path) -> None:
    shutil.copytree(private.path, tmp_path / "s")
    run = next((tmp_path / "s" / "runs").iterdir())
    for lost in ("config.toml", "summary.json"):
        (run / lost).unlink()
    assert "may have released something" in command("sweep", "--resume", tmp_path / "s", code=2).stderr
    assert (run / "ledger.jsonl").is_file()


def test_a_point_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    asked = {**CLINICS, "mode": "paper", "total_records": "auto", "eta": 1e300}
    done = taciturn.sweep(over={"rho": [1e-300, 1.0]}, out=tmp_path / "s", **asked)
    assert list(done.failed) == ["1-rho=1e-300"] and "diverged" in done.failed["1-rho=1e-300"]
    assert [row.setting("rho") for row in done.rows] == [1.0]
    assert "1-rho=1e-300: objpm diverged" in (tmp_path / "s" / "sweep.md").read_text()


def test_no_point_starts_unless_the_ledger_has_room_for_all(tmp_path: Path) -> None:
    BudgetLedger.create(tmp_path / "l", "clinics", 3.0, 1e-6)
    asked = {**CLINICS, "noise": "hardened", "ledger": str(tmp_path / "l"), "total_epsilon": 2.0}
    with pytest.raises(BudgetExhausted):
        taciturn.sweep(over={"clip": [0.5, 1.0, 2.0]}, out=tmp_path / "s", **asked)
    assert not (tmp_path / "s").exists() and BudgetLedger.open(tmp_path / "l").state().studies == ()
    done = taciturn.sweep(over={"clip": [0.5]}, out=tmp_path / "s", **asked)
    assert [study.cost.gdp > 0 for study in BudgetLedger.open(tmp_path / "l").state().studies] == [True]
    assert done.means and not done.comparisons


LONGER = {**ASKED, "rounds": 150, "seeds": 2, "checkpoint_seconds": 0.05}
FLAGS = [text for name, value in LONGER.items() for text in (f"--{name.replace('_', '-')}", str(value))]
SWEEP = ("sweep", *FLAGS, "--over", "clip=0.5,1")


def test_a_killed_or_stopped_sweep_continues_to_the_same_models(tmp_path: Path) -> None:
    """kill -9 in the first point, Ctrl-C of --resume in the second; the same call again ends in the bytes of a run."""
    out = tmp_path / "s"
    first = started(*SWEEP, "--out", out)
    wait_for_rows(out / "runs" / "1-clip=0.5", 30)
    first.kill()
    first.communicate()
    second = started("sweep", "--resume", out)
    wait_for_rows(out / "runs" / "2-clip=1", 30)
    second.send_signal(signal.SIGINT)
    stdout, stderr = second.communicate(timeout=PATIENCE)
    assert second.returncode == 130 and stdout == ""
    assert f"continue with 'taciturn sweep --resume {out}'" in stderr and "together would spend" in stderr
    assert not RunFolder(out / "runs" / "2-clip=1").finished
    done = taciturn.sweep(over={"clip": "0.5,1"}, out=out, **LONGER)
    assert len(done.rows) == 4 and [one.difference.n for one in done.comparisons] == [2]
    for name, clip in (("1-clip=0.5", 0.5), ("2-clip=1", 1.0)):
        straight = taciturn.run(**LONGER, clip=clip, out=tmp_path / name)
        assert (out / "runs" / name / "model.npz").read_bytes() == straight.folder.model.read_bytes()


def test_invalid_requests_are_refused_before_training(tmp_path: Path) -> None:
    shown = command(*SWEEP, "--dry-run", "--out", tmp_path / "s").stdout
    assert "2 points, 4 runs; nothing was trained" in shown and "together would spend epsilon" in shown
    assert not (tmp_path / "s").exists()
    many = refused(*SWEEP, "--seeds", "6000", "--out", tmp_path / "s")
    assert "12,000 runs" in many and "--yes" in many
    assert "it must be NAME=VALUE,VALUE" in refused("sweep", "--over", "clip")
    assert "sweep.toml" in refused("sweep", "--resume", tmp_path, "--over", "clip=1")
    assert "is not a sweep" in refused("sweep", "--resume", tmp_path)
