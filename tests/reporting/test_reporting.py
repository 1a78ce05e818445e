"""Curves, pictures and pages, from rows of known values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

import taciturn
from taciturn.core.storage import format_bytes
from taciturn.reporting.curves import curves
from taciturn.reporting.figures.run_figure import figure, owners_alone
from taciturn.reporting.figures.style import save
from taciturn.reporting.narrative import result_sentences
from taciturn.reporting.tables import group_rows
from taciturn.runs.folder import RunFolder
from taciturn.runs.quality import ClassificationQuality
from taciturn.runs.records import MetricsRow
from tests.cli import helpers
from tests.training.test_study import CLINICS


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, with_figures: Callable[[], AbstractContextManager[None]]
) -> taciturn.Run:
    out = tmp_path_factory.mktemp("views") / "a<b>"
    with with_figures():
        return taciturn.run(**(CLINICS | {"epsilon": "1,inf", "algorithm": "objpm,outp", "seeds": 3, "out": str(out)}))


def row(epsilon: float, seed: int, t: int, **measures: Any) -> MetricsRow:
    names = ("test_error", "train_objective", "consensus_residual", "noise", "rho", "eta", "seconds")
    figures: dict[str, Any] = dict.fromkeys((*names, "bytes_up", "bytes_down"), 0) | measures
    return MetricsRow(run=seed, algorithm="objp", epsilon=epsilon, seed=seed, round=t, **figures)


def test_curves_are_means_with_percentile_bands() -> None:
    rows = [row(e, s, t, test_error=t * (s + 1.0)) for e in (1.0, math.inf) for s in range(11) for t in (1, 2)]
    found = curves(rows, "test_error")
    assert [curve.label for curve in found] == ["objp, ε = 1", "objp, no noise"]
    np.testing.assert_allclose(found[0].mean, [6, 12])
    np.testing.assert_allclose(found[0].low, [3, 6])
    np.testing.assert_allclose(found[0].high, [9, 18])


def test_a_round_that_a_seed_lacks_is_the_mean_of_the_others() -> None:
    rows = [row(1.0, s, t, noise=float(s)) for s in range(3) for t in range(1, 3 if s else 2)]
    (curve,) = curves(rows, "noise")
    np.testing.assert_allclose(curve.mean, [1.0, 1.5])
    np.testing.assert_allclose(curve.low, [0.4, 1.2])
    assert curve.seeds == 3


def test_long_runs_are_thinned_and_keep_their_ends() -> None:
    rows = [row(1.0, 0, t, noise=float(t)) for t in range(1, 20001)]
    curve = curves(rows, "noise")[0]
    assert len(curve.rounds) <= 800
    assert (curve.rounds[0], curve.rounds[-1]) == (1, 20000)


def test_the_picture_has_four_panels_and_a_line_for_each_setting(run: taciturn.Run, tmp_path: Path) -> None:
    drawn = figure([run.folder])
    assert [axes.get_title(loc="left") for axes in drawn.axes] == [
        "Test error", "Training objective F(w)", "Distance from the common model", "Mean size of the noise",
    ]  # fmt: skip
    assert [len(axes.lines) for axes in drawn.axes] == [4, 4, 4, 4]
    drawn.canvas.draw()
    residual, noise = drawn.axes[2:]
    (title,) = residual.findobj(lambda part: isinstance(part, Text) and part.get_text().startswith("Distance"))
    beside = noise.get_tightbbox()
    assert beside is not None and title.get_window_extent().x1 < beside.x0, "a title runs into the next panel"
    save(drawn, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(taciturn.InputError, match="does not end in a picture's format"):
        save(drawn, tmp_path / "p.xyz")


def test_private_curves_say_whose_they_are(run: taciturn.Run, tmp_path: Path) -> None:
    words = "computed without noise, for the owner of the records only"
    asked = {**CLINICS, "mode": "certified", "algorithm": "objp", "total_records": 600, "agents": 3, "rounds": 3}
    own = taciturn.run(**(asked | {"out": str(tmp_path / "own")}))
    assert figure([own.folder]).get_suptitle() == f"Test error and Training objective F(w): {words}"
    assert figure([own.folder], local=False).get_suptitle() == ""
    assert figure([run.folder]).get_suptitle() == ""  # mode paper keeps nothing back
    assert owners_alone([run.folder, own.folder]) == owners_alone([own.folder]) != []  # whatever stands beside it
    assert words.split(",", maxsplit=1)[0] in helpers.taciturn("plot", own.path, "--out", tmp_path / "p.svg").stderr
    assert words in (tmp_path / "p.svg").read_text()
    assert helpers.taciturn("plot", own.path).stderr == ""  # in local-only, where it belongs


def test_a_note_in_a_picture_is_not_printed_over_its_legend(tmp_path: Path) -> None:
    """Ten lines have a legend below the panels."""
    asked = {**CLINICS, "mode": "certified", "total_records": 600, "agents": 3, "rounds": 2, "noise": "seeded"}
    many = {"algorithm": "objp,objpm", "total_epsilon": "1,2,3,4,5", "out": str(tmp_path / "many")}
    drawn = figure([taciturn.run(**(asked | many)).folder])
    drawn.canvas.draw()
    said = next(text for text in drawn.texts if text.get_text().endswith("for the owner of the records only"))
    boxes = [said.get_window_extent(), drawn.legends[0].get_window_extent()]
    boxes += [box for axes in drawn.axes if (box := axes.get_tightbbox())]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes[:2]) for b in boxes[i + 1 :])


class Page(HTMLParser):
    """Collects text and everything that would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(value) for name, value in attrs if name in {"src", "href", "xlink:href"} and value]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_report_is_self_contained_and_says_what_matters(run: taciturn.Run) -> None:
    html = run.folder.report.read_text()
    page = Page()
    page.feed(html)
    assert all(link.startswith("#") for link in page.loads)  # nothing is loaded from anywhere
    assert not re.search(r"@import|url\((?!#)", html)
    text = " ".join(" ".join(page.text).split())
    assert f"3 parties with {run.summary['data']['records']} records in all trained 12 models together" in text
    assert "No end-to-end guarantee: the total epsilon of this run is infinite." in text
    assert "computed from the private records" in text
    assert text.count("No end-to-end guarantee: the total epsilon") == 1
    assert "Mean size of the noise" not in html and "<strong>objpm</strong>: " in html
    assert "checkpoint-seconds" in text  # the configuration, complete
    assert "a<b>" in text  # the folder's name, escaped
    assert html.count("<svg") == html.count('<svg role="img"') == 2
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids))  # also those of the figures
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', html)) <= set(ids)
    mean = np.mean([100 * e["test_error"] for e in run.runs[:3]])
    words = re.search("<desc>(.*?)</desc>", html)
    assert words is not None
    assert "Test error, % of the test records: objpm, ε = 1 goes from" in words[1]
    assert f"to {mean:.4g} in round 5" in words[1]
    assert "prefers-color-scheme: dark" in html and "@media print" in html
    assert [int(level) for level in re.findall("<h([1-6])", html)][:2] == [1, 2]
    assert "--what sent" not in html  # there is nothing here that is for the owner alone


