"""The command line as a user runs it: a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli import warm

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "clinics"
TABLE = ("--data", str(EXAMPLE / "records.csv"), "--schema", str(EXAMPLE / "schema.toml"))
PAPER = ("--mode", "paper")
CLINICS = (*TABLE, "--test-share", "0.25", *PAPER)
DECLARED = ("--total-records", "600", "--agents", "3")
CERTIFIED = (*TABLE, "--test-share", "0.25", "--partition-key", "0", *DECLARED, "--noise", "seeded")
COMMAND = (sys.executable, "-m", "taciturn")
PATIENCE = warm.PATIENCE


def taciturn(*args: str | Path, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and check its exit code; its report, if it makes one, has words for pictures."""
    done = warm.run(["-m", "taciturn", *map(str, args)], cwd, environment(), pictures=False)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def refused(*args: str | Path, cwd: Path | None = None) -> str:
    """Run a command that must end with exit code 2 and one sentence; that sentence."""
    done = taciturn(*args, code=2, cwd=cwd)
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0].removeprefix("error: ")


def taciturn_json(*args: str | Path, cwd: Path | None = None) -> dict[str, Any]:
    """Run a command with --json; stdout must be one JSON object and nothing else."""
    found: dict[str, Any] = json.loads(taciturn(*args, "--json", cwd=cwd).stdout)
    return found


def wait_for(there: Callable[[], bool], what: str) -> None:
    """Until something is there; `what` names it."""
    end = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < end, f"{what} never came"
        time.sleep(0.005)


def wait_for_rows(out: Path, rows: int) -> None:
    """Until the run has written that many evaluations."""
    metrics = out / "metrics.jsonl"
    wait_for(lambda: metrics.is_file() and metrics.read_bytes().count(b"\n") >= rows, f"row {rows} of {metrics}")


def environment(**changes: str) -> dict[str, str]:
    """The test's own environment; warnings would show on stderr."""
    return {**os.environ, "COLUMNS": "100", **changes}  # conftest gives XDG_STATE_HOME a folder of the tests' own
