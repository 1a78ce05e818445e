"""Files are complete or absent, and private where they must be; all others follow the umask."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from taciturn.core.storage import append_bytes, atomic_write, make_file, make_folder, state_folder, write_text
from taciturn.errors import InputError
from taciturn.runs.folder import RunFolder, append_lines, read_lines
from tests.cli import warm
from tests.cli.helpers import EXAMPLE, environment

PRIVATE = {"local-only", "checkpoint"}
MAKING = f"""
import os, sys
umask, place = int(sys.argv[1], 8), sys.argv[2]
os.umask(umask)
import taciturn
from taciturn.privacy.budget import BudgetLedger
from taciturn.runs.folder import RunFolder, append_lines, read_lines
from pathlib import Path
BudgetLedger.create(Path(place) / "c.ledger", "c", 3.0, 1e-6)
made = taciturn.run(
    data="{EXAMPLE / "records.csv"}", schema="{EXAMPLE / "schema.toml"}", total_records=600, agents=3, test_share=0.25,
    algorithm="dpgd", rounds=2, noise="hardened", ledger=place + "/c.ledger", out=place + "/runs/r",
)
from taciturn.core.storage import write_text
write_text(Path(place) / "model.csv", "exported")
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o027])
def test_private_files_are_the_owners_and_the_rest_follows_the_umask(tmp_path: Path, umask: int) -> None:
    place, state = tmp_path / "work", tmp_path / "state"
    place.mkdir()
    done = warm.run(["-c", MAKING, f"{umask:o}", str(place)], None, environment(XDG_STATE_HOME=str(state)))
    assert done.returncode == 0, done.stderr
    found = [path for top in (place, state / "taciturn") for path in (top, *top.rglob("*")) if path != place]
    assert {"local-only", "checkpoint", "lock", "ledger.jsonl", "c.ledger", "runs", "ledgers", "model.csv"} <= {
        path.name for path in found
    }
    for path in found:
        private = bool(PRIVATE & set(path.parts)) or path.is_relative_to(state)
        expected = (0o700 if path.is_dir() else 0o600) if private else (0o777 if path.is_dir() else 0o666) & ~umask
        assert mode(path) == expected, f"{path} is {mode(path):o}"


def test_a_state_folder_that_others_could_read_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (state_folder() / "ledgers").mkdir(parents=True, mode=0o755)
    make_folder(state_folder() / "ledgers", exist_ok=True)
    assert (mode(state_folder()), mode(state_folder() / "ledgers")) == (0o700, 0o700)


def test_a_file_that_a_user_may_not_read_counts_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    make_folder(folder.local)
    make_file(folder.local_metrics)
    assert folder.has_local

    def denied(self: Path) -> bool:
        raise PermissionError(errno.EACCES, "permission denied")

    monkeypatch.setattr(Path, "is_file", denied)
    assert not folder.has_local


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_text(path, "old")
    with pytest.raises(RuntimeError), atomic_write(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert [one.name for one in tmp_path.iterdir()] == ["a"] and path.read_text() == "old"
    with pytest.raises(InputError, match="there is no folder"):
        write_text(tmp_path / "none" / "a", "")
    with pytest.raises(FileExistsError):
        make_folder(path)
    with pytest.raises(FileExistsError):
        make_folder(path, exist_ok=True)


def test_only_one_process_adds_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\ntorn")
    append_bytes(path, b"two\n", 4, 8)
    assert path.read_bytes() == b"one\ntwo\n"
    with pytest.raises(InputError, match="was changed by another process"):
        append_bytes(path, b"three\n", 4, 4)
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Any = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, content, place: real(handle, content[:3], place))
    make_file(tmp_path / "a")
    append_bytes(tmp_path / "a", b"0123456789", 0, 0)
    assert (tmp_path / "a").read_bytes() == b"0123456789"


@pytest.mark.parametrize("torn", [b"", b'{"round": 2, "test', b'{"round": 2}'])
def test_half_a_line_is_cut_off_before_the_next_is_added(tmp_path: Path, torn: bytes) -> None:
    """A power cut or a full disk leaves half a line; a line appended to it would be unreadable."""
    path = tmp_path / "metrics.jsonl"
    append_lines(path, [{"round": 1}])
    path.write_bytes(path.read_bytes() + torn)
    append_lines(path, [{"round": 3}, {"round": 4}])
    assert [row["round"] for row in read_lines(path)] == [1, 3, 4]


def test_a_file_with_only_half_a_line_starts_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"round"')
    append_lines(path, [{"round": 1}])
    assert path.read_bytes() == b'{"round": 1}\n'
