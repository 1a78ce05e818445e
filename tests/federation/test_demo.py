"""The demonstration: real processes with mutual TLS and crashes give the same bits as one process."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import pytest

from taciturn.errors import InputError
from taciturn.federation.demo import _demo_folder
from taciturn.federation.identity import Identity
from taciturn.federation.site_operations import site_status
from tests.cli.helpers import COMMAND, environment, taciturn_json

pytestmark = pytest.mark.federation

ROUNDS = 18


@pytest.fixture(scope="module")
def place(on_disk: Path) -> Path:
    """The folder of a finished demonstration."""
    folder = on_disk / "demo"
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
    assert found["away"]["rounds"] > 0 and found["away"]["seconds"] > 0
    assert Path(found["folder"]) == place


def test_every_site_has_the_model_signed(place: Path) -> None:
    coordinator = Identity.open(place / "coordinator.identity").public
    for site in ("north", "south", "west"):
        (study,) = site_status(place / "sites" / site / "site.toml")["studies"]
        assert study["model"] == f"signed by the coordinator {coordinator.fingerprint}"


def test_files_are_kept_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator gets their path; a temporary folder is removed after success."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said: list[str] = []
    with pytest.raises(InputError, match="too early"), _demo_folder(None, said.append) as root:
        (root / "coordinator.txt").write_text("why")
        raise InputError("the coordinator has ended too early")
    assert str(root) in said[0] and f"files stay in {root}" in said[1]
    assert (root / "coordinator.txt").read_text() == "why"
    with _demo_folder(None, said.append) as other:
        assert other.is_dir()
    assert not other.exists() and len(said) == 3


def test_budgets_are_never_less_than_what_left(place: Path) -> None:
    found = json.loads((place / "result.json").read_text())
    assert found["ledgers_cover_uploads"] is True
    assert 0 < found["budget_spent"] <= found["budget_planned"]
    for site, spent in found["spent_by_site"].items():
        assert 0 < found["answered"][site] <= ROUNDS
        if found["answered"][site] == ROUNDS:  # on a busy machine a site may come late
            assert spent == found["budget_planned"]
    assert found["answered"]["south"] < ROUNDS  # it was missed, and came back
    assert found["non_private"] == "seeded"


def test_every_site_can_say_what_left(place: Path) -> None:
    for site in ("north", "south", "west"):
        path = place / "sites" / site / "site.toml"
        found = taciturn_json("federation", "site", "transcript", path)
        assert found["covered"] is True
        kinds = [line["kind"] for line in found["departures"]]
        assert kinds.count("answer") >= 1
        assert set(kinds) <= {"ready", "answer", "answer again", "closed"}


def test_the_reports_say_that_seeded_noise_protects_nobody(place: Path) -> None:
    folders = [place / "run", *(place / "sites").glob("*/state/studies/*")]
    assert len(folders) == 4
    for folder in folders:
        assert "No guarantee (non_private: seeded)" in (folder / "report.html").read_text()
