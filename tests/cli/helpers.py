"""Run the command line as a user does, in a process."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli import warm

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "data" / "clinics"
TABLE = ("--data", str(EXAMPLE / "records.csv"), "--schema", str(EXAMPLE / "schema.toml"))
PAPER = ("--mode", "paper")
CLINICS = (*TABLE, "--test-share", "0.25", *PAPER)
DECLARED = ("--total-records", "600", "--agents", "3")
CERTIFIED = (*TABLE, "--test-share", "0.25", "--partition-key", "0", *DECLARED, "--noise", "seeded")
COMMAND = (sys.executable, "-m", "taciturn")
PATIENCE = warm.PATIENCE


def taciturn(
    *args: str | Path, code: int = 0, cwd: Path | None = None, torch: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command and check its exit code; a report that it writes has words in place of figures.

    With `torch` it is loaded already.
    """
    words = ["-m", "taciturn", *map(str, args)]
    done = warm.run(words, cwd, environment(), pictures=False, loaded=_libraries(torch))
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def started(*args: str | Path, cwd: Path | None = None, torch: bool = False) -> warm.Process:
    """Start a command and return its process; with `torch` it is loaded already."""
    words = ["-m", "taciturn", *map(str, args)]
    return warm.Process(words, cwd, environment(), pictures=False, loaded=_libraries(torch))


def _libraries(torch: bool) -> tuple[str, ...]:
    return ("torch",) if torch else ()


def ranks(module: str, *args: str, count: int = 2) -> list[warm.Process]:
    """Start the ranks of a module as torchrun starts them, with torch loaded already."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    common |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
    variables = [environment(**common, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(count)]
    return [
        warm.Process(["-m", module, *args], None, env, pictures=False, loaded=_libraries(True)) for env in variables
    ]


def refused(*args: str | Path, cwd: Path | None = None, torch: bool = False) -> str:
    """Run a command that must fail with exit code 2 and one sentence; return the sentence."""
    done = taciturn(*args, code=2, cwd=cwd, torch=torch)
    assert done.stdout == ""
    lines = messages(done.stderr)
    assert len(lines) == 1, done.stderr
    return lines[0].removeprefix("error: ")


PROGRESS = re.compile(r": (round )?[\d,]+ of [\d,]+( records| releases| rounds)?\b")


def messages(stderr: str) -> list[str]:
    """Return the lines of stderr except lines about progress, which a busy machine causes."""
    return [line for line in stderr.splitlines() if line.strip() and not PROGRESS.search(line)]


def taciturn_json(*args: str | Path, cwd: Path | None = None, torch: bool = False) -> dict[str, Any]:
    """Run a command with --json and return the JSON object, which must be all of stdout."""
    found: dict[str, Any] = json.loads(taciturn(*args, "--json", cwd=cwd, torch=torch).stdout)
    return found


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; `what` names it if it never does."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} never came"
        time.sleep(0.005)


def wait_for_rows(out: Path, rows: int) -> None:
    """Wait until a run has written this many evaluations."""
    metrics = out / "metrics.jsonl"
    wait_for(lambda: metrics.is_file() and metrics.read_bytes().count(b"\n") >= rows, f"row {rows} of {metrics}")


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of the test, in which conftest sets XDG_STATE_HOME."""
    return {**os.environ, "COLUMNS": "100", **changes}
