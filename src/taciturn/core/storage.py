"""Durable storage: paths, atomic writes, appends and JSON that survive a power cut. All files are written here."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from taciturn.core.arrays import Array
from taciturn.errors import CorruptFile, InputError, missing_file

LOCAL_FOLDER, CHECKPOINT_FOLDER = "local-only", "checkpoint"


def text_hash(content: str) -> str:
    """Return the SHA-256 of a text in hexadecimal.

    Examples
    --------
    >>> text_hash("mnist14")[:8]
    '18916448'
    """
    return hashlib.sha256(content.encode()).hexdigest()


def state_folder() -> Path:
    """Return Taciturn's folder in the user's state folder, `$XDG_STATE_HOME/taciturn` or `~/.local/state/taciturn`."""
    return _xdg_folder("XDG_STATE_HOME", "~/.local/state")


def cache_folder() -> Path:
    """Return Taciturn's folder in the user's cache folder, `$XDG_CACHE_HOME/taciturn` or `~/.cache/taciturn`."""
    return _xdg_folder("XDG_CACHE_HOME", "~/.cache")


def _xdg_folder(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")  # the XDG specification says to ignore a relative path
    return _own_folder(given if os.path.isabs(given) else os.path.expanduser(default))  # noqa: PTH111, PTH117


@lru_cache(maxsize=8)  # asked for whenever a file is opened
def _own_folder(base: str) -> Path:
    return Path(base) / "taciturn"


def is_private(path: Path) -> bool:
    """Return whether a path lies in a private folder or in the state folder; such files get mode 0600."""
    private = {LOCAL_FOLDER, CHECKPOINT_FOLDER}
    return path.name in private or path.parent.name in private or path.is_relative_to(state_folder())


def file_version(path: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever a file is written: inode, size and time of the last change; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_ctime_ns


def flush_folder(path: Path) -> None:
    """Flush a folder's directory entries to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot flush a folder
            raise
    finally:
        os.close(handle)


def make_folder(path: Path, exist_ok: bool = False, private: bool = False) -> None:
    """Create a folder and its missing parents, and flush them to disk.

    Parameters
    ----------
    path
        The folder.
    exist_ok
        Whether the folder may exist already.
    private
        Whether only the owner may enter it (mode 0700). Also true for folders that are private by their location; an
        existing private folder that others can read is closed.

    Raises
    ------
    FileExistsError
        If the path exists, unless it is a folder and `exist_ok` is true.
    """
    if not path.parent.exists() or path.parent.is_relative_to(state_folder()):
        make_folder(path.parent, exist_ok=True)
    private = private or is_private(path)
    try:
        path.mkdir(mode=0o700 if private else 0o777)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
        if private and path.stat().st_mode & 0o077:
            path.chmod(0o700)
        return
    flush_folder(path.parent)


def open_file(path: Path, flags: int, private: bool = False) -> int:
    """Return a file descriptor; a file that `flags` create has mode 0600 if private, else the umask's."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600 if private or is_private(path) else 0o666)


def make_file(path: Path) -> None:
    """Create an empty file and flush its name to disk; an existing file is left unchanged."""
    os.close(open_file(path, os.O_RDWR | os.O_CREAT))
    flush_folder(path.parent)


def require_folder(path: Path) -> None:
    """Raise InputError if the folder of a file that is to be written does not exist."""
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to put {path.name} into")


@contextmanager
def atomic_write(path: Path, private: bool = False, check: Callable[[], None] = lambda: None) -> Iterator[IO[bytes]]:
    """Write a file that replaces `path` when the block succeeds; if it raises, `path` stays as it was.

    The new content is on disk, under its name, when the block has ended.

    Parameters
    ----------
    path
        The file to create or replace; its folder must exist.
    private
        Whether only the owner may read it (mode 0600); also true for files that are private by their location.
    check
        Called immediately before the file takes its place; it may raise to prevent that.

    Raises
    ------
    InputError
        If the folder does not exist.
    """
    require_folder(path)

    def replace(temporary: Path) -> None:
        check()
        temporary.replace(path)

    with _temporary_file(path, private, replace) as file:
        yield file


def make_once(path: Path, content: bytes, private: bool = False) -> None:
    """Create a file with this content, complete and on disk; if another process created it first, keep its file."""

    def link(temporary: Path) -> None:
        with suppress(FileExistsError):
            path.hardlink_to(temporary)
        temporary.unlink()

    with _temporary_file(path, private, link) as file:
        file.write(content)


@contextmanager
def _temporary_file(path: Path, private: bool, publish: Callable[[Path], None]) -> Iterator[IO[bytes]]:
    """Write a file beside `path`, flush it, then let `publish` give it its name."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        publish(temporary)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def move_folder(path: Path, target: Path) -> None:
    """Rename a folder within its parent folder; its content must already be on disk."""
    path.rename(target)
    flush_folder(target.parent)


