"""A frontier from the first command to the figure: interrupted and continued, with private figures in local-only."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import taciturn
from taciturn.errors import Interrupted
from taciturn.experiments import Frontier
from taciturn.reporting.intervals import interval
from taciturn.runs.folder import RunFolder
from tests.cli.helpers import CERTIFIED, EXAMPLE, TABLE, refused, taciturn_json
from tests.cli.helpers import taciturn as command

ASKED = (
    *("--rounds", "4", "--features", "none", "--algorithm", "objp,dpgd", "--trust", "agents,secure-sum"),
    *("--total-epsilon", "1,4"),
)
KEYWORDS: dict[str, Any] = {
    "data": EXAMPLE / "records.csv",
    "schema": EXAMPLE / "schema.toml",
    **{
        "test_share": 0.25,
        "partition_key": 0,
        "total_records": 600,
        "agents": 3,
        "rounds": 4,
        "features": "none",
        "algorithm": ["objp", "dpgd"],
    },
    **{"trust": ["agents", "secure-sum"], "total_epsilon": [1, 4], "seed": 1, "seeds": 2},
}
COMMAND = ("frontier", *CERTIFIED, *ASKED, "--seed", "1", "--seeds", "2")
NAMES = {"frontier.json", "frontier.csv", "frontier.md", "frontier.png", "frontier.svg"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A frontier that was stopped in its second run folder, and ended by the command line."""
    out = tmp_path_factory.mktemp("frontier") / "f"
    rounds: list[int] = []
    with pytest.raises(Interrupted):
        taciturn.frontier(**KEYWORDS, out=out, watch=lambda p: rounds.append(p.done), stop=lambda: len(rounds) > 9)
    assert (out / "runs" / "2-features=none-trust=secure-sum").is_dir()
    assert {path.name for path in (out / "local-only").iterdir()} == {"README.txt", "partition.key"}
    shown = command("frontier", "--resume", out)
    (out.parent / "shown").write_text(shown.stdout)
    assert "together would spend epsilon" in shown.stderr
    return out


def document(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "local-only" / "frontier.json").read_text())
    return found


def test_every_point_has_its_settings_and_its_cost(place: Path) -> None:
    found = document(place)
    assert [(p["trust"], p["total_epsilon"], p["algorithm"]) for p in found["points"]] == [
        *(("agents", epsilon, name) for epsilon in (1.0, 4.0) for name in ("objp", "dpgd")),
        *(("secure-sum", epsilon, "dpgd") for epsilon in (1.0, 4.0)),
    ]
    for point in found["points"]:
        summary = RunFolder(place / "runs" / point["run"]).read_summary()
        asked = point["algorithm"], point["total_epsilon"]
        mine = [i for i, run in enumerate(summary["runs"]) if (run["algorithm"], run["epsilon"]) == asked]
        errors = [summary["runs"][i]["test_error"] for i in mine]
        spent = [run["spent_epsilon"] for run in summary["privacy"]["runs"] if run["run"] in mine]
        assert point["spent_epsilon"] == max(spent) <= point["total_epsilon"] * (1.0 + 1e-9)
        mean = interval(errors)
        assert (point["test_error"], point["low"], point["high"], point["seeds"]) == mean
        assert (point["lowest"], point["highest"]) == (min(errors), max(errors))
        assert point["bytes_up"] == point["bytes_down"] == 11 * 2 * 8 * 4  # features and intercept, classes, rounds
        assert (point["data"], point["features"], point["delta"], point["rounds"]) == ("records", "none", 1e-6, 4)
    assert found["given_by_hand"] == {"rounds": 4} and "rounds 4" in found["chosen"][0]
    assert "planner" in found["chosen"][1]
    assert len(found["left_out"]) == 1 and "objp under secure-sum" in found["left_out"][0]
    assert found["all_runs"][0]["runs"] == 12 and found["all_runs"][0]["epsilon"] > 10.0


