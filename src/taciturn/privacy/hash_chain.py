"""Append-only JSON lines in a hash chain, whose head is kept a second time.

Every line holds the SHA-256 of the line before it, and how many lines of the same append follow. A changed line breaks
the chain; a cut tail or a restored backup leaves the chain shorter than the head that was kept elsewhere says; an
append that a crash tore counts as not made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from taciturn.core.storage import append_bytes, make_file, make_folder, state_folder, to_json, write_text
from taciturn.errors import InputError

BEGINNING = "0" * 64


class HeadNotKept(OSError):
    """The rows of an append are in the chain and on the disk, but a head could not be written.

    To append them again would charge them twice. `Chain.keep_head` tries the head again; until it is kept, nothing
    that the rows are about should leave.
    """


class Tip(NamedTuple):
    """Where a chain ends."""

    lines: int
    last: str  # the last line's hash
    size: int  # bytes of whole appends
    seen: int  # bytes of the file: more, where a crash tore an append


@dataclass
class HashChain:
    """A file of chained lines, and the files its head is kept in.

    Only one process appends to a chain at a time. Every append compares the kept heads with the chain as this process
    knows it, so that a process which slept while a copy of the chain went on is refused.

    An append that raises has left the chain as it was, with one exception: `HeadNotKept` is raised where the rows are
    on the disk already. Whether rows are in the chain can always be seen by reading it.
    """

    path: Path
    head: Path
    elsewhere: Path | None = None  # a second place for the head, where a copy of the folder does not reach
    _tip: Tip | None = None  # after our own last append
    _kept: bool = True  # whether the heads are those of the tip
    _known: dict[Path, tuple[int, str]] = field(default_factory=dict)  # the heads as they were before the append

    def create(self) -> None:
        """An empty chain."""
        make_file(self.path)
        self._keep_head(0, BEGINNING)

    def adopt(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take a chain that came from elsewhere as it stands; the rows that say so come before its head is kept."""
        self._extend(self._found()[0], [list(rows)])

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows, all or none: they are on the disk before the new head is.

        Raises
        ------
        InputError
            Where the chain was changed, cut or put back, or a copy of it has gone on.
        HeadNotKept
            Where the rows are in the chain, but its head could not be kept.
        OSError
            Where the rows could not be written; they are not in the chain then.
        """
        self.append_groups([rows])

    def append_groups(self, groups: Iterable[Iterable[Mapping[str, Any]]]) -> None:
        """Add several appends in one go: the lines are those of one `append` after the other."""
        whole = [added for group in groups if (added := list(group))]
        if whole:
            self._extend(self._checked(), whole)

    def keep_head(self) -> None:
        """Keep the head of a chain whose last append raised `HeadNotKept`; elsewhere there is nothing to do.

        Raises
        ------
        HeadNotKept
            Where it cannot be kept now either.
        """
        if not self._kept:
            tip = self._checked()
            self._keep_tip(tip)

    def _extend(self, tip: Tip, groups: Iterable[list[Mapping[str, Any]]]) -> None:
        count, last, lines = tip.lines, tip.last, []
        for group in groups:
            for more, row in zip(reversed(range(len(group))), group, strict=True):
                lines.append(to_json({"line": count + 1, "previous": last, "more": more, **row}).encode())
                count, last = count + 1, _hash(lines[-1])
        content = b"".join(line + b"\n" for line in lines)
        append_bytes(self.path, content, tip.size, tip.seen)
        size = tip.size + len(content)
        self._tip = Tip(count, last, size, size)
        self._keep_tip(self._tip)

    def _keep_tip(self, tip: Tip) -> None:
        self._kept = False
        try:
            self._keep_head(tip.lines, tip.last)
        except OSError as error:
            raise HeadNotKept(
                error.errno, f"the head of {self.path} could not be kept ({error.strerror or error})"
            ) from error
        self._kept = True

    def _checked(self) -> Tip:
        """Where the chain ends, after a look at the kept heads; the whole chain is read where they are not our own."""
        if self.elsewhere and not self.elsewhere.exists():
            raise InputError(
                f"{self.elsewhere} is gone: without it nobody can tell whether a copy of {self.path} went on, "
                "and it cannot be added to"
            )
        own = self._tip
        self._known = {head: read_head(head) for head in self._heads()}
        if own and all(known == own[:2] for known in self._known.values()) and self._size() == own.seen:
            return own
        found = self._verified()
        if own and self.elsewhere and found[:2] != own[:2]:
            raise InputError(f"another process has added to {self.path} meanwhile: only one may work at a run")
        return found

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            raise _gone(self.path) from None

    def read(self) -> list[dict[str, Any]]:
        """Every row, after the chain was checked against itself and against its head."""
        self._tip = self._verified()
        return [_without_links(json.loads(line)) for line in self._lines()]

    def rows(self) -> list[dict[str, Any]]:
        """Every row of lines that follow from one another; they are held against no head that was kept."""
        self._found()
        return [_without_links(json.loads(line)) for line in self._lines()]

    def hashes(self) -> list[str]:
        """The hash of every line after the beginning's; they are held against no head that was kept."""
        return self._found()[1]

    def _lines(self) -> list[bytes]:
        content = self._content()
        return content[: _whole_appends(content)].splitlines()

    def _content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            raise _gone(self.path) from None

    def _verified(self) -> Tip:
        """Where the chain ends; lines beyond the kept head were written just before a crash."""
        heads = [(head, *read_head(head)) for head in self._heads()]  # first, so that another's append does no harm
        tip, hashes = self._found()
        for head in heads:
            self._check_head(*head, hashes)
        return tip

    def _found(self) -> tuple[Tip, list[str]]:
        """Where the chain in the file ends, and the hashes of its lines, whatever the heads say."""
        content = self._content()
        size = _whole_appends(content)
        hashes = self._hashes(content[:size].splitlines())
        return Tip(len(hashes) - 1, hashes[-1], size, len(content)), hashes

    def _hashes(self, lines: Iterable[bytes]) -> list[str]:
        """The hash of every line after the beginning's, where each follows from the one before."""
        hashes = [BEGINNING]
        for number, line in enumerate(lines, 1):
            if _previous(line) != (number, hashes[-1]):
                raise InputError(f"line {number} of {self.path} does not follow from the one before: it was changed")
            hashes.append(_hash(line))
        return hashes

    def _check_head(self, head: Path, count: int, kept: str, hashes: list[str]) -> None:
        if len(hashes) <= count:
            raise InputError(
                f"{self.path} has {len(hashes) - 1} lines, but {head} counts {count}: "
                "its tail was cut off, or an old copy was put back"
            )
        if hashes[count] != kept:
            raise InputError(f"{self.path} is not the ledger that {head} belongs to: it was replaced or changed")

    def _heads(self) -> list[Path]:
        """The heads to check against; on another machine there is only the one beside the chain."""
        return [self.head, *([self.elsewhere] if self.elsewhere and self.elsewhere.exists() else [])]

    def _keep_head(self, count: int, last: str) -> None:
        for head in (self.elsewhere, self.head):  # the one a copy does not reach comes first
            if head:
                make_folder(head.parent, exist_ok=True)
                write_text(
                    head, json.dumps({"lines": count, "head": last}) + "\n", check=partial(self._check_kept, head)
                )

    def _check_kept(self, head: Path) -> None:
        """Refuse to write over a head that somebody else has kept since this append began, while we slept."""
        if head in self._known and read_head(head) != self._known[head]:
            raise InputError(f"{head} has moved on while {self.path} was added to: a copy of it has gone on")


def _without_links(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in {"line", "previous", "more"}}


def read_head(head: Path) -> tuple[int, str]:
    """The number of lines and the last one's hash that a file keeps."""
    try:
        kept = json.loads(head.read_text(encoding="utf-8"))
        return int(kept["lines"]), str(kept["head"])
    except FileNotFoundError:
        raise InputError(
            f"{head} is gone: without it a cut ledger could not be told; one that was moved here: 'taciturn ledger adopt'"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{head} is damaged: it must hold the ledger's head") from None


def _gone(path: Path) -> InputError:
    return InputError(f"the ledger {path} is gone")


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
