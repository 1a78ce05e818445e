"""The paper's figures and the comparison with its numbers, from summaries written by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

import taciturn
from taciturn.core.storage import to_json
from taciturn.reporting.figures.style import ink
from taciturn.research.reproduction.paper_figures import COLOUR, draw, figure
from taciturn.research.reproduction.paper_table import HEADINGS, comparison, markdown, notes, ordering, rows
from taciturn.research.reproduction.published import PUBLISHED, published_error

ENDS = {"outp": 0.2187, "objp": 0.1336, "objpm": 0.1173}
ROUNDS = [1, 10, 100, 1000, 5000, 10000, 15000, 20000]
EPSILONS = (0.05, 0.1, 1.0, 5.0, math.inf)
NAMES = ["figure-1-testing-errors", "figure-2-best-errors", "figure-3-noise", "figure-4-penalties"]


def group(algorithm: str, epsilon: float, **changes: Any) -> Any:
    """A group whose mean falls from 0.9 to what its algorithm ends with; the best seed is 0.002 better."""
    end = ENDS[algorithm] * (1.0 if epsilon <= 0.05 else 0.9 if epsilon <= 1.0 else 0.8)
    mean = [end + (0.9 - end) / math.sqrt(t) for t in ROUNDS[:-1]] + [end + 0.002]
    return {
        "stage": algorithm, "algorithm": algorithm, "epsilon": epsilon, "penalty": "dynamic",
        "outp_noise": "published" if algorithm == "outp" else None,
        "local_updates": {"outp": 1, "objp": 1, "objpm": 10}[algorithm],
        "eta_scale": None if algorithm == "outp" else 1.0, "seeds": 10,
        "final": {"round": 20000, "best": end, "mean": mean[-1], "low": mean[-1] - 0.001, "high": mean[-1] + 0.001,
                  "worst": mean[-1] + 0.002},
        "curve": {"round": ROUNDS, "mean": mean, "low": [m - 0.001 for m in mean], "high": [m + 0.001 for m in mean],
                  "noise": [0.0 if math.isinf(epsilon) else 0.1 / epsilon for _ in ROUNDS]},
    } | changes  # fmt: skip


def summary(groups: list[Any], **changes: Any) -> Any:
    """A summary as it is read from its file."""
    made = {
        "taciturn": "0.1.0", "data": "mnist", "quick": False, "rounds": 20000, "seeds": 10, "agents": 10,
        "records": 60000, "test_records": 10000, "device": "CPU, float32", "digest": "0",
        "groups": groups, "stages": [],
    }  # fmt: skip
    return json.loads(to_json(made | changes))


def whole(data: str = "mnist") -> Any:
    """Everything there is: penalties and noise levels of OutP, both steps on FEMNIST."""
    groups = [group(algorithm, epsilon) for algorithm in ENDS for epsilon in EPSILONS]
    groups += [group("outp", e, penalty=p) for e in EPSILONS[:4] for p in ("dynamic/100", "0.1", "1", "10")]
    groups += [group("outp", e, outp_noise=n) for e in EPSILONS[:4] for n in ("published-formula", "calibrated")]
    if data == "femnist":
        groups += [group(a, e, eta_scale=100.0) for a in ("objp", "objpm") for e in EPSILONS]
    return summary(groups, data=data)


def drawn(summaries: list[Any], number: int) -> Any:
    made = figure(summaries, number)
    assert made is not None
    return made


def titles(made: Any) -> list[str]:
    return [axes.get_title() for axes in made.axes]


# --- the figures


def test_testing_errors_have_a_row_for_each_data_set_and_a_panel_for_each_epsilon() -> None:
    made = drawn([whole("femnist"), whole()], 1)
    assert titles(made) == 2 * ["ε̄ = 0.05", "ε̄ = 0.1", "ε̄ = 1", "ε̄ = 5"]
    assert [axes.get_ylabel() for axes in made.axes] == [
        "MNIST\ntest error, %", "", "", "", "FEMNIST\ntest error, %", "", "", "",
    ]  # fmt: skip
    assert {axes.get_xlabel() for axes in made.axes} == {"round"}
    for axes in made.axes:
        assert [line.get_label() for line in axes.lines] == ["OutP", "ObjP", "ObjPM", "no noise"]
        assert [line.get_linestyle() for line in axes.lines] == ["-", "-", "-", "--"]
        assert [to_hex(band.get_facecolor()[0]).upper() for band in axes.collections] == list(COLOUR.values())
    assert "MNIST and FEMNIST (a = 100), 20,000 rounds, 10 seeds" in made.get_suptitle()  # MNIST has a = 1
    assert "MNIST, 20,000 rounds, 10 seeds" in drawn([whole()], 1).get_suptitle()


def test_lines_are_the_means_in_percent_and_bands_hold_them() -> None:
    given = whole("femnist")
    scaled = next(g for g in given["groups"] if g["algorithm"] == "objpm" and g["eta_scale"] == 100.0)
    scaled["curve"] |= {k: [v / 2 for v in scaled["curve"][k]] for k in ("mean", "low", "high")}
    axes = drawn([given], 1).axes[0]
    line = axes.lines[2]
    np.testing.assert_array_equal(line.get_xdata(), ROUNDS)
    np.testing.assert_allclose(line.get_ydata(), 100 * np.array(scaled["curve"]["mean"]))  # the largest a, not a = 1
    for mean, band in zip(axes.lines, axes.collections, strict=False):
        corners = band.get_paths()[0].vertices
        for x, y in zip(mean.get_xdata(), mean.get_ydata(), strict=True):
            inside = corners[corners[:, 0] == x, 1]
            assert not inside.size or inside.min() <= y <= inside.max()
        assert {ROUNDS[0], ROUNDS[-1]} <= set(corners[:, 0])


def test_best_errors_are_shown_next_to_the_papers() -> None:
    made = drawn([whole("femnist"), whole()], 2)
    assert titles(made) == ["MNIST", "FEMNIST"]
    for axes, data in zip(made.axes, ("mnist", "femnist"), strict=True):
        assert (axes.get_xscale(), axes.get_xlabel(), axes.get_ylabel()) == (
            "log",
            "ε̄, each local update",
            "test error, %",
        )
        lines = {line.get_label(): line for line in axes.lines}
        np.testing.assert_allclose(lines["OutP"].get_xdata(), EPSILONS[:4])
        np.testing.assert_allclose(lines["ObjPM"].get_ydata()[0], 11.73)
        assert lines["ObjPM, no noise"].get_linestyle() == "--"
        for point in PUBLISHED[data]:
            name = {"outp": "OutP", "objpm": "ObjPM"}[point.algorithm]
            found = lines["no noise, the paper" if math.isinf(point.epsilon) else f"{name}, the paper"]
            assert found.get_ydata()[0] == point.error
            assert math.isinf(point.epsilon) or found.get_markerfacecolor() == "none"
    assert [text.get_text() for text in made.legends[0].get_texts()] == ["OutP, the paper", "ObjPM, the paper"]


def test_noise_is_drawn_at_two_epsilons_on_a_logarithmic_axis() -> None:
    made = drawn([whole("femnist"), whole()], 3)
    assert titles(made) == 2 * ["ε̄ = 0.05", "ε̄ = 1"]
    assert {axes.get_yscale() for axes in made.axes} == {"log"}
    assert made.axes[0].get_ylabel() == "MNIST\nmean |ξ|, gradient\n(OutP: parameter) units"
    np.testing.assert_allclose(made.axes[0].lines[1].get_ydata(), 2.0)
    assert not any(axes.collections for axes in made.axes)


def test_outp_is_drawn_under_five_penalties() -> None:
    made = drawn([whole()], 4)
    assert titles(made) == ["ε̄ = 0.05", "ε̄ = 0.1", "ε̄ = 1", "ε̄ = 5"]
    for axes in made.axes:
        names = ["ρ̂ᵗ", "ρ̂ᵗ/100", "ρ = 0.1", "ρ = 1", "ρ = 10"]
        assert [line.get_label() for line in axes.lines] == names
    assert not made.legends
    assert [[text.get_text() for text in axes.texts] for axes in made.axes] == [[], [], [], names]  # once a row


def test_lines_are_named_once_a_row_in_the_last_panel_that_has_all_of_them() -> None:
    made = drawn([summary([*(group(a, 0.05) for a in ENDS), group("objp", 0.1)])], 1)
    assert not made.legends
    assert [[text.get_text() for text in axes.texts] for axes in made.axes] == [["OutP", "ObjP", "ObjPM"], []]
    assert [text.get_color() for text in made.axes[0].texts] == [ink(COLOUR[a]) for a in ENDS]
    apart = drawn([summary([group("objp", 0.05), group("objpm", 0.1)])], 1)
    assert [text.get_text() for text in apart.legends[0].get_texts()] == ["ObjP", "ObjPM"]  # no panel has both


# --- what is missing

QUICK: dict[str, Any] = {"quick": True, "rounds": 1000, "seeds": 1}
HOLES = {
    "nothing": ([], []),
    "without noise only": ([group("objpm", math.inf)], []),
    "one algorithm": ([group("objp", 0.1, seeds=1)], [1, 2]),
    "other noise only": ([group("outp", 0.05, outp_noise="calibrated")], []),
    "no noise measured": ([group("objp", 0.05, curve=group("objp", 0.05)["curve"] | {"noise": [None] * 8})], [1, 2]),
    "no final error": ([group("objp", 0.05, final=dict.fromkeys(group("objp", 1)["final"]))], [1, 3]),
    "no curve": ([group("objp", 0.05, curve=dict.fromkeys(group("objp", 1)["curve"]))], [2]),
    "one round": ([group("objp", 1.0, curve={"round": [1], "mean": [0.9], "low": [0.9], "high": [0.9]})], [1, 2]),
    "no band": ([group("objp", 1.0, curve={"round": ROUNDS, "mean": [0.9] * 8, "noise": [0.0] * 8})], [1, 2]),
    "one penalty": ([group("outp", 1.0)], [1, 2, 3]),
    "two penalties": ([group("outp", 1.0), group("outp", 1.0, penalty="10")], [1, 2, 3, 4]),
}


@pytest.mark.parametrize("hole", HOLES)
def test_what_is_there_is_drawn_and_what_is_not_is_skipped(tmp_path: Path, hole: str) -> None:
    groups, numbers = HOLES[hole]
    written = draw([summary(groups, **QUICK)], tmp_path)
    assert [path.name for path in written] == [f"{NAMES[n - 1]}.{end}" for n in numbers for end in ("png", "svg")]
    assert sorted(tmp_path.iterdir()) == sorted(written)
    assert len(rows(summary(groups, **QUICK))) == len(comparison(summary(groups))) == len(groups)


def test_rows_with_other_epsilons_leave_places_empty() -> None:
    small = summary([group("objp", 1.0), group("objpm", 1.0)], data="femnist", **QUICK)
    made = drawn([small, whole()], 1)
    assert titles(made) == ["ε̄ = 0.05", "ε̄ = 0.1", "ε̄ = 1", "ε̄ = 5", "ε̄ = 1"]
    assert made.axes[-1].get_ylabel() == "FEMNIST\ntest error, %"
    assert "MNIST, 20,000 rounds, 10 seeds; FEMNIST, 1,000 rounds, 1 seed" in made.get_suptitle()


def test_the_same_summaries_give_the_same_bytes(tmp_path: Path) -> None:
    read = []
    for order in ((whole(), whole("femnist")), (whole("femnist"), whole())):
        paths = draw(order, tmp_path)
        assert [path.stem for path in paths[::2]] == NAMES
        assert all(path.stat().st_size < 250_000 for path in paths)
        read.append([path.read_bytes() for path in paths])
    assert read[0] == read[1]
    assert b"<dc:date>" not in b"".join(read[0])


def test_a_figure_the_paper_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(taciturn.InputError, match="no figure 7: there are 1, 2, 3, 4"):
        draw([whole()], tmp_path, (1, 7))
    assert not list(tmp_path.iterdir())


# --- the table


@pytest.mark.parametrize("data", ["mnist", "femnist"])
def test_every_group_is_a_row(data: str) -> None:
    given = whole(data)
    found = rows(given)
    assert len(found) == len(given["groups"])
    assert len({row[:3] for row in found}) == len(found)  # told apart
    assert all(len(row) == len(HEADINGS) for row in found)
    assert [entry["name"] for entry in comparison(given)] == [row[0] for row in found]


def test_rows_by_hand() -> None:
    given = summary(
        [group("objpm", 0.05), group("outp", 0.05), group("objp", math.inf), group("outp", 0.05, penalty="dynamic/100"),
         group("outp", 1.0, outp_noise="calibrated"), group("objpm", math.inf)],
    )  # fmt: skip
    assert rows(given) == [
        ("OutP, published noise", "0.05", "", "10", "21.87", "22.07", "21.79", "+0.08"),
        ("OutP, published noise", "0.05", "ρ̂ᵗ/100", "10", "21.87", "22.07", "", ""),
        ("OutP, calibrated noise", "1", "", "10", "19.68", "19.88", "", ""),
        ("ObjP (E = 1)", "∞", "", "10", "10.69", "10.89", "", ""),
        ("ObjPM (E = 10)", "0.05", "", "10", "11.73", "11.93", "11.74", "-0.01"),
        ("ObjPM (E = 10)", "∞", "", "10", "9.38", "9.58", "9.10", "+0.28"),
    ]
    lines = markdown(given).splitlines()
    assert lines[:3] == [
        "| algorithm | epsilon | penalty | seeds | best, % | mean, % | paper, % | difference |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
        "| OutP, published noise | 0.05 |  | 10 | 21.87 | 22.07 | 21.79 | +0.08 |",
    ]
    assert lines[8] == ""


def test_comparison_by_hand() -> None:
    first, second = comparison(summary([group("objpm", 0.05), group("objp", math.inf)]))[::-1]
    assert first == {
        "name": "ObjPM (E = 10)", "algorithm": "objpm", "epsilon": 0.05, "penalty": "dynamic", "outp_noise": None,
        "local_updates": 10, "eta_scale": 1.0, "seeds": 10, "rounds": 20000, "best": 11.73, "mean": 11.93,
        "low": 11.83, "high": 12.03, "worst": 12.13, "paper": 11.74, "difference": -0.01,
    }  # fmt: skip
    assert (second["epsilon"], second["paper"], second["difference"]) == ("inf", None, None)


@pytest.mark.parametrize(
    ("data", "changed", "paper"),
    [
        ("mnist", group("outp", 0.05), 21.79),
        ("femnist", group("outp", 0.05), 91.05),
        ("femnist", group("objpm", 0.05, eta_scale=100.0), 59.42),
        ("femnist", group("objpm", math.inf), 37.27),
        ("mnist", group("objpm", 0.05, local_updates=5), None),
        ("mnist", group("outp", 0.05, outp_noise="published-formula"), None),
        ("mnist", group("outp", 0.05, penalty="1"), None),
        ("mnist", group("objp", math.inf), None),
        ("mnist14", group("objpm", 0.05), None),
    ],
)
def test_the_papers_number_is_given_only_for_what_it_ran(data: str, changed: Any, paper: float | None) -> None:
    assert published_error(data, changed) == paper


def test_steps_are_named_where_there_are_several() -> None:
    names = [row[0] for row in rows(summary([group("objpm", 1.0), group("objpm", 1.0, eta_scale=100.0)]))]
    assert names == ["ObjPM (E = 10), a = 100", "ObjPM (E = 10), a = 1"]


def test_the_ordering_is_that_of_the_means() -> None:
    assert ordering(whole()) == {0.05: True, 0.1: True, 1.0: True, 5.0: True}
    groups = [group(a, e) for a in ENDS for e in (0.05, 1.0, math.inf)] + [group("objp", 5.0)]
    groups[0]["final"]["mean"] = 0.01  # OutP at 0.05
    groups.append(group("outp", 1.0, outp_noise="calibrated", final=group("outp", 1.0)["final"] | {"mean": 0.01}))
    assert ordering(summary(groups)) == {0.05: False, 1.0: True}
    middle = [group("objp", 1.0), group("outp", 1.0), group("objpm", 1.0)]
    middle[0]["final"]["mean"] = 0.5  # ObjP the worst
    assert ordering(summary(middle)) == {1.0: False}
    groups[1]["final"]["mean"] = None
    assert ordering(summary(groups)) == {0.05: False}


def test_the_ordering_is_that_of_the_largest_step() -> None:
    slow = [group(a, 1.0, final=group(a, 1.0)["final"] | {"mean": 0.95}) for a in ("objp", "objpm")]
    fast = [group(a, 1.0, eta_scale=100.0) for a in ("objp", "objpm")]
    assert ordering(summary([group("outp", 1.0), *slow], data="femnist")) == {1.0: False}
    assert ordering(summary([group("outp", 1.0), *slow, *fast], data="femnist")) == {1.0: True}


def test_notes_say_what_the_numbers_are_not() -> None:
    plain = " ".join(notes(summary([group("objpm", 0.05)])))
    assert "best of 10 seeds after 20,000 rounds" in plain
    assert not any(word in plain for word in ("same records", "ordering", "a is", "without noise"))
    sentences = " ".join(notes(whole("femnist") | QUICK))
    assert "the numbers are not on the same records" in sentences
    assert "1,000 rounds instead of 20,000: only the ordering of the algorithms is to be compared" in sentences
    assert "the paper's text has a = 1, the figures show the largest" in sentences
    assert "for its error without noise (∞)" in sentences
    assert all(note in markdown(whole("femnist") | QUICK) for note in notes(whole("femnist") | QUICK))
