"""`tacit theory`: the theorems on seeded problems and on a run's own records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.settings import resolve
from tacit.theory.runs import refuse_uncovered
from tests.cli.helpers import CLINICS, refused, tacit, tacit_json


def test_the_three_theorems_on_seeded_problems(tmp_path: Path) -> None:
    shown = tacit("theory", "--rounds", "25", "--seeds", "2", "--epsilon", "0.25,1", cwd=tmp_path)
    assert (tmp_path / "theory.png").stat().st_size > 50_000
    lines = shown.stdout.splitlines()
    assert "at ε = 1, T = 25, 2 seeds" in lines[0]
    assert [line.split()[:2] for line in lines[4:7]] == [["1", "smooth"], ["2", "nonsmooth"], ["3", "strong"]]
    assert all("holds" in line for line in lines[4:7])
    assert "assumption 2 (i): ‖λᵗ‖ came to" in shown.stdout
    assert lines[-1] == "picture  theory.png"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("theory") / "run"
    steps = ("--set", "box", "--eta", "nonsmooth", "--rho", "1", "--rounds", "12", "--epsilon", "0.5,5", "--seeds", "2")
    tacit("run", *CLINICS, "--algorithm", "objp,objpm", *steps, "--out", out)
    return out


def test_a_runs_own_records_stay_with_their_owner(run: Path, tmp_path: Path) -> None:
    shown = tacit("theory", run)
    assert "for their owner alone" in shown.stderr
    picture = run / "local-only" / "theory.png"
    assert picture.is_file() and (run / "local-only" / "README.txt").is_file()
    assert f"picture  {picture}" in shown.stdout.replace("\n", "")
    for words in ("objp, theorem 2, T = 12, E = 1, 2 seeds", "objpm, theorem 2, T = 12, E = 10", "P U₂² / (2 E √T)"):
        assert words in shown.stdout
    assert not list(run.glob("*.png"))
    found = tacit_json("theory", run, "--gamma", "0.001", "--out", tmp_path / "x.svg")
    assert (tmp_path / "x.svg").is_file() and "owner alone" in found["note"]
    one = found["theorems"][0]
    assert one["gamma"] == 0.001 and [f["epsilon"] for f in one["findings"]] == [0.5, 5.0]
    assert one["findings"][0]["verdict"] == "holds"
    assert one["findings"][0]["broken"][0]["assumption"] == "1 (ii)"
    assert one["optimum"]["accuracy"] < 1e-6
    last = one["findings"][0]["measured"][-1]["value"]
    assert 0.0 < last < one["findings"][0]["corrected"][-1]


def test_what_the_theorems_do_not_cover_is_said(run: Path, tmp_path: Path) -> None:
    few = ("--rounds", "2", "--epsilon", "1")
    tacit("run", *CLINICS, "--algorithm", "outp", *few, "--out", tmp_path / "outp")
    tacit("run", *CLINICS, "--algorithm", "objp", *few, "--out", tmp_path / "all")
    tacit("run", *CLINICS, "--algorithm", "objp", *few, "--set", "box", "--eta", "0.1", "--out", tmp_path / "own")
    with pytest.raises(ValueError, match="need a run of --mode paper"):
        refuse_uncovered(resolve({}))
    assert "objp and objpm; this run has outp" in refused("theory", tmp_path / "outp")
    assert "use --set box or l2-ball" in refused("theory", tmp_path / "all")
    assert "ηᵗ is not the theorem's 1 / √t" in tacit("theory", tmp_path / "own").stdout
    assert "--epsilon and --rounds cannot be given with a run" in refused(
        "theory", run, "--rounds", "20", "--epsilon", "1"
    )
    assert "must be at least 0" in refused("theory", "--gamma", "-1")
    assert "such as 0.5,1" in refused("theory", "--epsilon", "a")
    assert "above 0 and finite" in refused("theory", "--epsilon", "0,1")
    assert "does not end in a picture's format" in refused("theory", "--out", "x.txt")
