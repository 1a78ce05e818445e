"""The Linux system calls that confinement needs and Python does not offer, with their errors as OSError.

Standard library only: this runs in the small process that confines itself before it becomes another program.
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
    """Call a function of the C library; a result of -1 is raised as OSError."""
    return _checked(getattr(_libc, name)(*arguments), name)


def syscall(number: int, *arguments: object) -> int:
    """Make a system call by its number; a result of -1 is raised as OSError.

    Whole numbers are passed as the machine's words, since the C library takes them so.
    """
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    _libc.syscall.restype = ctypes.c_long
    return _checked(_libc.syscall(ctypes.c_long(number), *words), f"system call {number}")


def _checked(result: int, name: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def prctl(option: int, argument: int, *more: int) -> int:
    """Change how the kernel treats this process."""
    words = [ctypes.c_ulong(each) for each in (argument, *more, 0, 0, 0)[:4]]
    return call("prctl", ctypes.c_int(option), *words)


def unshare(flags: int) -> None:
    """Move this process into new namespaces (of its children, for NEWPID)."""
    call("unshare", ctypes.c_int(flags))


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system, or bind one folder or file to another place."""
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def unmount(target: str) -> None:
    """Take a mount, and all beneath it, out of sight of this mount namespace."""
    call("umount2", target.encode(), ctypes.c_int(MNT_DETACH))


def set_mount(target: str, add: int, remove: int = 0, recursive: bool = False) -> None:
    """Change attributes such as read-only of a mount, and of all mounts beneath it if `recursive` (Linux 5.12)."""
    words = (ctypes.c_uint64 * 4)(add, remove, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    syscall(_MOUNT_SETATTR, _AT_FDCWD, target.encode(), flags, ctypes.byref(words), ctypes.sizeof(words))


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root of this mount namespace and hang the former root below `old`."""
    syscall(_known(_PIVOT_ROOT), new.encode(), old.encode())


def map_user(uid: int, gid: int, proc: int) -> None:
    """Keep one user and one group under their own numbers in the user namespace that was just made.

    `proc` is a descriptor of this process's folder in /proc, opened before that was made read-only.
    """
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def drop_capabilities() -> None:
    """Give up every capability, also those a program run later could have gained."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):  # the kernel has fewer; there was none to drop
                raise
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    syscall(_known(_CAPSET), ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def limit(kind: int, value: int) -> None:
    """Lower a resource limit to `value`, for good; a limit that is lower already stays."""
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _known(numbers: dict[str, int]) -> int:
    if MACHINE is None:
        raise OSError(errno.ENOSYS, f"no system call numbers are known for {os.uname().machine}")
    return numbers[MACHINE]