def test_the_sentences_count_right(run: taciturn.Run) -> None:
    summary = run.folder.read_summary()
    assert repr(run) == f"Run({str(run.path)!r})"
    first, second = result_sentences(summary)
    mean = np.mean([e["test_error"] for e in summary["runs"] if e["algorithm"] == "objpm" and e["epsilon"] == 1.0])
    assert f"the best with noise predicts the right class for {100 * (1 - mean):.1f} of 100 new records" in first
    quality = summary.runs[0].quality
    assert isinstance(quality, ClassificationQuality) and quality.baseline is not None
    assert f"(always predicting the most frequent class, for {100 * (1 - quality.baseline.error):.1f})" in first
    assert "without any noise" in second
    assert "objpm, ε = 1 (mean of 3 seeds)" in second
    assert second.count("objpm") == 1  # the setting the sentence is about is not compared with itself


def test_seeds_are_summed_up(run: taciturn.Run) -> None:
    rows = group_rows(run.runs)
    assert [row[:2] for row in rows] == [
        ("objpm, ε = 1", "3"), ("objpm, no noise", "3"), ("outp, ε = 1", "3"), ("outp, no noise", "3"),
    ]  # fmt: skip
    errors = [100 * entry["test_error"] for entry in run.runs[:3]]
    assert rows[0][2:5] == (f"{np.mean(errors):.2f} %", f"{min(errors):.2f} %", f"{max(errors):.2f} %")


def test_an_unfinished_run_can_be_drawn_but_has_no_report(run: taciturn.Run, tmp_path: Path) -> None:
    files = {"config.toml": "", "start.json": run.folder.start.read_text()}
    folder = RunFolder.create(tmp_path / "r", files, run.folder.read_ledger(), {})
    with pytest.raises(taciturn.InputError, match="no evaluated round yet"):
        figure([folder])
    folder.metrics.write_text(run.folder.metrics.read_text() + '{"half a li')
    assert len(figure([folder]).axes) == 4
    with pytest.raises(taciturn.InputError, match="has not ended"):
        folder.read_summary()


@pytest.mark.parametrize(("count", "text"), [(5, "5 B"), (1500, "1.5 kB"), (47_000_000, "47 MB"), (5e12, "5 TB")])
def test_bytes_have_units(count: float, text: str) -> None:
    assert format_bytes(count) == text
