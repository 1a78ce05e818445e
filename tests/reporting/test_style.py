"""The style of all pictures: colours that everybody can tell apart, words that can be read, axes that say units."""

from __future__ import annotations

import io
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import colormaps, rc_context
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import taciturn
from taciturn.audit import Claim, audit
from taciturn.audit.tradeoff_figure import tradeoff
from taciturn.errors import InputError
from taciturn.reporting.figures.calibration_figure import reliability_figure
from taciturn.reporting.figures.run_figure import figure
from taciturn.reporting.figures.style import (
    COLOURS,
    CONTRAST,
    DIVERGING,
    STYLE,
    check_place,
    ink,
    label_lines,
    log_axis,
    look,
    save,
    to_svg,
)
from taciturn.reporting.figures.summary_figures import Weights, plan_figure, ranking_figure, sent_figure
from taciturn.reporting.ranking import ranking
from taciturn.research.bench.bench_figure import picture
from taciturn.research.bench.benchmark import Growth, Report
from taciturn.research.bench.timing import Timing
from taciturn.research.reproduction.paper_figures import figure as paper_figure
from taciturn.runs.quality import ClassificationQuality
from taciturn.types import Array
from tests.research.test_paper_figures import whole
from tests.training.test_study import CLINICS

SEEN: dict[str, list[list[float]]] = {  # Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
    "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])
APART = 15.0  # CIE 1976: 2.3 is just noticeable


def linear(colour: Any) -> Array:
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(colour: Any, eyes: str) -> Array:
    seen = np.clip(np.array(SEEN[eyes]) @ linear(colour), 0.0, 1.0)
    x, y, z = np.cbrt(np.maximum(TO_XYZ @ seen / WHITE, 0.0))
    return np.array([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)])


@pytest.mark.parametrize("eyes", SEEN)
def test_colours_differ_for_all_eyes(eyes: str) -> None:
    pairs = combinations(COLOURS, 2)
    assert min(float(np.linalg.norm(lab(a, eyes) - lab(b, eyes))) for a, b in pairs) > APART
    low, high = (lab(colormaps[DIVERGING](place)[:3], eyes) for place in (0.2, 0.8))
    assert np.linalg.norm(low - high) > 3 * APART


def test_lines_look_different_and_their_names_can_be_read() -> None:
    looks = [tuple(look(i).values()) for i in range(28)]
    assert len(set(looks)) == 28
    for colour in COLOURS:
        luminance = float(TO_XYZ[1] @ linear(ink(colour)))
        assert 1.05 / (luminance + 0.05) > CONTRAST - 0.01
    assert ink("#000000") == (0.0, 0.0, 0.0)


def test_an_svg_has_a_text_alternative() -> None:
    drawn = Figure(figsize=(1, 1))
    made = to_svg(drawn, "a < b", 'c & "d"')
    assert made.startswith('<svg role="img" ')
    assert "><title>a &lt; b</title><desc>c &amp; &quot;d&quot;</desc>" in made
    assert made == to_svg(drawn, "a < b", 'c & "d"')


def test_the_same_picture_gives_the_same_bytes_in_every_format(tmp_path: Path) -> None:
    for end in ("png", "svg"):
        for name in "ab":
            save(Figure(figsize=(1, 1)), tmp_path / f"{name}.{end}")
        assert (tmp_path / f"a.{end}").read_bytes() == (tmp_path / f"b.{end}").read_bytes()
    with pytest.raises(InputError, match=r"there is no folder .*no to put a.png into"):
        check_place(tmp_path / "no" / "a.png")


def _quality(run: taciturn.Run) -> ClassificationQuality:
    found = run.runs[0].quality
    assert isinstance(found, ClassificationQuality)
    return found


def pictures(tmp_path: Path) -> dict[str, Figure]:
    """One of every kind."""
    run = taciturn.run(**(CLINICS | {"rounds": 2, "algorithm": "objp,outp", "out": str(tmp_path / "r")}))
    values = np.arange(12.0).reshape(6, 2)
    weights = Weights(values, 2.0 * values, 3.0 * values, tuple("abcdef"), ("x", "y"))
    grown = Growth("P", "agents", (1, 2, 4), (0.1, 0.2, 0.3), (10.0, 20.0, 30.0), 1.0, 1.0)
    timed = {name: Timing(1.0, 1.0, 3) for name in "ab"}
    reproduced = {f"figure {n}": paper_figure([whole(), whole("femnist")], n) for n in (1, 2, 3, 4)}
    return {
        "curves": figure([run.folder]),
        "plan": plan_figure(taciturn.plan(total_epsilon=1.0)),
        "audit": tradeoff(audit(Claim(), releases=1000, seed=1)),
        "growth": picture(Report("growth", "Growth", {}, growth=(grown,))),
        "bars": picture(Report("bars", "Bars", {}, timings=timed)),
        "sent, table": sent_figure(weights, None, "t", "c"),
        "sent, images": sent_figure(weights, (2, 3), "t", "c"),
        "reliability": reliability_figure({"a": _quality(run), "b": _quality(run)}),
        "ranking": ranking_figure(ranking([run.folder]), regression=False),
        **{name: made for name, made in reproduced.items() if made},
    }


def test_every_axis_of_every_picture_has_a_label(tmp_path: Path) -> None:
    for name, drawn in pictures(tmp_path).items():
        drawn.draw_without_rendering()
        assert drawn.axes, name
        for axes in drawn.axes:
            shared = axes.get_shared_y_axes().get_siblings(axes)
            named = name in {"bars", "ranking"}  # every row says what it is
            across = any(other.get_xlabel() for other in axes.get_shared_x_axes().get_siblings(axes))
            upright = named or any(other.get_ylabel() for other in shared)
            if axes.images:
                assert not axes.get_xticks().size and not axes.get_yticks().size, name
            elif axes.get_label() == "<colorbar>":
                assert axes.get_ylabel(), name
            else:
                assert across and upright, name


@pytest.mark.parametrize("named", [False, True])
def test_an_svg_is_drawn_once_and_as_savefig_draws_it(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> Figure:
        with rc_context(STYLE):
            drawn = Figure(figsize=(4, 3), layout="constrained")
            axes = drawn.subplots()
            axes.plot([1, 2, 3], [10.0, 1000.0, 0.1], label="a line")
            axes.set_ylabel("a word")
            log_axis(axes)
            if named:
                label_lines(drawn)  # lays it out for good
        return drawn

    expected = io.StringIO()
    with rc_context(STYLE):
        made().savefig(expected, format="svg", metadata={"Date": None})
    drawn, times, real = made(), [], Figure.draw

    def draw(self: Figure, renderer: Any) -> None:
        times.append(self)
        real(self, renderer)

    monkeypatch.setattr(Figure, "draw", draw)
    save(drawn, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == re.sub(r"(\d\.\d\d)\d+", r"\1", expected.getvalue())
    assert times == [drawn] and drawn.dpi == made().dpi


def test_numbers_that_are_written_keep_their_digits() -> None:
    figure = Figure()
    figure.text(0.123456, 0.5, "noise 0.02475")
    drawn = to_svg(figure, "Words", "none")
    assert "noise 0.02475" in drawn
    assert not re.search(r"<[^>]*\d\.\d{3}", drawn)
