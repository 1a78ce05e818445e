"""`taciturn theory`: the theorems on seeded problems and on the records of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from taciturn.research.theory.theorem_checks import check_covered
from taciturn.settings import resolve
from tests.cli.helpers import CLINICS, messages, refused, taciturn, taciturn_json


def test_the_three_theorems_on_seeded_problems(tmp_path: Path) -> None:
    shown = taciturn("theory", "--rounds", "25", "--seeds", "2", "--epsilon", "0.25,1", cwd=tmp_path)
    assert (tmp_path / "theory.png").stat().st_size > 50_000
    lines = shown.stdout.splitlines()
    assert "at ε = 1, T = 25, 2 seeds" in lines[0]
    assert [line.split()[:2] for line in lines[4:7]] == [["1", "smooth"], ["2", "nonsmooth"], ["3", "strong"]]
    assert [len(line.split()) for line in lines[4:7]] == [8, 8, 8]  # nothing in ε: two points are no line
    for number in (1, 2, 3):
        verdict = next(line for line in lines if line.startswith(f"theorem {number}: holds"))
        assert verdict.endswith("no exponent in ε: a fit takes 3 points, each above 0")
    assert "assumption 2 (i): ‖λᵗ‖" in shown.stdout
    assert lines[-3].startswith("proposition 1: at ℓ = 1, 10, 100, 1,000, 10,000 the penalised solution is 0.26, ")
    assert lines[-2].startswith("proposition 2: over 4,000 outputs the largest |ln ratio| of")
    assert lines[-1] == "picture  theory.png"


def test_the_fewest_rounds_fit_a_terminal_of_80_columns(tmp_path: Path) -> None:
    shown = taciturn("theory", "--rounds", "10", "--seeds", "2", "--epsilon", "1e-6,1,1e6", cwd=tmp_path)
    assert messages(shown.stderr) == []  # a fit to one point would warn
    lines = shown.stdout.splitlines()
    assert "…" not in shown.stdout and max(map(len, lines[:7])) <= 80
    assert lines[3].split() == ["theorem", "measured", "bound", "ratio", "in", "T", "in", "ε", "promised"]
    found = taciturn_json("theory", "--rounds", "10", "--seeds", "2", "--epsilon", "1", "--out", tmp_path / "x.svg")
    assert [one["exponent"] for one in found["theorems"][0]["by_updates"]] == [None] * 4
    assert found["theorems"][0]["in_epsilon"]["measured"] is None
    assert found["proposition_1"]["l"][-1] == 1e4 and found["proposition_1"]["box"][-1] < 1e-3
    assert found["proposition_2"]["public"] < found["proposition_2"]["epsilon"] < found["proposition_2"]["paper"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("theory") / "run"
    steps = ("--set", "box", "--eta", "nonsmooth", "--rho", "1", "--rounds", "12", "--epsilon", "0.5,5", "--seeds", "2")
    taciturn("run", *CLINICS, "--algorithm", "objp,objpm", *steps, "--out", out)
    return out


def test_a_runs_own_records_stay_with_their_owner(run: Path, tmp_path: Path) -> None:
    shown = taciturn("theory", run)
    assert "for their owner" in shown.stderr
    picture = run / "local-only" / "theory.png"
    assert picture.is_file() and (run / "local-only" / "README.txt").is_file()
    assert f"picture  {picture}" in shown.stdout.replace("\n", "")
    for words in ("objp, theorem 2, T = 12, E = 1, 2 seeds", "objpm, theorem 2, T = 12, E = 10", "P U₂² / (2 E √T)"):
        assert words in shown.stdout
    assert not list(run.glob("*.png"))
    found = taciturn_json("theory", run, "--gamma", "0.001", "--out", tmp_path / "x.svg")
    assert (tmp_path / "x.svg").is_file() and "owner" in found["note"]
    one = found["theorems"][0]
    assert one["gamma"] == 0.001 and [f["epsilon"] for f in one["findings"]] == [0.5, 5.0]
    assert one["findings"][0]["verdict"] == "holds"
    assert one["findings"][0]["broken"][0]["assumption"] == "1 (ii)"
    assert one["optimum"]["accuracy"] < 1e-6
    last = one["findings"][0]["measured"][-1]["value"]
    assert 0.0 < last < one["findings"][0]["corrected"][-1]


def test_runs_that_the_theorems_do_not_cover_are_refused(run: Path, tmp_path: Path) -> None:
    few = ("--rounds", "2", "--epsilon", "1")
    taciturn("run", *CLINICS, "--algorithm", "outp", *few, "--out", tmp_path / "outp")
    taciturn("run", *CLINICS, "--algorithm", "objp", *few, "--out", tmp_path / "all")
    own = ("--rounds", "2", "--epsilon", "0.001,0.01,0.1,1,10,100", "--set", "box", "--eta", "0.1")
    taciturn("run", *CLINICS, "--algorithm", "objp", *own, "--out", tmp_path / "own")
    with pytest.raises(ValueError, match="need a run of --mode paper"):
        check_covered(resolve({}))
    assert "objp and objpm; this run has outp" in refused("theory", tmp_path / "outp")
    assert "use --set box or l2-ball" in refused("theory", tmp_path / "all")
    shown = taciturn("theory", tmp_path / "own").stdout
    assert "ηᵗ is not the theorem's 1 / √t" in shown
    assert "objp: not covered at ε = 0.001, 0.01, 0.1, 1, 10, 100\n" in shown
    tables = [line.count("ε =") for line in shown.splitlines() if line.startswith("term")]
    assert tables == [5, 1] and "…" not in shown  # more than five are too wide for the tests' 100 columns
    assert "--epsilon and --rounds cannot be given with RUN" in refused(
        "theory", run, "--rounds", "20", "--epsilon", "1"
    )
    for gamma in ("-1", "nan", "inf", "1e300"):
        assert f"gamma is {float(gamma):g}" in refused("theory", "--gamma", gamma)
    assert "such as 0.5,1" in refused("theory", "--epsilon", "a")
    for epsilon in ("0", "1e-300", "1e300", "inf", "nan"):
        told = f"epsilon is {float(epsilon):g}: for the theorems it must be at least 1e-06 and at most 1e+06"
        assert told in refused("theory", "--epsilon", f"1,{epsilon}")
    with pytest.raises(ValueError, match=r"epsilon is 1e-300: .* at least 1e-06"):
        check_covered(resolve({"mode": "paper", "set": "box", "epsilon": "1e-300,inf"}))
    assert "does not end in a picture's format" in refused("theory", "--out", "x.txt")
