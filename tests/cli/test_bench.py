"""`taciturn bench` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taciturn.research.bench import BENCHMARKS
from taciturn.research.bench.repository import repository_programs
from tests.cli.helpers import ROOT, refused, taciturn, taciturn_json

SMALL = ("--small", "--repeats", "1")


def test_without_a_name_the_benchmarks_are_listed() -> None:
    text, programs = taciturn("bench").stdout, repository_programs()
    assert all(name in text for name in (*BENCHMARKS, *programs))
    assert set(taciturn_json("bench")) == {*BENCHMARKS, *programs}
    assert all(f"({BENCHMARKS[name].takes})" in text for name in BENCHMARKS)


def test_a_misspelt_name_is_refused_with_the_nearest(tmp_path: Path) -> None:
    said = refused("bench", "femnist-noise", "mnist-rond", "--out", tmp_path / "out")
    assert "did you mean 'mnist-round'?" in said
    assert "did you mean 'frontier'?" in refused("bench", "frontir")
    assert "run it alone: taciturn bench frontier" in refused("bench", "growth", "frontier")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    assert "is a file" in refused("bench", "growth", "--out", tmp_path / "file")


def test_json_is_one_object_and_the_folder_has_table_and_picture(tmp_path: Path) -> None:
    found = taciturn_json("bench", "mnist-round", *SMALL, "--out", tmp_path / "bench")
    assert {"ratio_to_matmul", "speedup_over_plain", "ratio_to_floor"} <= set(found)
    assert json.loads((tmp_path / "bench" / "mnist-round.json").read_text()) == found
    assert "| Taciturn's round |" in (tmp_path / "bench" / "mnist-round.md").read_text()
    assert {path.suffix for path in (tmp_path / "bench").iterdir()} == {".json", ".md", ".svg", ".png"}


def test_several_benchmarks_run_in_one_command() -> None:
    assert set(taciturn_json("bench", "femnist-noise", "growth", *SMALL)) == {"femnist-noise", "growth"}
    assert "Taciturn takes" in taciturn("bench", "femnist-noise", *SMALL).stdout


def test_a_program_of_the_checkout_has_its_own_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = taciturn("bench", "federation-rounds", "--help").stdout
    assert "usage: taciturn bench federation-rounds" in said and "--rounds" in said
    found = tmp_path / "found.json"
    taciturn("bench", "kernel-speed", "--write", "--out", found)
    committed = json.loads((ROOT / "benchmarks" / "results" / "kernel_speed.json").read_text())
    assert set(json.loads(found.read_text())) == set(committed)


def test_the_exit_code_is_the_programs() -> None:
    taciturn("bench", "kernel-speed", "--wrong", code=2)
