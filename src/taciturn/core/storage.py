"""Durable storage: the only code that writes files, such that they survive a power cut."""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from taciturn.core.arrays import Array
from taciturn.errors import InputError


def state_folder() -> Path:
    """taciturn in the user's state folder."""
    given = os.environ.get("XDG_STATE_HOME", "")  # a relative path is ignored, as the XDG specification says
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state") / "taciturn"


LOCAL_FOLDER, CHECKPOINT_FOLDER = "local-only", "checkpoint"


def is_private(path: Path) -> bool:
    """Whether a file or folder is for its owner's eyes alone, by the place it has."""
    apart = {LOCAL_FOLDER, CHECKPOINT_FOLDER}
    return path.name in apart or path.parent.name in apart or path.is_relative_to(state_folder())


def flush_folder(path: Path) -> None:
    """The names in a folder are on the disk when this returns."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of file systems that keep names without being asked
            raise
    finally:
        os.close(handle)


def make_folder(path: Path, exist_ok: bool = False, private: bool = False) -> None:
    """A folder and those above it, on the disk when this returns; a private one is made 0700, also where it was not.

    Raises
    ------
    FileExistsError
        Where something has its name already, unless that is a folder and `exist_ok`.
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
    """A handle of a file, which is made where `flags` say so: 0600 where it is private, else as the umask has it."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600 if private or is_private(path) else 0o666)


def make_file(path: Path) -> None:
    """An empty file, on the disk when this returns; one that is there stays as it is."""
    os.close(open_file(path, os.O_RDWR | os.O_CREAT))
    flush_folder(path.parent)


@contextmanager
def replacing(path: Path, private: bool = False, check: Callable[[], None] = lambda: None) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when the block ends well and vanishes when it does not.

    It is on the disk, under its name, when the block has ended. `check` is called at the last moment before it takes
    its place, and may refuse.
    """
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to put {path.name} into")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private or is_private(path))
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        check()
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def make_once(path: Path, content: bytes, private: bool = False) -> None:
    """A file with this content, whole and on the disk when this returns; where another process was first, its file."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private or is_private(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)
    flush_folder(path.parent)


def move_folder(path: Path, place: Path) -> None:
    """Give a folder another name beside its old one; what is in it must be on the disk already."""
    path.rename(place)
    flush_folder(place.parent)


def append_bytes(path: Path, content: bytes, size: int, seen: int) -> None:
    """Add to a file after its first `size` bytes, cut off what followed them, and flush it to the disk.

    `seen` is how long the file was when that was decided: where it is longer or shorter now, somebody else writes to
    it, and nothing is done. Where writing fails, the file is cut to `size`, so that what may not be on the disk is not
    taken for written.
    """
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_size != seen:
            raise InputError(f"{path} was changed by another process: only one may write to it")
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
    """Add whole lines to a file, which is made where it is not there; nobody waits for the disk.

    Half a line, which a power cut or a full disk left, is cut off first: lines behind it could not be read.
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


def _write_at(handle: int, content: bytes, place: int) -> None:
    written = 0
    while written < len(content):
        written += os.pwrite(handle, content[written:], place + written)


def flushed_size(path: Path) -> int:
    """The size of a file once everything in it is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def write_text(path: Path, text: str, private: bool = False, check: Callable[[], None] = lambda: None) -> None:
    """Replace a text file; `check` as for `replacing`."""
    with replacing(path, private, check) as file:
        file.write(text.encode())


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Replace an .npz file; the same arrays give the same bytes."""
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file, which must be whole."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return dict(stored)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except Exception:
        raise InputError(f"{path} is damaged: it was cut short or overwritten, and cannot be read") from None


def to_json(value: Any) -> str:
    """One line of JSON; infinities become the string "inf", a number that is not there becomes null."""
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
