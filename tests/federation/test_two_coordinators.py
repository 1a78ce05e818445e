"""Two commands in one run folder: the second one is refused before it has changed a byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taciturn.errors import InputError
from taciturn.federation.coordinator import FINISHED, STOPPED
from taciturn.federation.coordinator_process import begin_study, run_coordinator
from taciturn.federation.run_folder import rounds_path
from taciturn.runs.folder import append_lines, read_lines
from tests.federation.helpers import Local
from tests.federation.stations import whole_federation

COMMAND = """
import sys
from pathlib import Path
from taciturn.errors import InputError
from taciturn.federation.coordinator_process import run_coordinator
from taciturn.federation.terms import read_terms

root, words = Path(sys.argv[1]), {"without": ("west",)} if sys.argv[2] == "without" else {"evaluate": bool(sys.argv[2])}
terms, kits, identity = read_terms(root / "federation.toml"), root.parent / "kits", root.parent / "ids" / "coordinator"
try:
    run_coordinator(terms, kits, identity, root / "run", lambda: True, print, **words)
except InputError as error:
    print(error)
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("words", ["", "evaluate", "without"], ids=["run", "evaluate", "without"])
def test_a_second_command_takes_no_line_back_from_the_one_at_work(tmp_path: Path, words: str) -> None:
    """The lines of a round are written before its checkpoint; only a crash in between takes them back."""
    federation, _ = whole_federation(tmp_path)
    begun = begin_study(federation.terms, federation.root / "run")
    with begun.folder.locked(), federation.agents() as agents:
        study = federation.coordinator()
        assert study.run(Local(agents), lambda: study.state.round == 2) == STOPPED
        lines = [begun.folder.metrics, rounds_path(begun.folder.path)]
        for path in lines:
            append_lines(path, [list(read_lines(path))[-1] | {"round": 3}])
        before = contents(begun.folder.path)
        second = [sys.executable, "-c", COMMAND, str(federation.root), words]
        said = subprocess.run(second, capture_output=True, text=True, check=True).stdout
        assert "is being worked on by another process" in said
        assert contents(begun.folder.path) == before
        assert [[row["round"] for row in read_lines(path)] for path in lines] == [[1, 2, 3]] * 2


def test_what_is_recorded_is_shown_without_a_change_of_files(tmp_path: Path) -> None:
    """Also while another command still tells the sites that the study has ended."""
    federation, _ = whole_federation(tmp_path)
    with federation.agents() as agents:
        assert federation.coordinator().run(Local(agents)) == FINISHED
    begun, paths = begin_study(federation.terms, federation.root / "run"), (tmp_path / "kits", tmp_path / "ids")
    with begun.folder.locked():
        append_lines(begun.folder.metrics, [{"round": 5}])
        before = contents(begun.folder.path)
        kits, identity = paths[0], paths[1] / "coordinator"
        _, outcome = run_coordinator(
            federation.terms, kits, identity, begun.folder.path, lambda: True, lambda line: None, evaluate=True
        )
        assert outcome == FINISHED and begin_study(federation.terms, begun.folder.path).schedule.left == 0
        assert contents(begun.folder.path) == before
        with pytest.raises(InputError, match="is being worked on"):
            run_coordinator(federation.terms, kits, identity, begun.folder.path, lambda: True, lambda line: None)
