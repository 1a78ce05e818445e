"""A new root folder for one program that contains only what the program is given, read-only.

The former root is removed from the mount namespace completely, so no path, link or descriptor leads back to it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable

from taciturn.federation.confinement import kernel

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_COPIED_UP_TO = 1 << 20  # bytes; larger files are bound instead of copied
_LINKS = 40  # symbolic links followed for one path, as in the kernel
_QUIET = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def copies(paths: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of the small files among the paths, by real path, while this process may still read them."""
    contents = {}
    for path in paths:
        with contextlib.suppress(PermissionError):
            if os.path.isfile(path) and os.path.getsize(path) <= _COPIED_UP_TO and not os.access(path, os.X_OK):
                with open(path, "rb") as file:
                    contents[os.path.realpath(path)] = file.read(_COPIED_UP_TO)
    return contents


def enter(paths: Iterable[str], contents: dict[str, bytes], owner: tuple[int, int], scratch: int) -> None:
    """Build a new root that shows the paths at their places, make it the root, and leave the former one.

    Parameters
    ----------
    paths
        Files and folders; those that do not exist are ignored.
    contents
        Contents of the small files (`copies`). They are written into the new root, so that the program's user need not
        be able to read the originals.
    owner
        User and group of the copies and of `/tmp`.
    scratch
        Bytes that the program can write in its `/tmp`.

    Raises
    ------
    OSError
        If a mount is not permitted, or a path is neither a file nor a folder.
    """
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    stage = next(each for each in ("/tmp", "/run", "/var", "/usr") if os.path.isdir(each))
    kernel.mount("tmpfs", stage, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=64m")
    os.chdir(stage)
    os.mkdir("old", 0o755)
    os.mkdir("new", 0o755)
    kernel.mount("tmpfs", "new", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=64m")
    kernel.pivot_root(".", "old")
    os.chdir("/")
    os.mkdir("/new/tmp", 0o755)
    kernel.mount("tmpfs", "/new/tmp", "tmpfs", _QUIET, f"mode=700,size={scratch},uid={owner[0]},gid={owner[1]}")
    view = _View("/old", "/new", contents, owner)
    for path in sorted(paths):
        view.show(path)
    for folder in ("/dev", "/proc"):
        view.folder(folder)
    devices = [path for path in DEVICES if os.path.exists("/old" + path)]
    for path in devices:
        view.file(path)
    kernel.set_mount("/new", kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV, recursive=True)
    kernel.set_mount("/new/tmp", kernel.ATTR_NOEXEC, remove=kernel.ATTR_RDONLY)
    for path in devices:
        kernel.mount("/old" + path, "/new" + path, None, kernel.MS_BIND)
        kernel.set_mount("/new" + path, kernel.ATTR_NOSUID | kernel.ATTR_NOEXEC)
    _mount_proc("/new/proc")
    kernel.unmount("/old")
    os.chdir("/new")
    kernel.pivot_root(".", ".")
    kernel.unmount(".")
    os.chdir("/")


def _mount_proc(target: str) -> None:
    """Show only the new pid namespace's processes, if the kernel can; show nothing if a container forbids it."""
    for options in ("hidepid=invisible,subset=pid", None):
        try:
            kernel.mount("proc", target, "proc", _QUIET | kernel.MS_RDONLY, options)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
        else:
            return


class _View:
    """Build the new root from paths of the former one, including the symbolic links that lead to them."""

    def __init__(self, old: str, new: str, contents: dict[str, bytes], owner: tuple[int, int]) -> None:
        self._old, self._new, self._contents, self._owner = old, new, contents, owner
        self._shown: list[str] = []

    def show(self, path: str) -> None:
        """Bind or copy the target of a path and create the links that lead to it."""
        real = self._walk(path)
        if real is None or any(real == shown or real.startswith(shown + "/") for shown in self._shown):
            return
        mode = os.lstat(self._old + real).st_mode
        if real in self._contents and stat.S_ISREG(mode):
            self._copy(real)
        elif stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            create = self.folder if stat.S_ISDIR(mode) else self.file
            create(real)
            kernel.mount(self._old + real, self._new + real, None, kernel.MS_BIND | kernel.MS_REC)
        else:
            raise OSError(errno.EINVAL, f"{path} is neither a file nor a folder")
        self._shown.append(real)

    def folder(self, path: str) -> None:
        """Create a folder in the new root, with its parents."""
        os.makedirs(self._new + path, mode=0o755, exist_ok=True)

    def file(self, path: str) -> None:
        """Create an empty file in the new root, over which another one can be bound."""
        self.folder(os.path.dirname(path))
        os.close(os.open(self._new + path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o400))

    def _copy(self, path: str) -> None:
        self.file(path)
        with open(self._new + path, "wb") as file:
            file.write(self._contents[path])
        os.chown(self._new + path, *self._owner)
        kernel.mount(self._new + path, self._new + path, None, kernel.MS_BIND)  # read-only even below /tmp

    def _walk(self, path: str) -> str | None:
        """Follow a path in the former root, link by link, to its real path; return None if there is none."""
        todo, real, links = path.split("/")[::-1], "", 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                real = os.path.dirname(real).rstrip("/")
                continue
            step = f"{real}/{part}"
            try:
                mode = os.lstat(self._old + step).st_mode
            except (FileNotFoundError, NotADirectoryError):
                return None
            if not stat.S_ISLNK(mode):
                real = step
                continue
            links += 1
            if links > _LINKS:
                return None
            target = os.readlink(self._old + step)
            self._link(step, target)
            todo += target.split("/")[::-1]
            real = "" if target.startswith("/") else real
        return real or None

    def _link(self, path: str, target: str) -> None:
        if any(path.startswith(shown + "/") for shown in self._shown):
            return  # a bound folder brings its own links
        self.folder(os.path.dirname(path))
        if not os.path.islink(self._new + path):
            os.symlink(target, self._new + path)
