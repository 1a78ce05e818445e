"""What a run writes down: charged before it is seen, and in files that do not tell how long a round took."""

from __future__ import annotations

import importlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import taciturn
from taciturn import api
from taciturn.algorithms.gradient_descent import DpGd
from taciturn.errors import Interrupted
from taciturn.runs.folder import RunFolder
from taciturn.runs.records import ReleaseEntry
from taciturn.training.loop import TrainingProgress
from taciturn.training.recorder import ENTRIES, Recorder
from tests.cli.helpers import EXAMPLE

train_module: Any = importlib.import_module("taciturn.training.loop")  # of its name there is a function too
CLINICS: dict[str, Any] = {
    "data": str(EXAMPLE / "records.csv"), "schema": str(EXAMPLE / "schema.toml"), "total_records": 600, "agents": 3,
    "algorithm": "dpgd", "rounds": 45,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "write_report", lambda folder: None)


def public(folder: Path) -> dict[str, bytes]:
    """The public files that are no pictures of the others."""
    names = ("ledger.jsonl", "ledger.head", "metrics.jsonl", "summary.json", "start.json")
    return {name: (folder / name).read_bytes() for name in names}


def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes 1 to 7 seconds ahead whenever somebody looks."""
    real, ahead = time.monotonic, [0.0]

    def monotonic() -> float:
        ahead[0] += 1.0 + len(str(ahead[0])) % 7
        return real() + ahead[0]

    monkeypatch.setattr(time, "monotonic", monotonic)


def test_public_files_of_a_slow_run_are_those_of_a_quick_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = taciturn.run(**CLINICS, noise="seeded", seed=1, out=str(tmp_path / "quick"))
    with monkeypatch.context() as patch:
        slowly(patch)
        slow = taciturn.run(**CLINICS, noise="seeded", seed=1, checkpoint_seconds=0.5, out=str(tmp_path / "slow"))
    config = "start.json"  # it has a digest of the settings, which differ in checkpoint_seconds
    one, other = public(quick.path), public(slow.path)
    assert {name for name in one if one[name] != other[name]} <= {config}
    spans = [(row["first"], row["last"]) for row in quick.folder.read_ledger() if row["kind"] == "release"]
    assert sorted(set(spans)) == [(first, min(first + 2, 45)) for first in range(1, 46, 3)]
    assert len(set(spans)) <= ENTRIES


def test_hardened_ledgers_have_a_line_a_round_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashes differ, for the noise is another: form and order of the lines do not."""
    quick = taciturn.run(**CLINICS, noise="hardened", out=str(tmp_path / "quick"))
    with monkeypatch.context() as patch:
        slowly(patch)
        slow = taciturn.run(**CLINICS, noise="hardened", out=str(tmp_path / "slow"))
    assert form(quick.folder) == form(slow.folder)
    assert [row["round"] for row in quick.folder.read_metrics(local=False)] == list(range(1, 46))


def form(folder: RunFolder) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in folder.ledger.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in {"previous", "id"}} for row in rows]


def test_how_long_a_certified_run_took_is_for_its_owner(tmp_path: Path) -> None:
    made = taciturn.run(**CLINICS | {"rounds": 2}, out=str(tmp_path / "r"))
    assert "ended" not in made.folder.read_summary(local=False)
    assert made.folder.read_summary()["ended"].startswith("20")
    assert made.folder.local_metrics.stat().st_mtime_ns > files_time(made.folder)


def files_time(folder: RunFolder) -> int:
    """The time that all files of a folder carry, and the folder itself."""
    (found,) = {path.stat().st_mtime_ns for path in (folder.path, *folder.path.iterdir())}
    return found


def test_no_file_time_reveals_how_long_a_stopped_run_took(tmp_path: Path) -> None:
    seen: list[int] = []
    with pytest.raises(Interrupted):
        taciturn.run(**CLINICS, out=str(tmp_path / "r"), watch=lambda p: seen.append(p.t), stop=lambda: max(seen) >= 3)
    began = files_time(RunFolder(tmp_path / "r"))
    taciturn.resume(tmp_path / "r")
    assert files_time(RunFolder(tmp_path / "r")) == began