def append_bytes(path: Path, content: bytes, size: int, seen: int) -> None:
    """Keep the first `size` bytes of a file, add content after them, and flush it to disk.

    If writing fails, the file is cut to `size` bytes, so that nothing that may not be on disk counts as written.

    Parameters
    ----------
    path
        The file, which must exist.
    content
        What to add.
    size
        How many bytes to keep.
    seen
        The file's length when the caller decided to write.

    Raises
    ------
    InputError
        If the file no longer has `seen` bytes, because another process wrote to it; nothing is changed.
    """
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_size != seen:
            raise InputError(f"{path} was changed by another process; only one process may write to it")
        if seen != size:
            os.ftruncate(handle, size)
        try:
            _write_at(handle, content, size)
            os.fsync(handle)
        except BaseException:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def add_lines(path: Path, content: bytes) -> None:
    """Append whole lines to a file, without waiting for the disk; the file is created if it does not exist.

    An incomplete last line, left by a power cut or a full disk, is removed first: lines after it would be unreadable.
    """
    handle = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            size = path.read_bytes().rfind(b"\n") + 1
            os.ftruncate(handle, size)
        _write_at(handle, content, size)
    finally:
        os.close(handle)


def _write_at(handle: int, content: bytes, offset: int) -> None:
    written = 0
    while written < len(content):
        written += os.pwrite(handle, content[written:], offset + written)


def write_count(path: Path, count: int) -> None:
    """Store a whole number in a file of eight bytes, in place; it is on disk on return.

    A write that is cut off leaves the old number or the new one, as long as both are below 2^32.
    """
    if not path.exists():
        make_folder(path.parent, exist_ok=True)
        make_once(path, bytes(8))
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _write_at(handle, count.to_bytes(8, "big"), 0)
        os.fsync(handle)
    finally:
        os.close(handle)


def read_count(path: Path) -> int | None:
    """Return the number that `write_count` stored, or None if there is no such file.

    Raises
    ------
    CorruptFile
        If the file does not hold a number.
    """
    if not path.exists():
        return None
    content = path.read_bytes()
    if len(content) != 8:
        raise CorruptFile(f"{path} is damaged: it does not hold a number")
    return int.from_bytes(content, "big")


def flushed_size(path: Path) -> int:
    """Flush a file to disk and return its size in bytes."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def write_text(path: Path, text: str, private: bool = False, check: Callable[[], None] = lambda: None) -> None:
    """Replace a text file atomically; see `atomic_write` for the parameters."""
    with atomic_write(path, private, check) as file:
        file.write(text.encode())


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Replace an .npz file atomically; equal arrays give equal bytes."""
    with atomic_write(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> dict[str, Array]:
    """Read all arrays of an .npz file.

    Raises
    ------
    InputError
        If the file does not exist.
    CorruptFile
        If it cannot be decoded.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            return dict(stored)
    except FileNotFoundError as error:
        raise missing_file("file", path) from error
    except MemoryError:
        raise
    except Exception as error:  # zipfile, zlib, struct and numpy raise a dozen types for damaged content
        raise CorruptFile(f"{path} is damaged: it was truncated or overwritten, and cannot be read") from error


def to_json(value: Any) -> str:
    """Return one line of JSON; infinities become the string "inf" or "-inf", and NaN becomes null.

    Examples
    --------
    >>> to_json({"epsilon": math.inf, "error": math.nan, "rounds": np.arange(2)})
    '{"epsilon": "inf", "error": null, "rounds": [0, 1]}'
    """
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    match value:
        case float() | np.floating():
            return None if math.isnan(value) else float(value) if math.isfinite(value) else f"{float(value):g}"
        case np.integer():
            return int(value)
        case np.ndarray():
            return _plain(value.tolist())
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value


def format_bytes(count: float) -> str:
    """Return a number of bytes with its unit.

    >>> format_bytes(12_345)
    '12.3 kB'
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"
