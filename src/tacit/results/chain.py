"""Append-only JSON lines in a hash chain, whose head is kept a second time.

Every line holds the SHA-256 of the line before it, and how many lines of the same append follow. A changed line breaks
the chain; a cut tail or a restored backup leaves the chain shorter than the head that was kept elsewhere says; an
append that a crash tore counts as not made.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.results.files import to_json, write_text
from tacit.state import state_folder

BEGINNING = "0" * 64


@dataclass
class Chain:
    """A file of chained lines, and the files its head is kept in."""

    path: Path
    head: Path
    elsewhere: Path | None = None  # a second place for the head, where a copy of the folder does not reach
    _tip: tuple[int, str, int] | None = None  # lines, last hash and size after our own last append

    def create(self) -> None:
        """An empty chain."""
        self.path.touch()
        if self.elsewhere:
            self.elsewhere.parent.mkdir(parents=True, exist_ok=True)
        self._keep_head(0, BEGINNING)

    def adopt(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take a chain that came from elsewhere as it stands; the rows that say so come before its head is kept."""
        hashes = self._hashes()
        size = _whole_appends(self.path.read_bytes())
        os.truncate(self.path, size)
        self._tip = (len(hashes) - 1, hashes[-1], size)
        self.append(rows)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows, all or none: they are on the disk before the new head is."""
        count, last = self._own_tip() or self._verified()
        lines, added = [], list(rows)
        for more, row in zip(reversed(range(len(added))), added, strict=True):
            lines.append(to_json({"line": count + 1, "previous": last, "more": more, **row}).encode())
            count, last = count + 1, _hash(lines[-1])
        if not lines:
            return
        with self.path.open("r+b") as file:
            if self._own_tip() is None:
                file.truncate(_whole_appends(file.read()))  # what a crash tore was never counted
            file.seek(0, os.SEEK_END)
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
            self._tip = (count, last, file.tell())
        self._keep_head(count, last)

    def read(self) -> list[dict[str, Any]]:
        """Every row, after the chain was checked against itself and against its head."""
        self._verified()
        return [_without_links(json.loads(line)) for line in self._lines()]

    def rows(self) -> list[dict[str, Any]]:
        """Every row of lines that follow from one another; they are held against no head that was kept."""
        self._hashes()
        return [_without_links(json.loads(line)) for line in self._lines()]

    def hashes(self) -> list[str]:
        """The hash of every line after the beginning's; they are held against no head that was kept."""
        return self._hashes()

    def kept(self) -> tuple[int, str]:
        """The number of lines and the last one's hash, as they were kept."""
        return _read_head(self.head)

    def _own_tip(self) -> tuple[int, str] | None:
        """The tip this process left, where nobody has touched the file since: it need not be checked again."""
        if self._tip is None or self.path.stat().st_size != self._tip[2]:
            return None
        return self._tip[:2]

    def _lines(self) -> list[bytes]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            raise InputError(f"the ledger {self.path} is gone") from None
        return content[: _whole_appends(content)].splitlines()

    def _verified(self) -> tuple[int, str]:
        """The number of lines and the last one's hash; lines beyond the kept head were written just before a crash."""
        heads = [(head, *_read_head(head)) for head in self._heads()]  # first, so that another's append does no harm
        hashes = self._hashes()
        for head in heads:
            self._check_head(*head, hashes)
        return len(hashes) - 1, hashes[-1]

    def _hashes(self) -> list[str]:
        """The hash of every line after the beginning's, where each follows from the one before."""
        hashes = [BEGINNING]
        for number, line in enumerate(self._lines(), 1):
            if _previous(line) != (number, hashes[-1]):
                raise InputError(f"line {number} of {self.path} does not follow from the one before: it was changed")
            hashes.append(_hash(line))
        return hashes

    def _check_head(self, head: Path, count: int, kept: str, hashes: list[str]) -> None:
        if len(hashes) <= count:
            raise InputError(
                f"{self.path} has {len(hashes) - 1} lines, but {head} knows of {count}: "
                "its tail was cut off, or an old copy was put back"
            )
        if hashes[count] != kept:
            raise InputError(f"{self.path} is not the ledger that {head} knows: it was replaced or changed")

    def _heads(self) -> list[Path]:
        """The heads to check against; on another machine there is only the one beside the chain."""
        return [self.head, *([self.elsewhere] if self.elsewhere and self.elsewhere.exists() else [])]

    def _keep_head(self, count: int, last: str) -> None:
        for head in (self.head, self.elsewhere):
            if head:
                write_text(head, json.dumps({"lines": count, "head": last}) + "\n")


def _without_links(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in {"line", "previous", "more"}}


def _read_head(head: Path) -> tuple[int, str]:
    try:
        kept = json.loads(head.read_text(encoding="utf-8"))
        return int(kept["lines"]), str(kept["head"])
    except FileNotFoundError:
        raise InputError(
            f"{head} is gone: without it a cut ledger could not be told; one that was moved here: 'tacit ledger adopt'"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{head} is damaged: it must hold the ledger's head") from None


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _whole_appends(content: bytes) -> int:
    """How many bytes of a file are whole appends: up to the last line that no other line of its append follows."""
    end = content.rfind(b"\n") + 1
    while end:
        begin = content.rfind(b"\n", 0, end - 1) + 1
        if _more(content[begin:end]) == 0:
            return end
        end = begin
    return 0


def _more(line: bytes) -> int:
    """How many lines of its append follow; 0 for what is not a line of ours, so that the chain's check finds it."""
    try:
        return int(json.loads(line)["more"])
    except (ValueError, KeyError, TypeError):
        return 0


def _previous(line: bytes) -> tuple[int, str] | None:
    try:
        row = json.loads(line)
        return int(row["line"]), str(row["previous"])
    except (ValueError, KeyError, TypeError):
        return None


def head_elsewhere(identity: str) -> Path:
    """The place of a ledger's head outside its folder."""
    return state_folder() / "ledgers" / f"{identity}.json"
