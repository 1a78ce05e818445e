"""Append-only JSON lines in a hash chain, with the chain's head stored separately.

Every line holds the SHA-256 of the previous line and the number of lines of the same append that follow it. A changed
line breaks the chain. A truncated file or a restored backup is shorter than the stored head says. An append that a
crash interrupted does not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from taciturn.core.storage import append_bytes, make_file, make_folder, state_folder, to_json, write_text
from taciturn.errors import CorruptFile, LedgerTampered

GENESIS = "0" * 64  # the hash before the first line


class HeadNotWritten(OSError):
    """The rows of an append are in the chain and on disk, but a head could not be written.

    Appending them again would charge them twice. `HashChain.rewrite_head` writes the head again; until it succeeds,
    nothing that the rows describe should be released.
    """


class Head(NamedTuple):
    """The end of a chain, as a head file stores it."""

    lines: int
    hash: str  # of the last line


Heads: TypeAlias = Mapping[Path, Head]
"""What each head file stores."""


class Tip(NamedTuple):
    """The end of a chain in its file."""

    head: Head
    size: int  # bytes of complete appends
    file_size: int  # larger than `size` if a crash interrupted an append


class _Parsed(NamedTuple):
    tip: Tip
    hashes: list[str]  # GENESIS, then the hash of every line
    rows: list[dict[str, object]]


@dataclass
class HashChain:
    """A file of chained lines and the files that store its head.

    Only one process at a time appends to a chain. Every append compares the stored heads with the chain as this process
    knows it, so that a process that was paused while a copy of the chain continued is refused.

    An append that raises has left the chain as it was, with one exception: `HeadNotWritten` is raised after the rows
    are on disk. Reading the chain always shows whether rows are in it.

    Parameters
    ----------
    path
        The file of lines.
    head
        The file that stores the head.
    state_head
        A second file for the head in the user's state folder, so that a copy of the chain's folder does not include it.
    """

    path: Path
    head: Path
    state_head: Path | None = None
    _tip: Tip | None = None  # after this object's last append or read
    _head_written: bool = True  # whether the head files match the tip

    def create(self) -> None:
        """Create an empty chain and its heads."""
        make_file(self.path)
        self._write_heads(Head(0, GENESIS), {})

    def adopt(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Accept a chain from another machine as it is; append rows that say so before its head is stored here."""
        self._extend(self._parse().tip, {}, [list(rows)])

    def append(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Add all rows or none. They are on disk before the new head is.

        Raises
        ------
        LedgerTampered
            If the chain was changed, truncated or restored, or a copy of it has continued.
        HeadNotWritten
            If the rows are in the chain but its head could not be written.
        OSError
            If the rows could not be written; then they are not in the chain.
        """
        self.append_groups([rows])

    def append_groups(self, groups: Iterable[Iterable[Mapping[str, object]]]) -> None:
        """Write several appends at once; the lines are those of one `append` per group."""
        nonempty = [rows for group in groups if (rows := list(group))]
        if nonempty:
            self._extend(*self._checked_tip(), nonempty)

    def rewrite_head(self) -> None:
        """Write the head again if the last append raised `HeadNotWritten`; do nothing otherwise.

        Raises
        ------
        HeadNotWritten
            If it still cannot be written.
        """
        if not self._head_written:
            self._store(*self._checked_tip())

    def read(self) -> list[dict[str, object]]:
        """Return every row after checking the chain against itself and against its stored heads.

        Raises
        ------
        LedgerTampered, CorruptFile
            If the chain or a head does not verify, is damaged or is missing.
        """
        parsed = self._verified()
        self._tip = parsed.tip
        return parsed.rows

    def read_unverified(self) -> list[dict[str, object]]:
        """Return every row of a chain that is consistent in itself, without checking it against a stored head."""
        return self._parse().rows

    def hashes(self) -> list[str]:
        """Return `GENESIS` and the hash of every line, without checking them against a stored head."""
        return self._parse().hashes

    def _extend(self, tip: Tip, heads: Heads, groups: Iterable[list[Mapping[str, object]]]) -> None:
        """Write lines after a tip, and replace these heads."""
        (count, last), lines = tip.head, []
        for group in groups:
            for following, row in zip(reversed(range(len(group))), group, strict=True):
                own = {"line": count + 1, "previous": last, "more": following}
                lines.append(to_json(own | dict(row.items())).encode())
                count, last = count + 1, _hash(lines[-1])
        content = b"".join(line + b"\n" for line in lines)
        append_bytes(self.path, content, tip.size, tip.file_size)
        size = tip.size + len(content)
        self._tip = Tip(Head(count, last), size, size)
        self._store(self._tip, heads)

    def _store(self, tip: Tip, heads: Heads) -> None:
        self._head_written = False
        try:
            self._write_heads(tip.head, heads)
        except OSError as error:
            message = f"the head of {self.path} could not be written ({error.strerror or error})"
            raise HeadNotWritten(error.errno, message) from error
        self._head_written = True

    def _write_heads(self, head: Head, before: Heads) -> None:
        for file in (self.state_head, self.head):  # first the one that a copy of the folder does not include
            if file:
                write_head(file, head, check=partial(self._check_unchanged, file, before.get(file)))

    def _check_unchanged(self, file: Path, before: Head | None) -> None:
        """Raise if another process has written a head since this append began."""
        if before is not None and read_head(file) != before:
            raise LedgerTampered(f"{file} changed during an append to {self.path}: a copy of the ledger has continued")

    def _checked_tip(self) -> tuple[Tip, Heads]:
        """Return the tip and the stored heads after checking them; read the whole chain only if they are others'."""
        if self.state_head and not self.state_head.exists():
            raise CorruptFile(
                f"{self.state_head} is missing, so a copy of {self.path} that continued cannot be detected: "
                "nothing can be appended"
            )
        own, heads = self._tip, {file: read_head(file) for file in self._head_files()}
        current = own and all(head == own.head for head in heads.values())
        if own and current and self.path.exists() and self.path.stat().st_size == own.file_size:
            return own, heads
        tip = self._verified().tip
        if own and self.state_head and tip.head != own.head:
            raise LedgerTampered(f"another process appended to {self.path}: only one process may work on a run")
        return tip, heads

    def _head_files(self) -> list[Path]:
        """Return the heads to check against; on another machine there is only the one beside the chain."""
        return [self.head, *([self.state_head] if self.state_head and self.state_head.exists() else [])]

    def _verified(self) -> _Parsed:
        """Parse the chain and compare it with its heads; lines beyond a head were written just before a crash."""
        heads = {file: read_head(file) for file in self._head_files()}  # first: a concurrent append must not look cut
        parsed = self._parse()
        for file, head in heads.items():
            if len(parsed.hashes) <= head.lines:
                raise LedgerTampered(
                    f"{self.path} has {len(parsed.hashes) - 1} lines, but {file} counts {head.lines}: "
                    "the ledger was truncated or restored from an old copy"
                )
            if parsed.hashes[head.lines] != head.hash:
                raise LedgerTampered(
                    f"{self.path} is not the ledger that {file} belongs to: it was replaced or changed"
                )
        return parsed

    def _parse(self) -> _Parsed:
        """Read the file and check that every line follows from the previous one."""
        content = self._content()
        size = _complete_size(content)
        hashes, rows = [GENESIS], []
        for number, line in enumerate(content[:size].splitlines(), 1):
            row = _json_object(line)
            if (row.pop("line", None), row.pop("previous", None)) != (number, hashes[-1]):
                raise LedgerTampered(
                    f"line {number} of {self.path} does not follow from the previous line: it was changed"
                )
            row.pop("more", None)
            rows.append(row)
            hashes.append(_hash(line))
        return _Parsed(Tip(Head(len(rows), hashes[-1]), size, len(content)), hashes, rows)

    def _content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError as error:
            raise CorruptFile(f"the ledger {self.path} is missing") from error


def read_head(file: Path) -> Head:
    """Return the head that a file stores.

    Raises
    ------
    CorruptFile
        If the file is missing or does not hold a head.
    """
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return Head(int(stored["lines"]), str(stored["head"]))
    except FileNotFoundError as error:
        raise CorruptFile(
            f"{file} is missing, so a truncated ledger cannot be detected. "
            "If you moved the ledger from another machine, run 'taciturn ledger adopt'."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{file} is damaged: it does not hold a ledger's head") from error


def write_head(file: Path, head: Head, check: Callable[[], None] = lambda: None) -> None:
    """Store a head durably; `check` is called just before the file is replaced, and may raise."""
    make_folder(file.parent, exist_ok=True)
    write_text(file, json.dumps({"lines": head.lines, "head": head.hash}) + "\n", check=check)


def state_head_path(identity: str) -> Path:
    """Return the path of a ledger's head in the user's state folder."""
    return state_folder() / "ledgers" / f"{identity}.json"


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _complete_size(content: bytes) -> int:
    """Return the number of bytes up to the end of the last complete append."""
    end = content.rfind(b"\n") + 1
    while end:
        begin = content.rfind(b"\n", 0, end - 1) + 1
        following = _json_object(content[begin:end]).get("more")
        if not (isinstance(following, int) and following):  # anything else fails the check of the chain
            return end
        end = begin
    return 0


def _json_object(line: bytes) -> dict[str, object]:
    """Return a line's JSON object; an empty one, which fails the check of the chain, if it is something else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}
