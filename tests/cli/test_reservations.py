"""What a killed process leaves in a data set's ledger."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import (
    CERTIFIED,
    EXAMPLE,
    refused,
    started,
    taciturn,
    taciturn_json,
    wait_for,
    wait_for_rows,
)
from tests.cli.warm import Process

SCHEMA = str(EXAMPLE / "schema.toml")
HARDENED = ("--noise", "hardened", "--ledger", "l")
LONG = ("run", *CERTIFIED, "--rounds", "1200", "--evaluate-every", "10", *HARDENED)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    taciturn("ledger", "init", "l", "--total-epsilon", "1.3", cwd=tmp_path)
    return tmp_path / "l"


def studies(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = taciturn_json("ledger", "l", cwd=folder)["studies"]
    return found


def start(folder: Path, *args: str) -> Process:
    return started(*args, cwd=folder)


def kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def wait_for_line(ledger: Path, kind: str) -> None:
    wait_for(lambda: f'"kind": "{kind}"' in ledger.read_text(), f"a line {kind}")


def slow_table(folder: Path) -> tuple[str, ...]:
    """A table that takes a while to read, so that a process can be killed meanwhile."""
    header, *rows = (EXAMPLE / "records.csv").read_text().splitlines()
    (folder / "slow.csv").write_text("\n".join([header, *(rows * (200_000 // len(rows)))]) + "\n")
    return ("run", "--data", "slow.csv", "--schema", SCHEMA, "--total-records", "300000", "--agents", "3", *HARDENED)


def test_the_budget_of_a_run_killed_before_it_started_can_be_given_back(ledger: Path, tmp_path: Path) -> None:
    process = start(tmp_path, *slow_table(tmp_path), "--out", "r")
    wait_for_line(ledger, "reserve")
    (one,) = studies(tmp_path)
    assert one["state"] == "reserved" and one["held"]
    assert "a process is working under it" in taciturn("ledger", "l", cwd=tmp_path).stdout
    assert "by another process" in refused("ledger", "give-back", "l", one["reservation"], cwd=tmp_path)
    assert "nothing to give back" in taciturn("ledger", "give-back", "l", "--all", cwd=tmp_path).stdout
    kill(process)
    assert not (tmp_path / "r").exists()
    assert "is exhausted" in refused("run", *CERTIFIED, *HARDENED, "--out", "s", cwd=tmp_path)
    (one,) = studies(tmp_path)
    assert one["state"] == "reserved" and not one["held"]
    assert "never started: 'taciturn ledger give-back l" in taciturn("ledger", "l", cwd=tmp_path).stdout
    taciturn("ledger", "give-back", "l", one["reservation"][:6], cwd=tmp_path)
    (one,) = studies(tmp_path)
    assert (one["state"], one["cost"]["gdp"]) == ("given back", 0.0)
    assert "already given back" in refused("ledger", "give-back", "l", one["reservation"], cwd=tmp_path)
    taciturn("run", *CERTIFIED, "--rounds", "3", *HARDENED, "--out", "s", cwd=tmp_path)
    assert [(study["study"], study["state"]) for study in studies(tmp_path)] == [("r", "given back"), ("s", "settled")]


def test_a_run_killed_after_it_started_is_never_given_back(ledger: Path, tmp_path: Path) -> None:
    """Not even when its folder is gone, for that proves nothing; resumed, it is settled."""
    process = start(tmp_path, *LONG, "--out", "r")
    wait_for_rows(tmp_path / "r", 1)
    process.send_signal(signal.SIGSTOP)  # what sleeps holds its reservation
    kinds = [line.split('"kind": "')[1].split('"')[0] for line in ledger.read_text().splitlines()]
    assert kinds == ["taciturn data ledger", "reserve", "started"]
    assert "r is being trained by another process" in refused("resume", "r", cwd=tmp_path)
    kill(process)
    (one,) = studies(tmp_path)
    assert (one["state"], one["held"], one["folder"]) == ("started", False, str(tmp_path / "r"))
    assert str(tmp_path) not in ledger.read_text()
    assert f"'taciturn resume {tmp_path / 'r'}' continues it" in taciturn("ledger", "l", cwd=tmp_path).stdout
    assert "nothing to give back" in taciturn("ledger", "give-back", "l", "--all", cwd=tmp_path).stdout
    (tmp_path / "r").rename(tmp_path / "elsewhere")
    assert "has started and cannot be given back" in refused(
        "ledger", "give-back", "l", one["reservation"], cwd=tmp_path
    )
    assert "its folder is not known here" in taciturn("ledger", "l", cwd=tmp_path).stdout
    assert studies(tmp_path)[0]["cost"]["gdp"] == one["cost"]["gdp"]
    taciturn("resume", "elsewhere", cwd=tmp_path)
    (after,) = studies(tmp_path)
    assert after["state"] == "settled" and after["cost"]["gdp"] <= one["cost"]["gdp"]
    (tmp_path / "elsewhere" / "report.html").unlink()
    taciturn("resume", "elsewhere", cwd=tmp_path)  # what has ended is made whole, and settled once
    assert (tmp_path / "elsewhere" / "report.html").is_file()
    assert studies(tmp_path) == [after]


def test_give_back_needs_exactly_one_matching_reservation(ledger: Path, tmp_path: Path) -> None:
    assert "or --all" in refused("ledger", "give-back", "l", cwd=tmp_path)
    assert "no reservation 'abc'" in refused("ledger", "give-back", "l", "abc", cwd=tmp_path)
