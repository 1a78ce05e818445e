"""SQLite's own writes, as operations that a test can see and make fail.

SQLite reaches the operating system through a table of functions, its VFS. This puts three of them in the place of the
built-in ones for the files of a test: those that write, cut and flush. The rest, and what they do, stays SQLite's.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

INT, PTR, I64 = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
OPEN = ctypes.CFUNCTYPE(INT, PTR, PTR, PTR, INT, PTR)
DELETE = ctypes.CFUNCTYPE(INT, PTR, PTR, INT)
WRITE = ctypes.CFUNCTYPE(INT, PTR, PTR, INT, I64)
TRUNCATE = ctypes.CFUNCTYPE(INT, PTR, I64)
SYNC = ctypes.CFUNCTYPE(INT, PTR, INT)
FULL, WRITE_ERROR, SYNC_ERROR, CUT_ERROR, DELETE_ERROR, OPEN_ERROR = 13, 778, 1034, 1546, 2570, 14  # SQLite's codes
CREATE, LOGS = 0x4, 0x80000 | 0x800  # flags of xOpen: to be made; a write-ahead log or a rollback journal


class Methods(ctypes.Structure):
    """sqlite3_io_methods, as far as it is touched, and the pointers behind."""

    _fields_ = (
        ("version", INT), ("close", PTR), ("read", PTR), ("write", PTR), ("truncate", PTR), ("sync", PTR),
        ("rest", PTR * 13),
    )  # fmt: skip


class File(ctypes.Structure):
    """sqlite3_file, which every VFS's own structure begins with."""

    _fields_ = (("methods", ctypes.POINTER(Methods)),)


class Vfs(ctypes.Structure):
    """sqlite3_vfs up to the functions that are replaced."""

    _fields_ = (
        ("version", INT), ("size", INT), ("longest", INT), ("next", PTR), ("name", ctypes.c_char_p), ("data", PTR),
        ("open", PTR), ("delete", PTR),
    )  # fmt: skip


class Call(NamedTuple):
    """Something that SQLite does to a file: `open`, `write`, `truncate`, `fsync`, `fsync folder` or `unlink`."""

    name: str
    path: Path
    content: bytes = b""
    place: int = 0


Do = Callable[..., int]  # does it, in part where a number of bytes is given
Seen = Callable[[Call, Do], int]  # what becomes of a call; an OSError becomes SQLite's error


@contextmanager
def watching(mine: Callable[[Path], bool], seen: Seen) -> Iterator[None]:
    """Show every call on files that are `mine`; connections must have been closed when the block ends."""
    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(Vfs)
    vfs = library.sqlite3_vfs_find(None).contents
    before = vfs.open, vfs.delete
    watch = _Watch(mine, seen, *before)
    vfs.open, vfs.delete = _address(watch.open), _address(watch.delete)
    try:
        yield
    finally:
        vfs.open, vfs.delete = before
        if watch.faults:
            raise watch.faults[0]


def _address(function: Any) -> int | None:
    return ctypes.cast(function, PTR).value


class _Watch:
    def __init__(self, mine: Callable[[Path], bool], seen: Seen, real_open: int, real_delete: int) -> None:
        self._mine, self._seen = mine, seen
        self.faults: list[BaseException] = []
        self._real_open, self._real_delete = OPEN(real_open), DELETE(real_delete)
        self._paths: dict[int, Path] = {}  # of open files, by their address
        self._new_logs: set[int] = set()  # whose first flush flushes the folder too
        self._real: dict[int, tuple[Any, Any, Any]] = {}
        self._tables: dict[int, Methods] = {}
        self.open, self.delete = OPEN(self._open), DELETE(self._delete)
        self._own = WRITE(self._write), TRUNCATE(self._truncate), SYNC(self._sync)

    def _told(self, call: Call, do: Do, codes: tuple[int, int]) -> int:
        """The result, or the code of an error: the first where the disk is full."""
        try:
            return self._seen(call, do)
        except OSError as error:
            return codes[0] if error.errno == errno.ENOSPC else codes[1]
        except BaseException as error:  # SQLite passes none on
            self.faults.append(error)
            return codes[1]

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        path = Path(ctypes.string_at(name).decode()) if name else None
        if path is None or not self._mine(path):
            return int(self._real_open(vfs, name, file, flags, out))
        new = bool(flags & CREATE) and not path.exists()

        def real() -> int:
            return int(self._real_open(vfs, name, file, flags, out))

        code = self._told(Call("open", path), real, (OPEN_ERROR, OPEN_ERROR)) if new else real()
        if code == 0:
            self._paths[file] = path
            self._new_logs -= {file}
            self._new_logs |= {file} if new and flags & LOGS else set()
            found = ctypes.cast(file, ctypes.POINTER(File)).contents
            found.methods = ctypes.pointer(self._table(found.methods))
        return code

    def _table(self, methods: Any) -> Methods:
        """The functions of a file, with our own among them."""
        address = ctypes.addressof(methods.contents)
        if address not in self._tables:
            own = Methods.from_buffer_copy(methods.contents)
            self._real[id(own)] = WRITE(own.write), TRUNCATE(own.truncate), SYNC(own.sync)
            own.write, own.truncate, own.sync = map(_address, self._own)
            self._tables[address] = self._tables[ctypes.addressof(own)] = own
        return self._tables[address]

    def _functions(self, file: int) -> tuple[Any, Any, Any]:
        table = ctypes.cast(file, ctypes.POINTER(File)).contents.methods.contents
        return self._real[id(self._tables[ctypes.addressof(table)])]

    def _write(self, file: int, data: int, size: int, place: int) -> int:
        real, content = self._functions(file)[0], ctypes.string_at(data, size)
        do = lambda part=size: int(real(file, data, part, place))  # noqa: E731
        return self._told(Call("write", self._paths[file], content, place), do, (FULL, WRITE_ERROR))

    def _truncate(self, file: int, size: int) -> int:
        real = self._functions(file)[1]
        call = Call("truncate", self._paths[file], place=size)
        return self._told(call, lambda: int(real(file, size)), (CUT_ERROR, CUT_ERROR))

    def _sync(self, file: int, flags: int) -> int:
        real, path = self._functions(file)[2], self._paths[file]
        code = self._told(Call("fsync", path), lambda: int(real(file, flags)), (SYNC_ERROR, SYNC_ERROR))
        if code == 0 and file in self._new_logs:
            self._new_logs.discard(file)
            code = self._told(Call("fsync folder", path), lambda: 0, (SYNC_ERROR, SYNC_ERROR))
        return code

    def _delete(self, vfs: int, name: int, folder: int) -> int:
        path = Path(ctypes.string_at(name).decode())

        def real() -> int:
            return int(self._real_delete(vfs, name, folder))

        if not self._mine(path) or not path.exists():
            return real()
        code = self._told(Call("unlink", path), real, (DELETE_ERROR, DELETE_ERROR))
        if code == 0 and folder & 1:
            code = self._told(Call("fsync folder", path), lambda: 0, (SYNC_ERROR, SYNC_ERROR))
        return code
