"""A disk that remembers what was flushed to it, so that the power can be cut after every single operation.

Everything that Tacit does to files goes to the real file system, through the functions of `os`. Beside it this model
keeps what a power cut would leave: a file's bytes as of its last fsync, a folder's names as of its own. SQLite flushes
by itself; its files are taken as they are.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

Image: TypeAlias = Mapping[Path, bytes | None]  # None: a folder
LOST, KEPT, NAMES, DATA, TORN = "all lost", "all kept", "names kept", "data kept", "torn"


class Cut(NamedTuple):
    """A moment at which the power goes, and what is on the disk afterwards."""

    after: str
    way: str  # what became of that which was not flushed
    image: Image
    seen: Any  # what somebody had seen by then


class Found(NamedTuple):
    """A file or folder of the real file system."""

    path: Path
    number: int
    content: bytes | None


@dataclass
class Disk:
    """The folders `tops` on a disk; the operations on them are counted, and may fail."""

    tops: Sequence[Path]
    seen: Callable[[], Any] = lambda: None
    deaf: Callable[[Path], bool] = lambda path: False  # whose fsyncs do nothing: a mutation of the program
    fail_at: int = 0  # the number of the operation that fails with `error`
    error: OSError = field(default_factory=OSError)
    cutting: bool = True
    operations: int = 0
    cuts: dict[Any, Cut] = field(default_factory=dict)
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)  # of files that are there, by device and inode
    _next: int = 0
    _flushed: dict[int, bytes] = field(default_factory=dict)  # content by number
    _names: dict[int, dict[str, int]] = field(default_factory=dict)  # names by the folder's number
    _gone: dict[int, bytes] = field(default_factory=dict)  # content of what lost its name

    def __post_init__(self) -> None:
        """What is there already is on the disk."""
        for one in self._walk():
            if one.content is None:
                self._names[one.number] = self._listing(one.path)
            else:
                self._flushed[one.number] = one.content

    def attach(self, patch: pytest.MonkeyPatch) -> None:
        """Take the place of the operating system's functions."""
        for name in ("replace", "rename", "mkdir", "unlink", "ftruncate", "truncate"):
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        patch.setattr(os, "open", self._opening(os.open))
        patch.setattr(os, "pwrite", self._writing(os.pwrite))
        patch.setattr(os, "fsync", self._fsync)

    def restore(self, image: Image) -> None:
        """Put an image in the place of what is there."""
        for top in self.tops:
            shutil.rmtree(top, ignore_errors=True)
        for path, content in image.items():
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.write_bytes(content)

    def _wrapped(self, name: str, real: Any) -> Any:
        def operation(target: Any, *more: Any, **named: Any) -> Any:
            path = _path(target, named)
            if path is None or not self._mine(path):
                return real(target, *more, **named)
            self._count()
            self._forget(path if name == "unlink" else _path(more[0]) if name in ("replace", "rename") else None)
            done = real(target, *more, **named)
            self._snap(f"{name} {path.name}")
            return done

        return operation

    def _opening(self, real: Any) -> Any:
        def operation(target: Any, flags: int, *more: Any, **named: Any) -> int:
            path = _path(target)
            if path is None or not self._mine(path) or not flags & os.O_CREAT:
                return int(real(target, flags, *more, **named))
            self._count()
            handle = int(real(target, flags, *more, **named))
            self._snap(f"open {path.name}")
            return handle

        return operation

    def _writing(self, real: Any) -> Any:
        def operation(handle: int, content: bytes, place: int) -> int:
            path = _path(handle)
            if path is None or not self._mine(path):
                return int(real(handle, content, place))
            self._count()
            half = max(1, len(content) // 2)
            real(handle, content[:half], place)
            self._snap(f"half of a write to {path.name}", TORN)
            done = half + int(real(handle, content[half:], place + half)) if half < len(content) else half
            self._snap(f"write to {path.name}")
            return done

        return operation

    def _fsync(self, handle: int) -> None:
        path = _path(handle)
        if path is None or not self._mine(path):
            return
        self._count()
        if self.deaf(path):
            return
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            self._names[self._number(status)] = self._listing(path)
        else:
            self._flushed[self._number(status)] = Path(f"/proc/self/fd/{handle}").read_bytes()
        self._snap(f"fsync {path.name}")

    def _count(self) -> None:
        self.operations += 1
        if self.operations == self.fail_at:
            raise self.error

    def _mine(self, path: Path) -> bool:
        return any(path == top or path.is_relative_to(top) for top in self.tops)

    def _number(self, status: os.stat_result) -> int:
        key = (status.st_dev, status.st_ino)
        if key not in self._numbers:
            self._next += 1
            self._numbers[key] = self._next
        return self._numbers[key]

    def _forget(self, path: Path | None) -> None:
        """A file loses its name, and another may get its inode."""
        if path is not None and path.exists():
            status = path.stat()
            if path.is_file():
                self._gone[self._number(status)] = path.read_bytes()
            self._numbers.pop((status.st_dev, status.st_ino), None)

    def _listing(self, folder: Path) -> dict[str, int]:
        return {path.name: self._number(path.stat()) for path in folder.iterdir()}

    def _walk(self) -> list[Found]:
        found, folders = [], [top for top in self.tops if top.exists()]
        for path in folders:
            status = path.stat()
            inside = stat.S_ISDIR(status.st_mode)
            found.append(Found(path, self._number(status), None if inside else path.read_bytes()))
            if inside:
                folders += sorted(path.iterdir())
        return found

    def _snap(self, after: str, *ways: str) -> None:
        if not self.cutting:
            return
        now = self._walk()
        here, data = {one.path: one for one in now}, {one.number: one.content for one in now}
        kept = {one.path: one.content for one in now}
        images = {TORN: kept} if ways else {
            KEPT: kept,
            LOST: self._left(here, self._flushed.get),
            DATA: self._left(here, lambda n: data.get(n) or self._gone.get(n, self._flushed.get(n))),
            NAMES: {
                path: content if content is None or _sqlite(path) else self._flushed.get(here[path].number, b"")
                for path, content in kept.items()
            },
        }  # fmt: skip
        seen = self.seen()
        for way, image in images.items():
            key = tuple(sorted((p, c) for p, c in image.items() if not p.name.startswith(".")))
            self.cuts[hash(key)] = Cut(after, way, image, seen)  # the last has seen most

    def _left(self, here: Mapping[Path, Found], content: Callable[[int], bytes | None]) -> dict[Path, bytes | None]:
        """What is under the names that were flushed."""
        image: dict[Path, bytes | None] = {}
        folders = [(top, here[top].number) for top in self.tops if top in here]
        for place, folder in folders:
            image[place] = None
            for name, number in self._names.get(folder, {}).items():
                path = place / name
                if number in self._names or (path in here and here[path].number == number and _is_folder(here[path])):
                    folders.append((path, number))
                elif not _sqlite(path):
                    image[path] = content(number) or b""
            image |= {p: one.content for p, one in here.items() if p.parent == place and _sqlite(p)}
        return image


def _is_folder(one: Found) -> bool:
    return one.content is None


def _sqlite(path: Path) -> bool:
    return ".sqlite" in path.name


def _path(target: Any, named: Mapping[str, Any] | None = None) -> Path | None:
    if isinstance(target, int):
        return Path(f"/proc/self/fd/{target}").readlink()
    if named and named.get("dir_fd") is not None:
        return Path(f"/proc/self/fd/{named['dir_fd']}").readlink() / os.fsdecode(target)
    return Path(os.path.abspath(os.fsdecode(target)))  # noqa: PTH100  resolve() would follow links
