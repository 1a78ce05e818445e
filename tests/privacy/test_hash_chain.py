"""The hash chain: no line can be changed, removed or restored from a backup without detection."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from taciturn.core.storage import append_bytes
from taciturn.errors import CorruptFile, LedgerTampered
from taciturn.privacy import hash_chain as chain_module
from taciturn.privacy.hash_chain import HashChain, HeadNotWritten

ROWS = [{"agent": "north", "count": 3}, {"agent": "south", "count": 4}]


@pytest.fixture
def chain(tmp_path: Path) -> HashChain:
    made = HashChain(tmp_path / "ledger.jsonl", tmp_path / "ledger.head")
    made.create()
    made.append(ROWS)
    made.append([{"agent": "west", "count": 5}])
    return made


def reopened(chain: HashChain) -> HashChain:
    return HashChain(chain.path, chain.head)


def test_what_was_written_is_read(chain: HashChain) -> None:
    assert reopened(chain).read() == [*ROWS, {"agent": "west", "count": 5}]
    reopened(chain).append([{"agent": "east", "count": 1}])
    chain.append([{"agent": "again", "count": 1}])  # its cached tip is out of date
    assert [row["agent"] for row in chain.read()] == ["north", "south", "west", "east", "again"]
    chain.append([])
    assert len(chain.read()) == 5


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_changed_line_is_found(chain: HashChain, line: int) -> None:
    lines = chain.path.read_text().splitlines()
    lines[line] = lines[line].replace('"count": ', '"count": 1')
    chain.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(LedgerTampered, match=r"changed|tampered"):
        reopened(chain).read()
    with pytest.raises(LedgerTampered, match=r"changed|tampered"):
        reopened(chain).append(ROWS)


def test_an_inserted_or_removed_line_is_found(chain: HashChain) -> None:
    lines = chain.path.read_text().splitlines()
    for changed in (lines[1:], [lines[0], lines[2]], [lines[0], lines[0], *lines[1:]], [lines[1], lines[0], lines[2]]):
        chain.path.write_text("\n".join(changed) + "\n")
        with pytest.raises(LedgerTampered, match="does not follow"):
            reopened(chain).read()


def test_a_truncated_ledger_and_a_restored_backup_are_found(chain: HashChain) -> None:
    backup = chain.path.read_text()
    chain.append(ROWS)
    whole = chain.path.read_text()
    chain.path.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(LedgerTampered, match=r"has 3 lines, but .*ledger.head counts 5"):
        reopened(chain).read()
    chain.path.write_text(backup)
    with pytest.raises(LedgerTampered, match="an old copy"):
        reopened(chain).append(ROWS)
    chain.path.write_text(whole)
    assert len(reopened(chain).read()) == 5


def test_another_ledger_of_the_same_length_is_found(chain: HashChain, tmp_path: Path) -> None:
    other = HashChain(tmp_path / "other.jsonl", tmp_path / "other.head")
    other.create()
    other.append([{"agent": "x", "count": 0}] * 3)
    chain.path.write_bytes(other.path.read_bytes())
    with pytest.raises(LedgerTampered, match="is not the ledger that"):
        reopened(chain).read()


def test_a_missing_or_damaged_head_is_reported(chain: HashChain) -> None:
    head = chain.head.read_text()
    chain.head.unlink()
    with pytest.raises(CorruptFile, match=r"ledger\.head is missing"):
        reopened(chain).read()
    chain.head.write_text("no json")
    with pytest.raises(CorruptFile, match="is damaged"):
        reopened(chain).read()
    chain.head.write_text(head)
    chain.path.unlink()
    with pytest.raises(CorruptFile, match="is missing"):
        reopened(chain).read()


def test_a_crash_between_the_line_and_the_head_loses_nothing(chain: HashChain) -> None:
    """The line is on disk before the head: a crash in between leaves one line more than the head counts."""
    head = chain.head.read_text()
    chain.append([{"agent": "late", "count": 9}])
    chain.head.write_text(head)
    with chain.path.open("a") as file:
        file.write('{"line": 5, "prev')  # a crash during the next append leaves half a line
    assert reopened(chain).read()[-1] == {"agent": "late", "count": 9}
    reopened(chain).append([{"agent": "next", "count": 1}])
    assert [row["agent"] for row in reopened(chain).read()] == ["north", "south", "west", "late", "next"]
    assert json.loads(chain.head.read_text())["lines"] == 5


def test_an_append_is_complete_or_does_not_count(chain: HashChain) -> None:
    """After a crash in the middle of three lines, none of them counts, not even the complete ones."""
    before, head = chain.path.read_bytes(), chain.head.read_text()
    chain.append([{"agent": name, "count": 1} for name in "abc"])
    whole = chain.path.read_bytes()
    chain.head.write_text(head)
    lines = whole[len(before) :].splitlines(keepends=True)
    for torn in (lines[0], lines[0] + lines[1], lines[0] + lines[1] + lines[2][:30]):
        chain.path.write_bytes(before + torn)
        assert [row["agent"] for row in reopened(chain).read()] == ["north", "south", "west"]
        reopened(chain).append([{"agent": "next", "count": 1}])
        assert [row["agent"] for row in reopened(chain).read()] == ["north", "south", "west", "next"]
        chain.head.write_text(head)


def test_a_head_stored_elsewhere_distinguishes_copies(tmp_path: Path) -> None:
    elsewhere = tmp_path / "state" / "id.json"
    one = HashChain(tmp_path / "a", tmp_path / "a.head", elsewhere)
    one.create()
    one.append(ROWS)
    copy = HashChain(tmp_path / "b", tmp_path / "b.head", elsewhere)
    copy.path.write_bytes(one.path.read_bytes())
    copy.head.write_bytes(one.head.read_bytes())
    one.append(ROWS)
    with pytest.raises(LedgerTampered, match="an old copy"):
        copy.append(ROWS)
    elsewhere.unlink()
    assert len(copy.read()) == 2  # another machine has only the head beside the chain


def test_a_reader_sees_no_truncation_during_an_append(chain: HashChain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process appends after this one has read the lines: the new head must not count against them."""
    content, calls = HashChain._content, iter([True])

    def then_append(self: HashChain) -> bytes:
        found = content(self)
        if next(calls, False):
            chain.append([{"agent": "east", "count": 1}])
        return found

    reader = reopened(chain)
    monkeypatch.setattr(HashChain, "_content", then_append)
    assert len(reader.read()) == 3
    assert len(reader.read()) == 4


