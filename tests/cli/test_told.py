"""What takes long is told on stderr, and only there."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tacit.cli import told
from tacit.cli.sweep_watch import SweepWatcher
from tacit.cli.told import Told
from tacit.telling import listening, tell


def test_a_line_is_told_when_it_takes_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("tacit.cli.told.time.monotonic", lambda: now[0])
    log = io.StringIO()
    with listening(Told(Console(file=log))):
        for second in range(30):
            now[0] = float(second)
            tell("feature map waves", 1000 * (second + 1), 30_000)
        for done in (1, 2):  # another one, which is soon over
            now[0] += 0.5
            tell("feature map waves", done, 2)
    tell("feature map waves", 5, 30_000)  # nobody listens
    assert log.getvalue().splitlines() == [
        f"feature map waves: {seen:,} of 30,000 records" for seen in (3_000, 13_000, 23_000)
    ]


@pytest.mark.parametrize("watched", [False, True])
def test_a_terminal_shows_it_and_is_left_as_it_was(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "SHOW_AFTER", -1.0)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    watcher = SweepWatcher(console) if watched else None
    with listening(watcher.told if watcher else Told(console)):
        tell("feature map waves", 1000, 2000)
        tell("feature map waves", 2000, 2000)
    if watcher:
        watcher.close()
    assert "feature map waves: 2,000 of 2,000 records" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # cursor shown again, line taken away
