"""What takes long is told on stderr, and only there."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from taciturn.cli import progress_display as told
from taciturn.cli.progress_display import StatusLine, SweepWatcher
from taciturn.progress import report_progress, subscribe


def test_a_line_is_told_when_it_takes_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("taciturn.cli.progress_display.time.monotonic", lambda: now[0])
    log = io.StringIO()
    with subscribe(StatusLine(Console(file=log))):
        for second in range(30):
            now[0] = float(second)
            report_progress("feature map waves", 1000 * (second + 1), 30_000)
        for done in (1, 2):  # another one, which is soon over
            now[0] += 0.5
            report_progress("feature map waves", done, 2)
    report_progress("feature map waves", 5, 30_000)  # nobody listens
    assert log.getvalue().splitlines() == [
        f"feature map waves: {seen:,} of 30,000 records" for seen in (3_000, 13_000, 23_000)
    ]


@pytest.mark.parametrize("watched", [False, True])
def test_a_terminal_shows_it_and_is_left_as_it_was(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "SHOW_AFTER", -1.0)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    watcher = SweepWatcher(console) if watched else None
    with subscribe(watcher.told if watcher else StatusLine(console)):
        report_progress("feature map waves", 1000, 2000)
        report_progress("feature map waves", 2000, 2000)
    if watcher:
        watcher.close()
    assert "feature map waves: 2,000 of 2,000 records" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # cursor shown again, line taken away