def apart(tmp_path: Path) -> tuple[HashChain, HashChain]:
    """Return a chain with a head in the state folder, and a copy of it."""
    elsewhere = tmp_path / "state" / "id.json"
    one, copy = (HashChain(tmp_path / name, tmp_path / f"{name}.head", elsewhere) for name in "ab")
    one.create()
    one.append(ROWS)
    copy.path.write_bytes(one.path.read_bytes())
    copy.head.write_bytes(one.head.read_bytes())
    return one, copy


def test_a_process_that_was_paused_while_a_copy_continued_is_refused_at_the_next_append(tmp_path: Path) -> None:
    """Neither has changed the other's file, so only the head in the state folder shows it."""
    one, copy = apart(tmp_path)
    copy.append(ROWS)
    before = one.path.read_bytes()
    with pytest.raises(LedgerTampered, match="an old copy"):
        one.append(ROWS)
    assert one.path.read_bytes() == before
    copy.append(ROWS)


def test_a_copy_of_the_same_length_is_detected_by_its_hash(tmp_path: Path) -> None:
    one, copy = apart(tmp_path)
    one.append([{"agent": "north", "count": 1}])
    mine = copy.head.read_bytes()
    assert copy.state_head is not None
    copy.state_head.write_bytes(mine)  # a race: both saw the earlier head
    copy.append([{"agent": "south", "count": 1}])
    with pytest.raises(LedgerTampered, match="is not the ledger that"):
        one.append(ROWS)


def test_a_second_writer_in_the_same_file_stops_the_first(tmp_path: Path) -> None:
    one, _ = apart(tmp_path)
    HashChain(one.path, one.head, one.state_head).append(ROWS)
    with pytest.raises(LedgerTampered, match="another process"):
        one.append(ROWS)


def test_without_the_head_kept_apart_nothing_is_added(tmp_path: Path) -> None:
    one, _ = apart(tmp_path)
    assert one.state_head is not None
    one.state_head.unlink()
    with pytest.raises(CorruptFile, match=r"id\.json is missing"):
        one.append(ROWS)


def test_a_line_whose_head_cannot_be_kept_is_in_the_chain_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of the state folder is full: a caller that reads the chain before it retries charges once."""
    one, _ = apart(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("taciturn.privacy.hash_chain.write_text", _full)
        with pytest.raises(HeadNotWritten):
            one.append([{"round": 1}])
        assert one.read()[-1] == {"round": 1}
        with pytest.raises(HeadNotWritten):
            one.rewrite_head()
    one.rewrite_head()
    one.rewrite_head()
    assert one.state_head is not None
    assert json.loads(one.state_head.read_text())["lines"] == json.loads(one.head.read_text())["lines"] == 3
    one.append([{"round": 2}])
    assert [row["round"] for row in one.read() if "round" in row] == [1, 2]


def test_a_line_that_cannot_be_written_is_not_in_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed flush the content of the disk is unknown, so the lines are removed and can be written again."""
    one, _ = apart(tmp_path)
    for name in ("fsync", "pwrite"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, _full)
            with pytest.raises(OSError, match="no space left") as caught:
                one.append([{"round": 1}, {"round": 1}])
            assert not isinstance(caught.value, HeadNotWritten)
        assert one.read() == ROWS
    one.append([{"round": 1}])
    assert len(one.read()) == 3


def _full(*given: object, **named: object) -> int:
    raise OSError(28, "no space left on device")


def test_appends_written_at_once_equal_single_appends(tmp_path: Path) -> None:
    """The file does not show which appends were written together."""
    groups = [ROWS, [{"agent": "west", "count": 5}], [], ROWS[:1]]
    together, alone = (HashChain(tmp_path / name, tmp_path / f"{name}.head") for name in "ab")
    for chain in (together, alone):
        chain.create()
    together.append_groups(groups)
    for group in groups:
        alone.append(group)
    assert together.path.read_bytes() == alone.path.read_bytes()
    assert together.head.read_bytes() == alone.head.read_bytes()


def test_a_process_paused_during_an_append_does_not_overwrite_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process read the heads and was paused, and a copy continued meanwhile."""
    one, copy = apart(tmp_path)
    real, asked = append_bytes, iter([True])

    def paused(*given: Any) -> None:
        real(*given)
        if next(asked, False):
            copy.append(ROWS[:1])

    monkeypatch.setattr(chain_module, "append_bytes", paused)
    with pytest.raises(LedgerTampered, match="a copy of the ledger"):
        one.append(ROWS)
    with pytest.raises(LedgerTampered, match=r"is not the ledger that|an old copy"):
        one.append(ROWS)
    copy.append(ROWS)
