"""Runs that are stopped, killed, or run out of disk space lose nothing and end in the same bytes when resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taciturn.core.storage import read_arrays, write_arrays
from tests.cli.helpers import (
    CLINICS,
    DECLARED,
    EXAMPLE,
    PATIENCE,
    refused,
    started,
    taciturn,
    taciturn_json,
    wait_for_rows,
)
from tests.cli.warm import Process

METHODS = (
    "--algorithm",
    "objpm,outp",
    "--local-updates",
    "3",
    "--epsilon",
    "1,inf",
    "--averages",
    "--evaluate-every",
    "1",
)
LONG = ("run", *CLINICS, *METHODS, "--rounds", "600")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing happened to."""
    out = tmp_path_factory.mktemp("straight") / "r"
    taciturn(*LONG, "--out", out)
    return out


def begin(out: Path, *more: str) -> Process:
    return started(*LONG, *more, "--out", out, torch="torch" in more)


def same_end(out: Path, straight: Path) -> None:
    for name in ("model.npz", "averages.npz"):
        assert (out / name).read_bytes() == (straight / name).read_bytes(), name
    timeless = [[without_seconds(line) for line in read(folder / "metrics.jsonl")] for folder in (out, straight)]
    assert timeless[0] == timeless[1]
    assert ledger_counts(out) == ledger_counts(straight)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_seconds(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "seconds"}


def ledger_counts(folder: Path) -> dict[tuple[Any, ...], int]:
    counts: dict[tuple[Any, ...], int] = {}
    for entry in (entry for entry in read(folder / "ledger.jsonl") if entry["kind"] == "release"):
        passing = {"count", "line", "previous", "more", "first", "last", "session"}
        key = tuple(value for name, value in entry.items() if name not in passing)
        counts[key] = counts.get(key, 0) + entry["count"]
    return counts


@pytest.mark.parametrize("rows", [1, 1300])
def test_killed_and_resumed_it_ends_in_the_same_bytes(tmp_path: Path, straight: Path, rows: int) -> None:
    """kill -9 before the first checkpoint, in the first algorithm, and in the second."""
    out = tmp_path / "r"
    process = begin(out, "--checkpoint-seconds", "1000" if rows == 1 else "0.1")
    wait_for_rows(out, rows)
    process.kill()
    process.communicate()
    assert not (out / "summary.json").exists()
    assert "not finished" in taciturn("show", out).stdout
    leftover = out / "checkpoint" / ".objpm.npz.leftover"
    leftover.write_text("half a checkpoint of the killed process")
    taciturn("resume", out)
    assert not leftover.exists()
    same_end(out, straight)
    assert taciturn_json("resume", out)["run"] == str(out)  # once more changes nothing
    same_end(out, straight)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_how_to_continue(tmp_path: Path, straight: Path, number: signal.Signals) -> None:
    out = tmp_path / "r"
    process = begin(out)
    wait_for_rows(out, 50)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert f"taciturn resume {out}" in stderr
    assert "Traceback" not in stderr
    assert stdout == ""
    before = len(read(out / "metrics.jsonl"))
    assert before >= 50
    taciturn("resume", out)
    same_end(out, straight)


LOADING = """
import sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
from taciturn.__main__ import main
main()
"""


def test_ctrl_c_while_the_program_loads_is_quiet() -> None:
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_only_one_process_works_in_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "r"
    process = begin(out)
    wait_for_rows(out, 10)
    try:
        assert "being worked on by another process" in refused("resume", out)
    finally:
        process.kill()
        process.communicate()


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "r"
    process = begin(out, "--checkpoint-seconds", "0")
    wait_for_rows(out, 20)
    process.kill()
    process.communicate()
    checkpoint = out / "checkpoint" / "objpm.npz"
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[: len(whole) // 2])
    assert "is damaged" in refused("resume", out)
    checkpoint.write_bytes(whole)
    arrays = read_arrays(checkpoint)
    write_arrays(checkpoint, {**arrays, "place": arrays["place"][1:]})
    assert "was written by another version of Taciturn" in refused("resume", out)
    checkpoint.write_bytes(whole)
    os.truncate(out / "metrics.jsonl", 10)
    assert "is shorter than its checkpoint says" in refused("resume", out)


def test_other_records_or_settings_are_not_resumed(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text((EXAMPLE / "records.csv").read_text())
    out = tmp_path / "r"
    words = ("--data", table, "--schema", EXAMPLE / "schema.toml", *DECLARED, "--rounds", "5000", "--out", out)
    process = started("run", *words)
    wait_for_rows(out, 3)
    assert "running" in taciturn("show", out).stdout
    process.kill()
    process.communicate()
    whole = table.read_text()
    table.write_text(whole.replace("malignant", "benign", 1))
    assert "are not those the run began with" in refused("resume", out)
    table.write_text(whole)
    config = (out / "config.toml").read_text()
    (out / "config.toml").write_text(config.replace("rounds = 5000", "rounds = 5"))
    assert "was changed after the run began" in refused("resume", out)
    (out / "config.toml").write_text(config)
    (out / "schema.toml").rename(tmp_path / "kept.toml")
    assert "schema.toml is missing" in refused("resume", out)


def test_resume_completes_the_files_of_a_finished_run(tmp_path: Path) -> None:
    out = tmp_path / "r"
    taciturn("run", *CLINICS, "--rounds", "3", "--out", out)
    model = (out / "model.npz").read_bytes()
    (out / "model.npz").unlink()
    (out / "report.html").unlink()
    assert "has finished already" in taciturn("resume", out).stderr
    assert (out / "model.npz").read_bytes() == model
    assert (out / "report.html").is_file()


def test_a_full_disk_loses_nothing(tmp_path: Path, straight: Path) -> None:
    """A real, small file system that fills up; once there is room, the run continues and ends with the same bytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs more rights than this user has")
    try:
        done = taciturn(*LONG, "--out", disk / "r", code=2)
        assert "No space left on device" in done.stderr
        assert "taciturn resume" in done.stderr
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        taciturn("resume", disk / "r")
        same_end(disk / "r", straight)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_an_existing_folder_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "mine.txt").write_text("mine")
    sentence = refused("run", *CLINICS, "--rounds", "1", "--out", tmp_path / "r")
    assert sentence.startswith(f"{tmp_path / 'r'} exists: choose another --out")
    assert "resume" not in sentence
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["mine.txt"]
    (tmp_path / "r" / "config.toml").write_text("")
    assert "or continue it with 'taciturn resume" in refused("run", *CLINICS, "--rounds", "1", "--out", tmp_path / "r")
    (tmp_path / "r" / "config.toml").unlink()
