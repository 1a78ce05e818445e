"""Progress displays write to their console only: lines in a log, a display on a terminal."""

from __future__ import annotations

import io
import math
import re

import numpy as np
import pytest
from rich.console import Console

from taciturn import training_display
from taciturn.cli.progress_display import ExperimentDisplay
from taciturn.progress import REPORT, report_progress, subscribe
from taciturn.research.commands.reproduce_command import ReproductionDisplay
from taciturn.training_display import StatusLine, TrainingDisplay


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A stream that is not a terminal; lines follow each other without a pause."""
    monkeypatch.setattr(training_display, "LINE_SECONDS", -1.0)
    return io.StringIO()


def test_errors_are_shown_by_budget_or_as_a_range_for_many_budgets(log: io.StringIO) -> None:
    display = TrainingDisplay(Console(file=log))
    display.show("objp", 3, 10, [0.5, 0.5, 1.0], np.array([0.4, 0.2, 0.1]))
    display.show("objp", 4, 10, [0.1, 0.5, 1.0, 5.0], np.array([0.4, 0.3, 0.2, 0.1]))
    display.show("optimum", 1, 1, [1.0, math.inf], np.array([4.5, 4.25]), classes=False)
    display.close()
    first, second, third = log.getvalue().splitlines()
    assert first.startswith("objp: round 3 of 10") and "ε 0.5: 30.0 %  ε 1: 10.0 %" in first
    assert second.startswith("objp: round 4 of 10") and "10.0 % to 40.0 %" in second
    assert "ε 1: 4.5  no noise: 4.25" in third


def test_the_time_left_is_that_of_the_whole_where_there_is_one(log: io.StringIO) -> None:
    display = ReproductionDisplay(Console(file=log))
    for done in (10, 20, 30):
        display.show_whole(done, 1000)
        display.show("outp", done, 30, [1.0], np.array([0.4]))
    display.close()
    left = re.search(r"(\d+) s left of the whole$", log.getvalue().splitlines()[-1])
    assert left is not None
    assert int(left[1]) > 0, "the first part is done, but the whole is not"


def test_full_bars_give_way_to_the_report() -> None:
    screen = io.StringIO()
    with TrainingDisplay(Console(file=screen, force_terminal=True, width=100)) as display:
        for t in (1, 5, 10):
            display.show("objp", t, 10, [1.0], np.array([0.4]))
        report_progress(REPORT, 0, 1)
        assert not display._bars.live.is_started
    assert "writing the report" in screen.getvalue() and "left 0:00" not in screen.getvalue()


def test_counted_work_is_logged_when_it_takes_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("taciturn.training_display.time.monotonic", lambda: now[0])
    log = io.StringIO()
    with subscribe(StatusLine(Console(file=log))):
        for second in range(30):
            now[0] = float(second)
            report_progress("feature map waves", 1000 * (second + 1), 30_000)
        for done in (1, 2):  # other work, which finishes soon
            now[0] += 0.5
            report_progress("feature map waves", done, 2)
    report_progress("feature map waves", 5, 30_000)  # without a subscriber
    counts = [re.findall(r"[\d,]+", line) for line in log.getvalue().splitlines()]
    assert counts == [["3,000", "30,000"], ["13,000", "30,000"], ["23,000", "30,000"]]


@pytest.mark.parametrize("experiment", [False, True])
def test_a_terminal_shows_counted_work(experiment: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_display, "SHOW_AFTER", -1.0)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    display = ExperimentDisplay(console) if experiment else None
    with display or subscribe(StatusLine(console)):
        report_progress("feature map waves", 1000, 2000)
        report_progress("feature map waves", 2000, 2000)
    assert "feature map waves: 2,000 of 2,000 records" in screen.getvalue()
