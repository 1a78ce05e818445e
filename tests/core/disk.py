"""A disk that remembers what was flushed to it, so that the power can be cut after every single operation.

Everything that Taciturn does to files goes to the real file system, through the functions of `os` and `io` and, in the
journals of sites, through SQLite's. Beside it this model keeps what a power cut would leave: a file's bytes as of its
last fsync, a folder's names as of its own. Any operation can be made to fail, too.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from tests.core.sqlite_calls import Call, Do, watching

Image: TypeAlias = Mapping[str, bytes | None]  # by path; None: a folder
LOST, KEPT, NAMES, DATA, TORN = WAYS = ("all lost", "all kept", "names kept", "data kept", "torn")


class Cut(NamedTuple):
    """A moment of a power cut, and the content of the disk afterwards."""

    after: str
    way: str  # what became of that which was not flushed
    image: Image
    seen: Any  # what somebody had seen by then


class Found(NamedTuple):
    """A file or folder of the real file system."""

    path: str
    number: int
    content: bytes | None


@dataclass
class Disk:
    """The folders `tops` on a disk; the operations on them are counted, and may fail."""

    tops: Sequence[Path]
    seen: Callable[[], Any] = lambda: None
    deaf: Callable[[Path], bool] = lambda path: False  # whose fsyncs do nothing: a mutation of the program
    fail_at: int = 0  # the number of the operation that fails
    error: int = errno.EIO  # as it fails; where the disk is full, half of a write is on it
    cutting: bool = True
    ways: Sequence[str] = WAYS  # in which the power is cut
    operations: int = 0
    failed: str = ""  # the operation that failed
    images: int = 0  # in all; `cuts` has those that differ
    cuts: dict[Any, Cut] = field(default_factory=dict)
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)  # of files that are there, by device and inode
    _next: int = 0
    _content: dict[int, bytes] = field(default_factory=dict)  # by number, of files as they are
    _flushed: dict[int, bytes] = field(default_factory=dict)  # content by number
    _names: dict[int, dict[str, int]] = field(default_factory=dict)  # names by the folder's number
    _gone: dict[int, bytes] = field(default_factory=dict)  # content of what lost its name

    def __post_init__(self) -> None:
        """Count everything that exists now as flushed to the disk."""
        for one in self._walk() if self.cutting else ():
            if one.content is None:
                self._names[one.number] = self._listing(Path(one.path))
            else:
                self._flushed[one.number] = one.content

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Take the place of the operating system's functions, in Python and in SQLite."""
        with pytest.MonkeyPatch.context() as patch, watching(self._mine, self._in_sqlite):
            for name in ("replace", "rename", "mkdir", "rmdir", "link", "unlink", "ftruncate", "truncate"):
                patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
            patch.setattr(os, "open", self._opening(os.open))
            patch.setattr(os, "pwrite", self._placing(os.pwrite))
            patch.setattr(os, "fsync", self._flushing(os.fsync))
            patch.setattr(os, "fdopen", self._wrapping(os.fdopen))
            patch.setattr(io, "open", self._wrapping(io.open))
            yield

    def restore(self, image: Image) -> None:
        """Replace the current content by an image."""
        for top in self.tops:
            shutil.rmtree(top, ignore_errors=True)
        for path, content in image.items():
            if content is None:
                os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103  thousands of times, as all of this
            else:
                handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
                os.write(handle, content)
                os.close(handle)

    def image(self) -> Image:
        """Return the current content, with nothing lost."""
        self._content.clear()
        return {one.path: one.content for one in self._walk()}

    def check_complete(self) -> None:
        """Everything that was done to files was seen: they are what this model takes them for."""
        known, self._content = self._content, {}
        assert {one.number: one.content for one in self._walk() if one.content is not None}.items() <= known.items()

    def _operation(self, what: str, path: Path, do: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """One operation, after `half` of it where it is a write: counted, and failing where it is its turn."""
        self.operations += 1
        if self.operations == self.fail_at:
            self.failed = f"{what} {path.name}"
            if half and self.error == errno.ENOSPC:
                half()
            raise OSError(self.error, os.strerror(self.error))
        if half and self.cutting and TORN in self.ways:
            half()
            self._touched(path)
            self._snap(f"half of {what} {path.name}", torn=True)
        done = do()
        self._touched(path)
        self._snap(f"{what} {path.name}")
        return done

    def _wrapped(self, name: str, real: Any) -> Any:
        def operation(target: Any, *more: Any, **named: Any) -> Any:
            path = _path(target, named)
            if path is None or not self._mine(path):
                return real(target, *more, **named)

            def do() -> Any:
                self._forget(path if name in ("unlink", "rmdir") else _path(more[0]) if "re" in name[:2] else None)
                return real(target, *more, **named)

            return self._operation(name, path, do)

        return operation

    def _opening(self, real: Any) -> Any:
        def operation(target: Any, flags: int, *more: Any, **named: Any) -> int:
            path = _path(target, named) if flags & os.O_CREAT else None
            if path is None or not self._mine(path):
                return int(real(target, flags, *more, **named))
            return int(self._operation("open", path, lambda: real(target, flags, *more, **named)))

        return operation

    def _placing(self, real: Any) -> Any:
        def operation(handle: int, content: bytes, place: int) -> int:
            path = _path(handle)
            if path is None or not self._mine(path):
                return int(real(handle, content, place))
            half = content[: max(1, len(content) // 2)]
            do = lambda: int(real(handle, content, place))  # noqa: E731
            return int(self._operation("write to", path, do, lambda: real(handle, half, place)))

        return operation

    def _wrapping(self, real: Any) -> Any:
        """Files of Python write through this model."""

        def operation(target: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            path = _path(target) if set(mode) & set("wax") else None
            if path is None or not self._mine(path):
                return real(target, mode, *more, **named)
            flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if "w" in mode else os.O_APPEND)
            handle = target if isinstance(target, int) else os.open(path, flags | os.O_CLOEXEC, 0o666)
            raw = io.BufferedWriter(_Raw(self, handle, path))
            return raw if "b" in mode else io.TextIOWrapper(raw, encoding="utf-8")

        return operation

    def write(self, handle: int, content: bytes, path: Path) -> int:
        """What a file of Python writes."""
        half, begun = content[: max(1, len(content) // 2)], [0]

        def first() -> None:
            begun[0] = os.write(handle, half)

        def rest() -> int:
            return begun[0] + (os.write(handle, content[begun[0] :]) if begun[0] < len(content) else 0)

        return int(self._operation("write to", path, rest, first))

    def _in_sqlite(self, call: Call, do: Do) -> int:
        def flush_names() -> int:
            self._flush_names(call.path.parent)
            return 0

        def flush() -> int:
            code = do()
            self._flush_content(call.path)
            return code

        def unlink() -> int:
            self._forget(call.path)
            return do()

        if call.name == "write":
            return int(self._operation("write to", call.path, do, lambda: do(max(1, len(call.content) // 2))))
        if call.name == "fsync folder":
            return int(self._operation("fsync", call.path.parent, flush_names))
        return int(self._operation(call.name, call.path, {"fsync": flush, "unlink": unlink}.get(call.name, do)))

    def _flushing(self, real: Any) -> Any:
        def operation(handle: int) -> None:
            path = _path(handle)
            if path is None or not self._mine(path):
                real(handle)
                return

            def do() -> None:
                real(handle)
                (self._flush_names if path.is_dir() else self._flush_content)(path)

            self._operation("fsync", path, do)

        return operation

    def _flush_names(self, folder: Path) -> None:
        if self.cutting and not self.deaf(folder):
            self._names[self._number(folder.stat())] = self._listing(folder)

    def _flush_content(self, path: Path) -> None:
        if self.cutting and not self.deaf(path):
            self._flushed[self._number(path.stat())] = path.read_bytes()

    def _mine(self, path: Path) -> bool:
        return not _shared(path.name) and f"{path}/".startswith(tuple(f"{top}/" for top in self.tops))

    def _number(self, status: os.stat_result) -> int:
        key = (status.st_dev, status.st_ino)
        if key not in self._numbers:
            self._next += 1
            self._numbers[key] = self._next
        return self._numbers[key]

    def _touched(self, path: Path) -> None:
        if self.cutting and path.is_file():
            self._content.pop(self._number(path.stat()), None)

    def _forget(self, path: Path | None) -> None:
        """A file loses its name, and another may get its inode."""
        if self.cutting and path and path.exists() and path.stat().st_nlink <= (2 if path.is_dir() else 1):
            status = path.stat()
            if path.is_file():
                self._gone[self._number(status)] = path.read_bytes()
            self._numbers.pop((status.st_dev, status.st_ino), None)

    def _listing(self, folder: Path) -> dict[str, int]:
        with os.scandir(folder) as entries:
            return {entry.name: self._number(entry.stat()) for entry in entries if not _shared(entry.name)}

    def _walk(self) -> list[Found]:
        """What is there; a file is read again when something was done to it."""
        found: list[Found] = []
        folders = [str(top) for top in self.tops if top.exists()]
        for top in folders:
            found.append(Found(top, self._number(os.stat(top)), None))  # noqa: PTH116
            with os.scandir(top) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    if entry.is_dir():
                        folders.append(entry.path)
                    elif not _shared(entry.name):
                        number = self._number(entry.stat())
                        if number not in self._content:
                            self._content[number] = Path(entry.path).read_bytes()
                        found.append(Found(entry.path, number, self._content[number]))
        return found

    def _snap(self, after: str, torn: bool = False) -> None:
        if not self.cutting:
            return
        now = self._walk()
        here, data = {one.path: one for one in now}, {one.number: one.content for one in now}
        kept = {one.path: one.content for one in now}
        images: dict[str, Callable[[], Image]] = {TORN: lambda: kept} if torn else {
            KEPT: lambda: kept,
            LOST: lambda: self._left(here, self._flushed.get),
            DATA: lambda: self._left(here, lambda n: data.get(n) or self._gone.get(n, self._flushed.get(n))),
            NAMES: lambda: {
                path: content if content is None else self._flushed.get(here[path].number, b"")
                for path, content in kept.items()
            },
        }  # fmt: skip
        seen = self.seen()
        for way in [way for way in images if way in self.ways]:
            image = images[way]()
            self.images += 1
            self.cuts[self._key(image)] = Cut(after, way, image, seen)  # the last has seen most

    def _left(self, here: Mapping[str, Found], content: Callable[[int], bytes | None]) -> dict[str, bytes | None]:
        """What is under the names that were flushed."""
        image: dict[str, bytes | None] = {}
        folders = [(top, here[top].number) for top in map(str, self.tops) if top in here]
        for place, folder in folders:
            image[place] = None
            for name, number in self._names.get(folder, {}).items():
                path = f"{place}/{name}"
                if number in self._names or (path in here and here[path].number == number and _is_folder(here[path])):
                    folders.append((path, number))
                else:
                    image[path] = content(number) or b""
        return image

    def _key(self, image: Image) -> int:
        """The same for images that cannot be told apart.

        Of an SQLite file what it says counts, not how it says it; and who is started next clears away what is under a
        name that begins with a dot.
        """
        plain = {path: content for path, content in image.items() if "/." not in path}
        for path in [path for path in plain if path.endswith(".sqlite")]:
            logs = [plain.pop(f"{path}{end}", None) for end in ("-wal", "-journal")]
            plain[path] = said_by(Path(self.tops[0]).parent, plain[path] or b"", *logs)
        return hash(frozenset(plain.items()))


class _Raw(io.RawIOBase):
    """A file that is written to through a disk."""

    def __init__(self, disk: Disk, handle: int, path: Path) -> None:
        self._disk, self._handle, self._path = disk, handle, path

    def write(self, content: Any) -> int:
        return self._disk.write(self._handle, bytes(content), self._path)

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        return os.lseek(self._handle, place, whence)

    def fileno(self) -> int:
        return self._handle

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._handle)


@cache
def said_by(folder: Path, content: bytes, log: bytes | None, journal: bytes | None) -> bytes:
    """All that an SQLite file says, after it has recovered from its logs; what is damaged is an error."""
    place = folder / "copy"
    for end, data in (("", content), ("-wal", log), ("-journal", journal)):
        if data is not None:
            Path(f"{place}{end}").write_bytes(data)
    connection = sqlite3.connect(place)
    try:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        tables = connection.execute("select name, sql from sqlite_master order by name").fetchall()
        names = [name for name, sql in tables if sql and sql.startswith("CREATE TABLE")]
        rows = [connection.execute(f'select * from "{name}"').fetchall() for name in names]
        return repr((tables, rows)).encode()
    finally:
        connection.close()
        for end in ("", "-wal", "-shm", "-journal"):
            Path(f"{place}{end}").unlink(missing_ok=True)


def _shared(name: str) -> bool:
    """Whether SQLite keeps shared memory in a file of this name, which no power cut leaves."""
    return name.endswith("-shm")


def _is_folder(one: Found) -> bool:
    return one.content is None


def _path(target: Any, named: Mapping[str, Any] | None = None) -> Path | None:
    if isinstance(target, int):
        return Path(f"/proc/self/fd/{target}").readlink()
    if named and named.get("dir_fd") is not None:
        return Path(f"/proc/self/fd/{named['dir_fd']}").readlink() / os.fsdecode(target)
    return Path(os.path.abspath(os.fsdecode(target)))  # noqa: PTH100  resolve() would follow links