def test_nothing_of_a_fresh_round_is_seen_before_it_is_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a line is about to be written or a round shown, the ledger on the disk has it."""
    folder, shown = RunFolder(tmp_path / "r"), []

    def charged() -> int:
        return max((row["last"] for row in folder.read_ledger() if row["kind"] == "release"), default=0)

    real_rows = train_module._write_rows

    def rows(given: Any, place: RunFolder, lines: list[dict[str, Any]]) -> None:
        assert max(line["round"] for line in lines) <= charged()
        real_rows(given, place, lines)

    def watch(progress: TrainingProgress) -> None:
        if progress.test_error is not None:
            last = max(row["round"] for row in folder.read_metrics(local=False))
            assert last <= charged()
            shown.append(progress.t)

    monkeypatch.setattr(train_module, "_write_rows", rows)
    slowly(monkeypatch)
    taciturn.run(**CLINICS, noise="hardened", test_share=0.25, out=str(folder.path), watch=watch)
    assert shown[-1] == 45


def test_a_killed_fresh_run_loses_only_rounds_that_nobody_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies before anything was flushed: nothing is charged, and all rounds are still to be computed."""
    folder = RunFolder(tmp_path / "r")

    def dying(progress: TrainingProgress) -> None:
        if progress.t == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taciturn.run(**CLINICS, noise="hardened", out=str(folder.path), watch=dying)
    assert not folder.read_metrics() and not [row for row in folder.read_ledger() if row["kind"] == "release"]
    assert taciturn.resume(folder.path).runs[0]["rounds"] == 45


def of_one_agent(folder: RunFolder) -> list[ReleaseEntry]:
    rows = folder.read_ledger().releases
    return [row for row in rows if row.agent == rows[0].agent]


@pytest.mark.parametrize("noise", ["seeded", "hardened"])
def test_a_stopped_run_is_charged_saved_and_can_be_resumed(tmp_path: Path, noise: str) -> None:
    folder, seen = RunFolder(tmp_path / "r"), [0]

    def stop() -> bool:
        return seen[0] >= 20

    def watch(progress: TrainingProgress) -> None:
        seen[0] = progress.t

    with pytest.raises(Interrupted):
        taciturn.run(**CLINICS, noise=noise, evaluate_every=7, out=str(folder.path), stop=stop, watch=watch)
    rows = of_one_agent(folder)
    assert sum(row["count"] for row in rows) == rows[-1]["last"] == seen[0]
    taciturn.resume(folder.path)
    rows = of_one_agent(folder)
    assert sum(row["count"] for row in rows) == 45
    assert folder.read_metrics()[-1]["round"] == 45


def test_a_seeded_run_killed_between_its_entries_charges_every_round_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is ahead of the ledger's last entry: it knows what is still to be written."""
    folder = RunFolder(tmp_path / "r")

    def dying(progress: TrainingProgress) -> None:
        if progress.t == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
        patch.setattr(Recorder, "schedule", lambda self, cost=0.0: setattr(self, "next_checkpoint", 0.0))
        taciturn.run(**CLINICS, noise="seeded", seed=1, out=str(folder.path), watch=dying)
    taciturn.resume(folder.path)
    straight = taciturn.run(**CLINICS, noise="seeded", seed=1, out=str(tmp_path / "straight")).folder
    spans = [[(r["first"], r["last"], r["count"], r["agent"]) for r in f.read_ledger() if r["kind"] == "release"]
             for f in (folder, straight)]  # fmt: skip
    assert spans[0] == spans[1]


def test_repeated_and_lost_rounds_are_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old checkpoint was put back, and a crash comes between the next checkpoint and the ledger."""
    place, reached = tmp_path / "r", [0]
    drawn: list[int] = []
    step = DpGd.agent_step

    def counted(self: DpGd, t: int, *rest: Any) -> Any:
        drawn.append(t)
        return step(self, t, *rest)

    monkeypatch.setattr(DpGd, "agent_step", counted)

    def until(last: int) -> dict[str, Any]:
        return {"watch": lambda progress: reached.append(progress.t), "stop": lambda: reached[-1] >= last}

    with pytest.raises(Interrupted):
        taciturn.run(**CLINICS, noise="hardened", out=str(place), **until(10))
    old = shutil.copytree(place / "checkpoint", tmp_path / "old")
    with pytest.raises(Interrupted):
        taciturn.resume(place, **until(20))
    shutil.rmtree(place / "checkpoint")
    old.rename(place / "checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "_append", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        reached.append(10)
        with pytest.raises(KeyboardInterrupt):
            taciturn.resume(place, **until(15))
    done = taciturn.resume(place)
    charged = [row for row in done.folder.read_ledger() if row["kind"] == "release"]
    assert len(charged) == len(drawn) <= 3 * CLINICS["rounds"]
    assert len({(row["agent"], row["first"], row["session"]) for row in charged}) == len(charged)