def test_what_is_shown_and_written_is_the_same(place: Path) -> None:
    shown, found = (place.parent / "shown").read_text(), document(place)
    with (place / "local-only" / "frontier.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["test_error"]) for row in rows] == [point["test_error"] for point in found["points"]]
    own = (place / "local-only" / "frontier.md").read_text()
    for point in found["points"]:
        mean = f"{100 * point['test_error']:.2f} ± "
        assert mean in shown and f"{mean}" in own
    assert shown.count(" *  ") == 4 and own.count(" | * | ") == 4
    assert "for the owner of the records only" in shown and "For the owner of the records only" in own
    assert f"are in {place / 'local-only'}" in shown.replace("\n", "")
    assert all(run in shown for run in found["again"].values())


def test_errors_are_only_in_local_only(place: Path) -> None:
    assert {path.name for path in (place / "local-only").iterdir()} == {*NAMES, "README.txt", "partition.key"}
    assert {path.name for path in place.iterdir()} == {"frontier.toml", "frontier.md", "local-only", "runs"}
    public = (place / "frontier.md").read_text()
    assert "`local-only`" in public and "%" not in public and "taciturn run" not in public
    assert (place / "local-only" / "frontier.png").read_bytes()[1:4] == b"PNG"


def test_the_command_it_ends_with_trains_that_point_again(place: Path, tmp_path: Path) -> None:
    found = document(place)
    words = shlex.split(found["again"]["secure-sum"])
    again = taciturn_json(*words[1:], "--out", tmp_path / "r")
    point = next(p for p in found["points"] if p["trust"] == "secure-sum" and p["total_epsilon"] == 1.0)
    assert interval([run["test_error"] for run in again["runs"]]).mean == point["test_error"]


def test_the_same_again_changes_nothing_and_another_frontier_is_refused(place: Path, tmp_path: Path) -> None:
    models = {path: path.stat().st_mtime_ns for path in place.glob("runs/*/model.npz")}
    before = document(place)
    done = taciturn.frontier(**KEYWORDS, out=place)
    assert len(models) == 2 and {path: path.stat().st_mtime_ns for path in models} == models
    assert isinstance(done, Frontier) and done.summary == before
    assert [point.to_json() for point in done.points] == before["points"]
    assert done.table() in (place / "local-only" / "frontier.md").read_text()
    done.picture(tmp_path / "p.svg")
    drawn = (tmp_path / "p.svg").read_text()
    assert "dpgd, secure-sum" in drawn and "for the owner of the records only" in drawn
    other = refused(*COMMAND, "--clip", "1", "--out", place)
    assert other == f"{place} holds another frontier: its clip is auto, and now it is 1; choose another --out"


def test_public_test_records_need_no_secrecy_and_one_seed_gives_no_interval(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "records.csv", tmp_path / "public.csv")
    asked = ("--total-records", "600", "--agents", "3", "--test", tmp_path / "public.csv", "--rounds", "1")
    one = ("--algorithm", "dpgd", "--trust", "server", "--total-epsilon", "inf", "--seeds", "1")
    found = taciturn_json("frontier", *TABLE, *asked, *one, "--out", tmp_path / "f")
    assert {path.name for path in (tmp_path / "f").iterdir()} == {*NAMES, "frontier.toml", "runs", "local-only"}
    assert not found["local_only"] and found["points"][0]["frontier"] and found["points"][0]["low"] is None
    page = (tmp_path / "f" / "frontier.md").read_text()
    assert "one seed, so no interval" in page and "owner" not in page and "no noise" in page


def test_invalid_requests_are_refused_before_training(tmp_path: Path) -> None:
    shown = command(*COMMAND, "--dry-run", "--out", tmp_path / "f").stdout
    assert "2 points, 12 runs; nothing was trained" in shown and "left out: objp under secure-sum" in shown
    assert not (tmp_path / "f").exists()
    assert "--test-share" in refused("frontier", *TABLE, "--seed", "1", "--total-records", "600", "--agents", "3")
    assert "frontier.toml" in refused("frontier", "--resume", tmp_path, "--clip", "1")
    assert "is not a frontier: it has no frontier.toml" in refused("frontier", "--resume", tmp_path)
