"""`taciturn --verbose`: log messages and tracebacks go to stderr, and only if they are requested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import warm
from tests.cli.helpers import CLINICS, environment, refused, taciturn


def failing(*flags: str, cwd: Path) -> str:
    """Run a command that fails because a file is missing; return its stderr."""
    done = warm.run(["-m", "taciturn", *flags, "sweep", "--resume", "nothing"], cwd, environment())
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_an_error_is_one_sentence_unless_a_traceback_is_requested(tmp_path: Path) -> None:
    sentence = f"error: {refused('sweep', '--resume', 'nothing', cwd=tmp_path)}\n"
    assert failing(cwd=tmp_path) == sentence
    assert "Traceback" not in failing("-v", cwd=tmp_path)
    for flags in (("-vv",), ("--verbose", "--verbose")):
        said = failing(*flags, cwd=tmp_path)
        assert said.endswith(sentence)
        assert "Traceback" in said and "FileNotFoundError" in said, "the cause is shown, too"


@pytest.mark.parametrize("flags", [(), ("-v",)])
def test_log_messages_appear_on_stderr_only(flags: tuple[str, ...], tmp_path: Path) -> None:
    sweep = ("sweep", *CLINICS, "--rounds", "1", "--over", "rho=1,2", "--out", tmp_path / "s", "--json")
    done = taciturn(*flags, *sweep)
    assert json.loads(done.stdout)["points"] == 2
    assert ("point 2 of 2" in done.stderr) == bool(flags)
