"""`taciturn runs`, and what leads people to a command or an option that they name otherwise."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.helpers import refused, taciturn, taciturn_json

HEART = Path("examples/heart").resolve()


def test_runs_are_listed_newest_first_and_a_damaged_one_does_not_hide_the_others(tmp_path: Path) -> None:
    table = ("--data", HEART / "heart.csv", "--schema", HEART / "schema.toml", "--total-records", "700")
    taciturn("run", "--rounds", "2", "--features", "none", "--out", "runs/first", cwd=tmp_path)
    more = ("--test-share", "0.25", "--total-epsilon", "1,3", "--rounds", "3", "--out", "runs/deep/second")
    taciturn("run", *table, *more, cwd=tmp_path)
    damaged = tmp_path / "runs" / "third"
    damaged.mkdir()
    (damaged / "start.json").write_text("{")
    os.utime(damaged, (0, 0))
    done = taciturn("runs", cwd=tmp_path)
    first, *rows = done.stdout.splitlines()
    assert first.split() == ["run", "started", "state", "methods", "total", "ε", "data", "test", "error"]
    places = {
        name: place for place, row in enumerate(rows) for name in ("deep/second", "first", "third") if name in row
    }
    assert places["deep/second"] < places["first"]
    assert "damaged" in rows[places["third"]]
    second = rows[places["deep/second"]]
    assert "finished" in second and "additive" in second and "1, 3" in second and "heart" in second and "%" in second
    assert "for the owner of the records only" in done.stderr
    listed = taciturn_json("runs", "runs/deep", cwd=tmp_path)["runs"]
    assert [(row["name"], row["state"], row["planned"]) for row in listed] == [("second", "finished", 3)]
    (tmp_path / "empty").mkdir()
    assert "there are no runs in empty" in taciturn("runs", "empty", cwd=tmp_path).stderr
    assert json.loads(taciturn("runs", "empty", "--json", cwd=tmp_path).stdout)["runs"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train",), "no command 'train': use 'taciturn run'"),
        (("ls",), "no command 'ls': use 'taciturn runs'"),
        (("run", "--eps", "1"), "no such option '--eps': --total-epsilon is the budget of all rounds together"),
        (("plan", "--budget", "1"), "no such option '--budget': --total-epsilon is the budget"),
        (("data", "train"), "no command 'train': there are"),
        (("runs", "nowhere"), "there is no folder nowhere"),
    ],
)
def test_other_names_lead_to_the_right_ones(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    assert said in refused(*words, cwd=tmp_path)


def test_a_command_without_a_budget_names_none(tmp_path: Path) -> None:
    said = refused("show", "--eps", "1", cwd=tmp_path)
    assert "no such option '--eps'" in said and "total-epsilon" not in said
