"""The Linux system calls that confinement needs and Python does not offer; they raise OSError.

Only the standard library: this runs in the small process that confines itself before it becomes another program.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import sys

LINUX = sys.platform == "linux"
MACHINE = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(os.uname().machine)

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000
NEWUSER, NEWPID, NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8  # of mount_setattr

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4

_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x2008_0522

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library.

    Raises
    ------
    OSError
        If it returns -1.
    """
    return _checked(getattr(_libc, name)(*arguments), name)


def syscall(number: int, *arguments: object) -> int:
    """Make a system call by its number; integers are passed as machine words.

    Raises
    ------
    OSError
        If it returns -1.
    """
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in (number, *arguments)]
    _libc.syscall.restype = ctypes.c_long
    return _checked(_libc.syscall(*words), f"system call {number}")


def _checked(result: int, name: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def machine() -> str:
    """Return the machine whose system call numbers are used: "x86_64" or "aarch64".

    Raises
    ------
    OSError
        If the numbers of this machine are not known.
    """
    if MACHINE is None:
        raise OSError(errno.ENOSYS, f"no system call numbers are known for {os.uname().machine}")
    return MACHINE


def prctl(option: int, argument: int, *more: int) -> int:
    """Change how the kernel treats this process."""
    words = [ctypes.c_ulong(each) for each in (argument, *more, 0, 0, 0)[:4]]
    return call("prctl", ctypes.c_int(option), *words)


def unshare(flags: int) -> None:
    """Move this process (for NEWPID, its children) into new namespaces."""
    call("unshare", ctypes.c_int(flags))


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system, or bind a folder or file to another path.

    Parameters
    ----------
    source, target
        What to mount, and where.
    kind
        The file system's type; None for a bind mount or a change of flags.
    flags
        MS_* bits.
    data
        Options of the file system.
    """
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def unmount(target: str) -> None:
    """Remove a mount, and everything below it, from this mount namespace."""
    call("umount2", target.encode(), ctypes.c_int(MNT_DETACH))


def set_mount(target: str, add: int, remove: int = 0, recursive: bool = False) -> None:
    """Add and remove ATTR_* attributes of a mount, and of all mounts below it if `recursive` (Linux 5.12)."""
    words = (ctypes.c_uint64 * 4)(add, remove, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    syscall(_MOUNT_SETATTR, _AT_FDCWD, target.encode(), flags, ctypes.byref(words), ctypes.sizeof(words))


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root of this mount namespace and move the former root to `old`."""
    syscall(_PIVOT_ROOT[machine()], new.encode(), old.encode())


def map_user(uid: int, gid: int, proc: int) -> None:
    """Map one user and one group to themselves in the user namespace that was just created.

    Parameters
    ----------
    uid, gid
        The user and the group.
    proc
        A descriptor of this process's folder in /proc, opened before that became read-only.
    """
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def drop_capabilities() -> None:
    """Drop every capability, including those that a program started later could gain."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):  # the kernel has fewer; there was none to drop
                raise
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    syscall(_CAPSET[machine()], ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def limit(kind: int, value: int) -> None:
    """Lower a resource limit to `value` permanently; a lower limit stays."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
