"""A root folder of its own for one program: nothing in it but what the program is given, read-only.

The former root is taken out of the mount namespace altogether, so no path, link or descriptor leads back to it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable

from taciturn.federation.confinement import kernel

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_COPIED_UP_TO = 1 << 20  # bytes of a file that is copied rather than bound
_LINKS = 40  # symbolic links followed on the way to one path, as the kernel does
_QUIET = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def copies(paths: Iterable[str]) -> dict[str, bytes]:
    """What the small files among the paths hold, read while this process may still read them."""
    contents = {}
    for path in paths:
        try:
            if os.path.isfile(path) and os.path.getsize(path) <= _COPIED_UP_TO and not os.access(path, os.X_OK):
                with open(path, "rb") as file:
                    contents[os.path.realpath(path)] = file.read(_COPIED_UP_TO)
        except PermissionError:
            continue
    return contents


def enter(paths: Iterable[str], contents: dict[str, bytes], owner: tuple[int, int], scratch: int) -> None:
    """Make a new root that shows the paths where they were, and leave the former root.

    Parameters
    ----------
    paths
        Files and folders; those that do not exist are left out.
    contents
        Of the small files: they are written into the new root, so that the program's user need not be able to read
        the originals.
    owner
        Of the copies and of `/tmp`.
    scratch
        Bytes that the program can write in its `/tmp`.
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
    """Show the new pid namespace's processes only, if the kernel can; nothing at all where a container forbids it."""
    for options in ("hidepid=invisible,subset=pid", None):
        try:
            kernel.mount("proc", target, "proc", _QUIET | kernel.MS_RDONLY, options)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
        else:
            return


class _View:
    """Builds the new root from paths of the former one, with the symbolic links that lead to them."""

    def __init__(self, old: str, new: str, contents: dict[str, bytes], owner: tuple[int, int]) -> None:
        self._old, self._new, self._contents, self._owner = old, new, contents, owner
        self._shown: list[str] = []

    def show(self, path: str) -> None:
        """Bind or copy what a path leads to and make the links on the way to it."""
        real = self._walk(path)
        if real is None or any(real == shown or real.startswith(shown + "/") for shown in self._shown):
            return
        mode = os.lstat(self._old + real).st_mode
        if real in self._contents and stat.S_ISREG(mode):
            self._copy(real)
        elif stat.S_ISDIR(mode):
            self.folder(real)
            self._bind(real)
        elif stat.S_ISREG(mode):
            self.file(real)
            self._bind(real)
        else:
            raise OSError(errno.EINVAL, f"{path} is neither a file nor a folder")
        self._shown.append(real)

    def folder(self, path: str) -> None:
        """Make a folder in the new root, with those above it."""
        os.makedirs(self._new + path, mode=0o755, exist_ok=True)

    def file(self, path: str) -> None:
        """Make an empty file in the new root, to bind another one to it."""
        self.folder(os.path.dirname(path))
        os.close(os.open(self._new + path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o400))

    def _copy(self, path: str) -> None:
        self.file(path)
        with open(self._new + path, "wb") as file:
            file.write(self._contents[path])
        os.chown(self._new + path, *self._owner)
        kernel.mount(self._new + path, self._new + path, None, kernel.MS_BIND)  # read-only even beneath /tmp

    def _bind(self, path: str) -> None:
        kernel.mount(self._old + path, self._new + path, None, kernel.MS_BIND | kernel.MS_REC)

    def _walk(self, path: str) -> str | None:
        """Follow a path in the former root, link by link; None if it leads nowhere."""
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
            return  # a folder that is bound brings its own links
        self.folder(os.path.dirname(path))
        if not os.path.islink(self._new + path):
            os.symlink(target, self._new + path)
