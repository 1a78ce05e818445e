"""The demonstration: real processes with mutual TLS, a site and the server killed, and the bits of one process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.helpers import COMMAND, environment

pytestmark = pytest.mark.federation

ROUNDS = 24


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demonstration that was played to its end."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    words = ("federation", "demo", "--json", "--rounds", str(ROUNDS), "--out", str(folder))
    done = subprocess.run(
        [*COMMAND, *words], env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    (folder / "result.json").write_text(done.stdout)
    return folder


def test_crashes_change_nothing(place: Path) -> None:
    found = json.loads((place / "result.json").read_text())
    assert found["rounds"] == ROUNDS
    assert found["sites"] == 3
    assert found["restarts"] == 2
    assert found["identical_to_simulation"] is True
    assert found["duals_equal"] is True
    assert found["test_error"] < 0.2
    assert found["ms_per_round"] > 0


def test_budgets_are_never_less_than_what_left(place: Path) -> None:
    found = json.loads((place / "result.json").read_text())
    assert found["ledgers_cover_uploads"] is True
    assert found["budget_spent"] == found["budget_planned"]  # of the sites that answered every round
    assert all(spent <= found["budget_planned"] for spent in found["spent_by_site"].values())
    assert found["answered"]["north"] == found["answered"]["west"] == ROUNDS
    assert 0 < found["answered"]["south"] < ROUNDS  # it was missed, and came back
    assert found["non_private"] == "seeded"


def test_every_site_can_say_what_left(place: Path) -> None:
    for site in ("north", "south", "west"):
        path = place / "kits" / site / "site.toml"
        words = ("federation", "site", "transcript", str(path), "--json")
        done = subprocess.run([*COMMAND, *words], env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["covered"] is True
        kinds = [line["kind"] for line in found["departures"]]
        assert kinds.count("answer") >= 1
        assert set(kinds) <= {"ready", "answer", "answer again", "closed"}


def test_the_reports_say_that_seeded_noise_protects_nobody(place: Path) -> None:
    folders = [place / "run", *(place / "kits").glob("*/state/studies/*")]
    assert len(folders) == 4
    for folder in folders:
        assert "No guarantee (non_private: seeded)" in (folder / "report.html").read_text()
