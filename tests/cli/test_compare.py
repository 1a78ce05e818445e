"""`taciturn compare` for a user who looks for the best method within a budget."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.helpers import CERTIFIED, CLINICS, refused, taciturn, taciturn_json

OWNER = "for the owner of the records"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private run of two methods and budgets, and one of mode paper."""
    folder = tmp_path_factory.mktemp("compare")
    methods = ("--algorithm", "outp,erm-outp", "--total-epsilon", "3,inf", "--seed", "1", "--seeds", "3")
    taciturn("run", *CERTIFIED, "--rounds", "10", *methods, "--out", folder / "a")
    taciturn("run", *CLINICS, "--rounds", "2", "--algorithm", "outp", "--epsilon", "3", "--out", folder / "b")
    return folder


def test_the_methods_of_a_run_best_first(runs: Path) -> None:
    done = taciturn("compare", runs / "a", "--out", runs / "a.svg")
    found = taciturn_json("compare", runs / "a")
    ranked = found["ranking"]
    means = [row["test_error"]["mean"] for row in ranked]
    assert means == sorted(means) and len(means) == 4
    assert {row["rounds"] for row in ranked if row["algorithm"] == "erm-outp"} == {1}
    assert all(2.99 < row["spent_epsilon"] <= 3.0 for row in ranked if row["epsilon"] == 3.0)
    assert {row["test_error"]["n"] for row in ranked if row["epsilon"] == 3.0} == {3}
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == [row["algorithm"] for row in ranked]
    assert all("…" not in line for line in lines) and sum("(central)" in line for line in lines) == 2
    assert any(line.startswith("erm-outp  approximate, in total, against all but the curator") for line in lines)
    assert lines[-1] == f"figure  {runs / 'a.svg'}"
    picture = (runs / "a.svg").read_text()
    assert picture.count("erm-outp, ") == 2 and OWNER in picture
    assert OWNER in done.stderr and found["local_only"] is True and found["settings"] == {}
    table = taciturn("compare", runs / "a", "--markdown").stdout.splitlines()
    assert len(table) == 6 and {line.count("|") for line in table} == {10}


def test_several_runs_side_by_side_and_in_one_list(runs: Path) -> None:
    shutil.copytree(runs / "b", runs / "c")
    found = taciturn_json("compare", runs / "a", runs / "b", runs / "c", "--out", runs / "three.png")
    assert found["runs"] == ["a", "b", "c"] and found["settings"]["rounds"] == [10, 2, 2]
    errors = found["test_error"]["outp, ε = 3"]
    assert None not in errors and errors[0] != errors[1] == errors[2]
    assert found["test_error"]["outp, no noise"][1:] == [None, None]
    assert found["picture"] == str(runs / "three.png") and (runs / "three.png").is_file()
    two = taciturn("compare", runs / "a", runs / "b").stdout
    assert f"{100 * (errors[1] - errors[0]):+.2f} %" in two and "difference" in two
    three = taciturn("compare", runs / "a", runs / "b", runs / "c", "--markdown").stdout
    assert "difference" not in three and "| setting | a | b | c |" in three
    ranked = taciturn("compare", runs / "a", runs / "b", "--ranked").stdout
    assert "a: outp " in ranked and "b: outp " in ranked and "a: erm-outp" not in ranked


def test_what_cannot_be_compared_is_refused_in_a_sentence(runs: Path, tmp_path: Path) -> None:
    assert "there is no run folder" in refused("compare", runs / "a", tmp_path / "none")
    assert "is not a run folder" in refused("compare", tmp_path)
    assert "choose one" in refused("compare", runs / "a", "--json", "--markdown")
    assert "picture's format" in refused("compare", runs / "a", "--out", tmp_path / "p.xyz")
    (tmp_path / "config.toml").write_text("")
    assert "has not ended: continue it with" in refused("compare", runs / "a", tmp_path)


def test_runs_that_were_tested_on_other_records_are_said_to_be(runs: Path, tmp_path: Path) -> None:
    words = "not tested on the same records"
    same = taciturn("compare", runs / "a", runs / "b")  # another mode, the same records held out
    assert words not in same.stderr and taciturn_json("compare", runs / "a", runs / "b")["other_test_records"] == []
    swapped = [word if word != "0" else "1" for word in CERTIFIED]
    taciturn("run", *swapped, "--rounds", "2", "--out", tmp_path / "other")
    done = taciturn("compare", runs / "a", tmp_path / "other")
    assert words in done.stderr and "partition-key, number of test records differ" in done.stderr
    assert words in taciturn("compare", runs / "a", tmp_path / "other", "--ranked").stderr
    assert words in taciturn("compare", runs / "a", tmp_path / "other", "--markdown").stderr
