"""Runs for the dashboard's tests, created once per session."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import taciturn
from tests.cli.helpers import EXAMPLE

TABLE: dict[str, Any] = {"data": EXAMPLE / "records.csv", "schema": EXAMPLE / "schema.toml", "test_share": 0.25}
DECLARED: dict[str, Any] = {"agents": 3, "total_records": 400}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, own_state_folder: None) -> Path:
    """Return a folder of three runs, one of them below a folder; tests must not change it."""
    folder = tmp_path_factory.mktemp("made")
    taciturn.run(**TABLE, **DECLARED, total_epsilon=[1, 3], seed=1, seeds=3, rounds=12, out=folder / "budgets")
    taciturn.run(**TABLE, **DECLARED, total_epsilon=2, noise="hardened", rounds=8, out=folder / "sweep" / "hardened")
    taciturn.run(**TABLE, mode="paper", algorithm=["objp", "outp"], epsilon=[0.5], rounds=9, out=folder / "paper")
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """Return a copy of the runs that a test may change."""
    folder = tmp_path / "runs"
    shutil.copytree(made, folder, symlinks=True)
    return folder
