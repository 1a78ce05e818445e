"""Landlock: the kernel denies this process, and all that it starts, every file except those granted (Linux 5.13).

What a kernel can restrict depends on the version (ABI) of its Landlock: files from 1, TCP ports from 4, signals and
abstract Unix sockets to processes outside from 6. Unix sockets with a path are not restricted.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable

from taciturn.federation.confinement import kernel

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, MAKE_SYM = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 12
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_ABI = (1 << 13) - 1  # the bits not named here create devices, sockets and pipes, which is never granted

READ = READ_FILE | READ_DIR
SCRATCH = READ | WRITE_FILE | TRUNCATE | MAKE_REG | MAKE_DIR | MAKE_SYM | REMOVE_FILE | REMOVE_DIR | REFER
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # what a rule for one file can grant

_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1  # flag of create_ruleset: return the ABI
_PATH_BENEATH, _NET_PORT = 1, 2


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """Return the kernel's Landlock ABI, or 0 if it has none."""
    try:
        return kernel.syscall(_CREATE_RULESET, None, 0, _VERSION)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
            return 0
        raise


def restrict(
    grants: Iterable[tuple[str, int]], connect: Iterable[int] | None = None, listen: Iterable[int] | None = ()
) -> None:
    """Deny this process every file and port except those granted, and everything else that this kernel can deny.

    Parameters
    ----------
    grants
        Paths with the rights to them and to everything below; paths that do not exist are ignored.
    connect, listen
        TCP ports to connect to and to listen on; None allows all.

    Raises
    ------
    OSError
        If the kernel has no Landlock or refuses a rule.
    """
    abi = version()
    if abi == 0:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    files = _FIRST_ABI
    for since, right in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)):
        files |= right if abi >= since else 0
    ports = ((_CONNECT_TCP, connect), (_BIND_TCP, listen))
    network = sum(right for right, numbers in ports if numbers is not None) if abi >= 4 else 0
    words = (files, network, _ABSTRACT_SOCKETS | _SIGNALS)[: 1 + (abi >= 4) + (abi >= 6)]
    attributes = (ctypes.c_uint64 * len(words))(*words)
    ruleset = kernel.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    try:
        for path, rights in grants:
            _grant(ruleset, path, rights & files)
        for right, numbers in ports if network else ():
            for port in numbers or ():
                rule = (ctypes.c_uint64 * 2)(right, port)
                kernel.syscall(_ADD_RULE, ruleset, _NET_PORT, ctypes.byref(rule), 0)
        kernel.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, descriptor)
        kernel.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
