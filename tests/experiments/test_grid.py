"""Grids of sweeps: which runs share a folder, invalid requests, and that the request restores the grid."""

from __future__ import annotations

import re
from typing import Any

import pytest

from taciturn.errors import InputError
from taciturn.experiments.cost import estimate_cost
from taciturn.experiments.grid import Grid, sweep_grid
from taciturn.experiments.runner import choose_comparison
from tests.cli.helpers import EXAMPLE

TABLE = {"data": str(EXAMPLE / "records.csv"), "schema": str(EXAMPLE / "schema.toml")}
CLINICS: dict[str, Any] = {
    **TABLE,
    "test_share": 0.25,
    "total_records": 400,
    "agents": 3,
    "rounds": 3,
    "noise": "seeded",
}


def grid(over: dict[str, Any], **more: Any) -> Grid:
    return sweep_grid({}, {**CLINICS, **more}, over)


def test_only_what_cannot_be_batched_makes_points() -> None:
    found = grid({"algorithm": "objp,objpm", "clip": [0.5, 1, 2], "total-epsilon": "1,3,inf", "rho": "auto,2"}, seeds=5)
    assert len(found.points) == 6 and found.runs == 6 * 2 * 3 * 5
    assert found.between == ("clip", "rho")
    assert [point.values for point in found.points][:3] == [
        {"clip": 0.5, "rho": "auto"},
        {"clip": 0.5, "rho": 2.0},
        {"clip": 1.0, "rho": "auto"},
    ]
    assert found.points[1].name == "2-clip=0.5-rho=2"
    assert all(point.settings.algorithm == ("objp", "objpm") for point in found.points)
    assert len({point.name for point in found.points}) == 6


def test_the_stored_request_restores_the_same_grid() -> None:
    found = grid({"algorithm": "objp,objpm", "clip": [0.5, 1.0], "partition": "shuffled,dirichlet"}, seeds=2)
    written = found.request()
    again = sweep_grid({}, written["settings"], written["over"])
    assert again == found and again.request() == written
    assert written["settings"]["delta"] == 1e-6 and "clip" not in written["settings"]  # complete, each thing once


@pytest.mark.parametrize(
    ("over", "more", "words"),
    [
        ({}, {}, "nothing is swept"),
        ({"clap": [1]}, {}, r"no setting 'clap' \(did you mean 'clip'"),
        ({"seeds": [1, 2]}, {}, "seeds cannot be swept"),
        ({"out": ["a"]}, {}, "out cannot be swept"),
        ({"clip": [1, 2]}, {"clip": 1.0}, "clip is both swept and given"),
        ({"clip": "1,1"}, {}, "clip names 1.0 twice"),
        ({"clip": "1,-1"}, {}, "clip is -1: it must be above 0"),
        ({"clip": ""}, {}, "clip is : it must be a number|clip is '': it must be a number"),
        ({"clip": [1, 2]}, {"test_share": 0.0}, "this table has no test records"),
        ({"total_epsilon": "1,3", "algorithm": "iadmm"}, {}, "iadmm has no certified form|adds no noise"),
        ({"clip": [1, 2]}, {"noise": "hardened", "seeds": 3}, "hardened noise has no seeds"),
    ],
)
def test_refusals(over: dict[str, Any], more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        grid(over, **more)


def test_what_is_choose_comparison() -> None:
    both = grid({"algorithm": "objp,objpm", "clip": [1, 2], "total_epsilon": "1,3"})
    assert choose_comparison(both, []) == ("algorithm",)
    assert choose_comparison(both, ["total-epsilon", "clip"]) == ("epsilon", "clip")
    assert choose_comparison(grid({"clip": [1, 2]}), []) == ("clip",)
    with pytest.raises(InputError, match=r"rho.*algorithm, clip, eps"):
        choose_comparison(both, ["rho"])


def test_the_total_cost_is_given_for_the_same_records_and_adjacency() -> None:
    one, two = grid({"clip": [1.0]}, total_epsilon=2), grid({"clip": [1.0, 2.0]}, total_epsilon=2, seeds=2)
    alone, together = estimate_cost(one), estimate_cost(two)
    assert alone.spending[0].epsilon == pytest.approx(2.0, rel=1e-3) and alone.rounds == (3,)
    assert 2.0 * 2.0 < together.spending[0].epsilon < 4 * 2.0 and together.spending[0].runs == 4
    assert "All 4 runs together would spend epsilon" in together.sentences()[0]
    assert "This is a simulation" in together.sentences()[0]
    apart = estimate_cost(grid({"adjacency": "add-remove,replace-one"}, total_epsilon="2,inf"))
    assert [one.without_noise for one in apart.spending] == [1, 1]  # sums over both would hold for neither
    assert "no finite epsilon (1 of them" in apart.sentences()[0]
    paper = sweep_grid({}, {**TABLE, "test_share": 0.25, "mode": "paper", "rounds": 7}, {"algorithm": "objp,objpm"})
    assert estimate_cost(paper).rounds == (14,) and re.search(
        "no end-to-end guarantee", estimate_cost(paper).sentences()[0]
    )
