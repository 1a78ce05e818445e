"""Every benchmark runs at a small size and reports its numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from taciturn.core.storage import to_json
from taciturn.reporting.figures.style import save
from taciturn.research import bench
from taciturn.research.bench.bench_figure import picture
from taciturn.research.bench.benchmark import markdown

ROUND = {"ratio_to_matmul", "speedup_over_plain", "ratio_to_floor", "difference_from_plain", "data"}
NOISE = {"ratio_to_numpy_float64", "ratio_to_numpy_float32", "ratio_to_uniform_float32"}
PROMISED = {
    "mnist-round": ROUND,
    "dense-round": ROUND,
    "batch": {"ratio_to_matmul", "runs", "cost_of_a_run_alone"},
    "agents": {
        "seconds_per_round",
        "ratio_to_matmul",
        "ratio_to_matmul_of_sums",
        "microseconds_per_agent",
        "server_bytes",
    },
    "femnist-noise": NOISE,
    "growth": {"seconds_exponents", "bytes_exponents", "base"},
    "large-data": {"peak_bytes", "record_bytes", "share_in_memory"},
    "peers": {"speedup_over_flower", "speedup_over_appfl"},
    "start-up": {"help_over_bare_python", "seconds_of_first_run", "gigabytes_of_first_run"},
    "ranks": {"speedup_of_two_ranks", "largest_relative_difference"},
}
QUICK = bench.Options(small=True, repeats=1)


@pytest.fixture(autouse=True)
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the other libraries are not installed: they are slow."""
    monkeypatch.setattr("taciturn.research.bench.flower_program.installed", lambda: False)
    monkeypatch.setattr("taciturn.research.bench.peers.installed", lambda: False)


@cache
def run(name: str) -> bench.Report:
    return bench.run(name, QUICK)


def test_all_benchmarks_promise_something() -> None:
    assert set(bench.BENCHMARKS) == set(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
def test_a_benchmark_gives_what_it_promises(name: str, tmp_path: Path) -> None:
    if name == "ranks":
        pytest.importorskip("torch")
    report = run(name)
    found = json.loads(to_json(report.summary()))
    assert found["benchmark"] == name
    assert PROMISED[name] <= set(found)
    assert found["machine"]["cores"] >= 1
    assert report.rows() and all(len(row) == len(report.headings()) for row in report.rows())
    assert all(row[0] in markdown(report) for row in report.rows())
    save(picture(report), tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_a_goal_is_shown_next_to_its_figure() -> None:
    report = replace(run("dense-round"), figures={"a": 0.5, "b": 2.0, "c": "text"}, goals={"a": 0.5, "b": 1.5})
    assert report.figure_rows() == [
        ("a", "0.5", "at most 0.5: met"),
        ("b", "2", "at most 1.5: not met"),
        ("c", "text", ""),
    ]
    assert report.summary()["goals"] == {"a": {"at_most": 0.5, "met": True}, "b": {"at_most": 1.5, "met": False}}
    assert "| b | 2 | at most 1.5: not met |" in markdown(report)


def test_goals_are_for_figures_that_exist_and_not_for_a_trial() -> None:
    for name in bench.BENCHMARKS:
        assert set(bench.BENCHMARKS[name].goals) <= PROMISED[name]
    assert not run("dense-round").goals


def test_ratios_are_those_of_the_times() -> None:
    found: Any = run("dense-round").summary()
    best = {name: timing["best"] for name, timing in found["seconds"].items()}
    products = min(seconds for name, seconds in best.items() if name.startswith("two matrix products"))
    own = best["Taciturn's round"]
    assert found["ratio_to_matmul"] == own / products
    assert found["speedup_over_plain"] == best["the plain round, float64"] / own
    floor = found["seconds_of_floor"]
    assert floor["reading"] == best["reading the records once"]
    assert floor["multiplying"] == best["multiplying at the machine's best pace"] > 0.0
    assert found["ratio_to_floor"] == own / max(floor.values())


def test_the_plain_round_is_the_same_round() -> None:
    """Without noise both give the same model, to float32's precision."""
    assert run("dense-round").figures["difference_from_plain"] < 1e-5


def test_the_server_keeps_as_much_for_few_agents_as_for_many() -> None:
    few, many = run("agents").figures["server_bytes"].values()
    assert few == many > 0


def test_only_one_benchmark_is_long() -> None:
    assert [name for name in bench.BENCHMARKS if bench.BENCHMARKS[name].long] == ["large-data"]


def test_a_trial_and_a_missing_library_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.TRIAL in run("batch").notes
    monkeypatch.setattr("taciturn.research.bench.level", lambda: 0)
    assert bench.UNBUILT in bench.run("batch", QUICK).notes


def test_peers_that_are_not_there_are_named() -> None:
    report = run("peers")
    assert report.figures["speedup_over_flower"] is None
    assert sum("is not installed: left out" in note for note in report.notes) == 2


def test_without_mnist_the_records_say_that_they_are_made_up(tmp_path: Path) -> None:
    options = bench.Options(small=True, repeats=1, data_dir=str(tmp_path))
    assert "synthetic" in bench.run("batch", options).figures["data"]
