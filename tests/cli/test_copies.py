"""A copy of a run with fresh noise cannot continue during the run or after it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli import warm
from tests.cli.helpers import DECLARED, PATIENCE, TABLE, environment, refused, taciturn, taciturn_json, wait_for
from tests.cli.warm import Process

ROUNDS = 30
RUN = (
    "run", *TABLE, *DECLARED, "--noise", "hardened", "--algorithm", "dpgd", "--rounds", str(ROUNDS),
    "--total-epsilon", "1", "--checkpoint-seconds", "0",
)  # fmt: skip


PAUSING = """
import os, signal, sys
from taciturn.privacy import hash_chain as chain
from taciturn.training.recorder import Recorder

paused = []

def pausing(real):
    def then(*given):
        real(*given)
        if not paused and (real is save or b'"release"' in given[1]):
            paused.append(True)
            os.kill(os.getpid(), signal.SIGSTOP)
    return then

save = Recorder.checkpoint

if sys.argv.pop(1) == "between":
    Recorder.checkpoint = pausing(save)
else:
    chain.append_bytes = pausing(chain.append_bytes)  # the line is there, its head is not
from taciturn.__main__ import main
main()
"""


@contextmanager
def paused(folder: Path, where: str = "between", reserved: bool = False) -> Iterator[tuple[Process, Path, Path]]:
    """A run that was paused between two rounds, or within an append; its folder, and a copy of the folder."""
    run, copy, ledger = folder / "A", folder / "B", folder / "c.ledger"
    more = ("--ledger", str(ledger)) if reserved else ()
    if reserved:
        taciturn("ledger", "init", ledger, "--total-epsilon", "1.5", "--delta", "1e-6")
    process = Process(["-c", PAUSING, where, *RUN, *more, "--out", str(run)], None, environment())
    try:
        wait_for(lambda: is_stopped(process), "the pause")
        shutil.copytree(run, copy)
        yield process, run, copy
    finally:
        process.kill()
        process.communicate()


def is_stopped(process: Process) -> bool:
    assert process.poll() is None
    shown = ["ps", "-o", "stat=", "-p", str(process.pid)]
    return subprocess.run(shown, capture_output=True, text=True, check=False).stdout.startswith("T")


def rounds(run: Path) -> list[int]:
    """The rounds that a run's ledger has for its first agent."""
    file = run / "ledger.jsonl"
    content = file.read_bytes() if file.is_file() else b""
    rows: list[dict[str, Any]] = [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    released = [row for row in rows if row["kind"] == "release"]
    return [row["first"] for row in released if row["agent"] == released[0]["agent"]]


def went_on(process: Process) -> str:
    """Continue a paused process to its end, which must be a refusal; its words."""
    process.send_signal(signal.SIGCONT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, stderr
    assert "Traceback" not in stderr
    return stderr


def lock(run: Path) -> Path:
    identity = json.loads((run / "start.json").read_text())["id"]
    return Path(os.environ["XDG_STATE_HOME"]) / "taciturn" / "runs" / f"{identity}.lock"


def test_a_copy_of_a_paused_run_is_refused(tmp_path: Path) -> None:
    with paused(tmp_path) as (process, run, copy):
        said = refused("resume", copy)
        assert f"process {process.pid} in {run}" in said
        assert "two copies of a run cannot both continue" in said
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert rounds(run) == list(range(1, ROUNDS + 1))
    assert "an old copy" in refused("resume", copy)
    assert rounds(copy) == list(range(1, len(rounds(copy)) + 1)) and len(rounds(copy)) < ROUNDS


def test_a_killed_run_cannot_continue_after_its_copy_did(tmp_path: Path) -> None:
    with paused(tmp_path, reserved=True) as (process, run, copy):
        process.kill()
        process.communicate()
        before = len(rounds(run))
        taciturn("resume", copy)
        assert len(rounds(copy)) == ROUNDS
        said = refused("resume", run)
        assert "no open reservation" in said or "an old copy" in said
        assert len(rounds(run)) == before
        state = taciturn_json("ledger", tmp_path / "c.ledger")
        assert len(state["studies"]) == 1


@pytest.mark.linux
@pytest.mark.parametrize(("way", "where"), [("deleted", "between"), ("deleted", "within"), ("no locks", "between")])
def test_the_stored_head_detects_a_copy_that_the_lock_misses(tmp_path: Path, way: str, where: str) -> None:
    """A copy continued while the run was paused: the run stops at its next line, and shows no further round."""
    with paused(tmp_path, where) as (process, run, copy):
        if way == "deleted":
            lock(run).unlink()
            taciturn("resume", copy)
        else:
            without_locks(copy, tmp_path)
        assert len(rounds(copy)) == ROUNDS
        charged, shown = rounds(run), (run / "metrics.jsonl").read_bytes()
        said = went_on(process)
        assert ("an old copy" if where == "between" else "a copy of the ledger") in said
        assert rounds(run) == charged
        assert (run / "metrics.jsonl").read_bytes() == shown
        assert not (run / "model.npz").exists() and not (run / "summary.json").exists()


def test_a_second_process_in_the_same_folder_ends_the_first(tmp_path: Path) -> None:
    """Both lock files are gone, so a second process takes the run over: the first one finds its lines."""
    with paused(tmp_path) as (process, run, _):
        lock(run).unlink()
        (run / "checkpoint" / "lock").unlink()
        taciturn("resume", run)
        charged, shown = rounds(run), (run / "metrics.jsonl").read_bytes()
        assert "another process appended to" in went_on(process)
        assert (rounds(run), (run / "metrics.jsonl").read_bytes()) == (charged, shown)


SHIM = """
import errno, fcntl, sys
real = fcntl.flock

def flock(file, kind):
    if "/runs/" in __import__("os").readlink(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}"):
        raise OSError(errno.ENOLCK, "no locks available")
    return real(file, kind)

fcntl.flock = flock
from taciturn.__main__ import main
sys.argv = ["taciturn", "resume", sys.argv[1]]
main()
"""


def without_locks(copy: Path, folder: Path) -> None:
    """Resume a copy where the state folder's file system knows no locks."""
    done = warm.run(["-c", SHIM, str(copy)], folder, environment())
    assert done.returncode == 0, done.stderr


def test_a_copy_without_its_id_cannot_continue(tmp_path: Path) -> None:
    with paused(tmp_path) as (_, run, copy):
        start = copy / "start.json"
        kept = json.loads(start.read_text())
        start.write_text(json.dumps({name: value for name, value in kept.items() if name != "id"}) + "\n")
        assert "name different runs: one was changed" in refused("resume", copy)
    assert run.is_dir()
