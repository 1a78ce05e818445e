"""What is shown while training goes on."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from taciturn.cli import progress_display as watch
from taciturn.cli.progress_display import Watcher


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """No terminal: lines, here without a pause between them."""
    monkeypatch.setattr(watch, "LINE_SECONDS", -1.0)
    return io.StringIO()


def test_few_budgets_have_their_errors_and_many_their_range(log: io.StringIO) -> None:
    watcher = Watcher(Console(file=log))
    watcher.show("objp", 3, 10, [0.5, 0.5, 1.0], np.array([0.4, 0.2, 0.1]))
    watcher.show("objp", 4, 10, [0.1, 0.5, 1.0, 5.0], np.array([0.4, 0.3, 0.2, 0.1]))
    watcher.close()
    first, second = log.getvalue().splitlines()
    assert first.startswith("objp: round 3 of 10  test error  ε 0.5: 0.3  ε 1: 0.1")
    assert second.startswith("objp: round 4 of 10  test error  0.1 to 0.4")


def test_the_time_left_is_that_of_the_whole_where_there_is_one(log: io.StringIO) -> None:
    watcher = Watcher(Console(file=log))
    for done in (10, 20, 30):
        watcher.show_whole(done, 1000)
        watcher.show("outp", done, 30, [1.0], np.array([0.4]))
    watcher.close()
    left = re.search(r"(\d+) s left of the whole$", log.getvalue().splitlines()[-1])
    assert left is not None
    assert int(left[1]) > 0, "the whole is not done, though its first part is"
