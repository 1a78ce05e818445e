"""Laws of a frontier: one lowest point for each trust model and budget, as measured; the bytes of one agent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.experiments.experiment_figures import frontier_figure
from taciturn.experiments.frontier_results import (
    TERMINAL_COLUMNS,
    FrontierPoint,
    bytes_per_agent,
    error_increases,
    frontier_table,
    mark_lowest,
    retrain_commands,
    table_notes,
)
from taciturn.reporting.intervals import interval

ERRORS = st.lists(st.floats(0.01, 0.9), min_size=1, max_size=3)
TRUSTS, METHODS, MAPS, BUDGETS = ("agents", "server"), ("objp", "dpgd"), ("none", "unit"), (0.5, 1.0, 3.0)


def point(errors: list[float], **more: Any) -> FrontierPoint:
    said: dict[str, Any] = {"data": "clinics", "features": "none", "trust": "agents", "algorithm": "objp"}
    said |= {"epsilon": 1.0, "spent": 1.0, "delta": 1e-6, "rounds": 3, "bytes_up": 528, "bytes_down": 528, "run": "1-a"}
    return FrontierPoint(**{**said, "errors": tuple(errors), "error": interval(errors), **more})


POINTS = st.lists(
    st.builds(
        point,
        ERRORS,
        trust=st.sampled_from(TRUSTS),
        algorithm=st.sampled_from(METHODS),
        features=st.sampled_from(MAPS),
        epsilon=st.sampled_from(BUDGETS),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=50)
@given(POINTS)
def test_one_point_of_a_trust_model_and_budget_is_lowest_and_none_is_below_it(points: list[FrontierPoint]) -> None:
    found = mark_lowest(points)
    assert sorted(one.errors for one in found) == sorted(one.errors for one in points)  # measured, not smoothed
    for trust, epsilon in {(one.trust, one.epsilon) for one in points}:
        there = [one for one in found if (one.trust, one.epsilon) == (trust, epsilon)]
        lowest = [one for one in there if one.lowest]
        assert len(lowest) == 1 and all(lowest[0].error.mean <= one.error.mean for one in there)
    by_trust = [[one.epsilon for one in found if one.trust == trust] for trust in TRUSTS]
    assert all(budgets == sorted(budgets) for budgets in by_trust)


def test_of_two_equal_points_the_cheaper_is_marked() -> None:
    dear, cheap = point([0.1], algorithm="objp"), point([0.1], algorithm="dpgd", bytes_up=100)
    assert [one.algorithm for one in mark_lowest([dear, cheap]) if one.lowest] == ["dpgd"]


def test_a_larger_budget_with_a_higher_error_is_noted() -> None:
    worse = [point([0.2], epsilon=0.5), point([0.1], epsilon=1.0), point([0.15], epsilon=3.0)]
    other = [point([0.05], epsilon=0.5, trust="server"), point([0.04], epsilon=3.0, trust="server")]
    found = mark_lowest([*worse, *other])
    assert [(a.epsilon, b.epsilon) for a, b in error_increases(found)] == [(1.0, 3.0)]
    words = list(table_notes(found, regression=False))
    assert len(words) == 3 and "agents: total epsilon 3" in words[1] and "(15.00 %, 10.00 %)" in words[1]
    assert list(retrain_commands(found, Path("f"), None)) == ["agents", "server"]
    assert retrain_commands(found, Path("a b"), None)["agents"] == (
        "taciturn run 'a b/runs/1-a/config.toml' --algorithm objp --total-epsilon 0.5"
    )


@pytest.mark.parametrize(
    ("central", "up", "down", "one"),
    [(False, 3 * 4 * 88, 3 * 4 * 88, (4 * 88, 4 * 88)), (True, 900, 88, (300, 88))],
)
def test_what_one_agent_of_three_sends_and_receives(central: bool, up: int, down: int, one: tuple[int, int]) -> None:
    assert bytes_per_agent(central, 3, up, down) == one


def test_the_table_has_every_column_and_the_terminal_omits_what_all_share() -> None:
    found = mark_lowest([point([0.1, 0.2]), point([0.3, 0.4], trust="server", epsilon=math.inf, spent=math.inf)])
    headings, rows = frontier_table(found, regression=False)
    row = dict(zip(headings, rows[0], strict=True))
    assert (row["test error"], row[""], row["lowest"], row["highest"]) == ("15.00 ± 63.53 %", "*", "10.00 %", "20.00 %")
    assert rows[1][3] == "no noise"
    short, _ = frontier_table(found, regression=False, columns=TERMINAL_COLUMNS)
    assert "features" not in short and "rounds" in short
    assert "features" in frontier_table([*found, point([0.1], features="unit")], False, TERMINAL_COLUMNS)[0]


def test_the_picture_has_a_panel_for_each_map_and_fills_the_frontier() -> None:
    points = mark_lowest(
        point([error, error + 0.01], features=name, trust=trust, epsilon=epsilon)
        for name, low in (("none", 0.5), ("unit", 0.02))
        for trust in TRUSTS
        for epsilon, error in ((0.5, 1.4 * low), (8.0, low), (math.inf, 0.9 * low))
    )
    drawn = frontier_figure(points, regression=False, private=True)
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["clinics, features none", "clinics, features unit"]
    assert all(axes.get_xscale() == axes.get_yscale() == "log" for axes in drawn.axes)
    assert [text.get_text() for text in drawn.axes[0].get_xticklabels()] == ["0.5", "8", "no noise"]
    filled = [_filled(axes) for axes in drawn.axes]
    assert filled == [0, 6]
    assert drawn.texts and "for the owner of the records only" in drawn.texts[0].get_text()
    names = {text.get_text() for axes in drawn.axes for text in axes.texts}
    assert names == {"objp, agents", "objp, server"}


def _filled(axes: Any) -> int:
    return sum(
        line.get_marker() != "None" and line.get_markerfacecolor() != "white"
        for line in axes.lines
        if line.get_label() == "_mark"
    )
