"""The program that tries to break out of a confinement and reports what it could do.

`barriers.try_confinement` runs it confined like the real program. It reads a task from one inherited descriptor and
writes its attempts to another. It undoes what it could do where that is possible, and never damages what it reaches.
It runs as a script without site packages, so it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

_SHELLS = ("/bin/sh", "/usr/bin/sh", "/bin/bash", "/usr/bin/env")
_SETUID = ("/usr/bin/su", "/usr/bin/sudo", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/pkexec", "/usr/bin/newuidmap")
_PTRACE_SEIZE = 0x4206
_PR_GET_NO_NEW_PRIVS = 39
_CAPABILITY_VERSION_3 = 0x2008_0522
_NEWUSER, _NEWNS = 0x1000_0000, 0x0002_0000
_FD_LIMIT = 4096


class Task(NamedTuple):
    """What to try. Addresses of Unix sockets are paths; an abstract one starts with a null character."""

    secrets: dict[str, list[str]]  # paths that must stay closed, by name
    canary: str  # a file that was given and must be readable
    content: str  # of the canary
    vault: int  # the process that must be out of reach
    user: int  # of the vault
    buses: list[str]  # sockets for the vault's user alone
    sockets: list[str]  # sockets for every user
    mailboxes: list[str]  # datagram sockets for every user
    code: list[str]  # folders from which the vault loads its code
    control: str  # a file of the vault's user that may be damaged
    open_folder: str  # a folder in which every user may write
    mark: str  # name of the files to create
    fds: list[int]  # descriptors that were given


class Attempt(NamedTuple):
    """One attempt and its result."""

    barrier: str
    what: str
    through: bool  # whether it succeeded
    said: str  # the error that stopped it, or what it achieved
    left_in: str = ""  # folder in which a file was created: the vault checks whether it arrived outside


def main(arguments: list[str]) -> None:
    """Make all attempts; `arguments` are the descriptors of the task and of the answer."""
    task_fd, answer_fd = (int(text) for text in arguments)
    with os.fdopen(task_fd, "rb") as stream:
        task = Task(**json.load(stream))
    attempts = [attempt._asdict() for attempt in _attempts(task)]
    with os.fdopen(answer_fd, "wb") as stream:
        stream.write(json.dumps(attempts).encode())


def _attempts(task: Task) -> Iterator[Attempt]:
    yield _try("works", "read a file that was given", _reads, task.canary, task.content)
    others = _visible_processes(task.vault)
    for name, paths in task.secrets.items():
        for path in paths:
            yield from _open_secret(name, path, others, task)
    yield from _damage(task.control)
    yield from _reach_process(task.vault)
    yield _try("processes", "see other processes", _sees)
    for address in task.buses:
        yield _try("buses", f"connect to {_legible(address)}", _connects, address)
    shared = "buses" if os.getuid() == task.user else "sockets"  # they serve the vault's user differently from others
    for address in task.mailboxes:
        yield _try(shared, f"send to {_legible(address)}", _sends, address)
    for address in task.sockets:
        yield _try(shared, f"connect to {_legible(address)}", _connects, address)
    for folder in (os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.__file__), sys.prefix, *task.code):
        yield _create_file("code", folder, task.mark)
    for folder in (task.open_folder, "/", "/etc", "/usr", "/usr/lib", "/var/tmp", "/dev/shm", "/run"):
        yield _create_file("writing", folder, task.mark)
    for path in (*_SHELLS, *_SETUID):
        yield _try("programs", f"run {path}", _runs, path)
    yield from _keep_privileges()
    yield _try("ports", "listen on a TCP port", _listens)
    yield _try("descriptors", "use a descriptor that was not given", _open_descriptors, task.fds)


def _try(barrier: str, what: str, attempt: Callable[..., object], *arguments: object) -> Attempt:
    """Make an attempt. It succeeded if it returned a true value; otherwise the error says what stopped it."""
    try:
        result = attempt(*arguments)
    except OSError as error:
        return Attempt(barrier, what, False, errno.errorcode.get(error.errno or 0, str(error)))
    except AttributeError:
        return Attempt(barrier, what, False, "not on this system")
    return Attempt(barrier, what, bool(result), str(result) if result else "nothing there")


def _done(action: Callable[..., object], *arguments: object) -> bool:
    action(*arguments)
    return True


# Files


def _open_secret(name: str, path: str, others: list[int], task: Task) -> Iterator[Attempt]:
    folder, base = os.path.split(path)
    yield _try(name, f"read {path}", _opens, path)
    yield _try(name, f"write {path}", _opens, path, os.O_WRONLY)
    yield _try(name, f"find it in {folder}", lambda: base in os.listdir(folder))
    yield _create_file(name, folder, task.mark)
    for link, create in (("hard", os.link), ("symbolic", os.symlink)):
        yield _try(name, f"read {path} by a {link} link", _opens_link, path, create)
    for pid in others:
        for door in ("root", "cwd"):
            way = f"/proc/{pid}/{door}/{'../' * 40}{path}"  # up to the root of that process, which is its own parent
            yield _try(name, f"read {path} by /proc/{pid}/{door}", _opens, way)
        yield _try(name, f"read {path} by /proc/{pid}/fd", _opens_descriptor, pid, path)


def _reads(path: str, content: str) -> bool:
    with open(path) as file:
        return file.read() == content


def _opens(path: str, flags: int = os.O_RDONLY) -> str:
    """Open a file without changing it; a folder counts as open if it can be listed."""
    if os.path.isdir(path):
        return f"lists {os.listdir(path)[:3]}"
    os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK))
    return "opened"


def _create_file(barrier: str, folder: str, mark: str) -> Attempt:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    attempt = _try(
        barrier, f"make a file in {folder}", lambda: _done(os.close, os.open(os.path.join(folder, mark), flags, 0o600))
    )
    return attempt._replace(left_in=folder)


def _opens_link(path: str, create: Callable[[str, str], None]) -> str:
    link = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"probe-{os.getpid()}")
    create(path, link)
    try:
        return _opens(link)
    finally:
        os.unlink(link)


def _opens_descriptor(pid: int, path: str) -> str:
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):
        if os.readlink(f"{folder}/{number}") == path:
            return _opens(f"{folder}/{number}")
    return ""


def _damage(path: str) -> Iterator[Attempt]:
    """Try what destroys or exposes a file without opening it, on a file that is not needed."""
    changes: dict[str, Callable[[], object]] = {
        "change the rights of": lambda: os.chmod(path, 0o666),
        "change the owner of": lambda: os.chown(path, os.getuid(), os.getgid()),
        "truncate": lambda: os.truncate(path, 0),
        "label": lambda: os.setxattr(path, "user.probe", b"1"),
        "rename": lambda: os.rename(path, path + "-renamed"),
        "remove": lambda: os.unlink(path),
    }
    for what, change in changes.items():
        yield _try("damage", f"{what} a file", _done, change)


# Processes


def _other_processes() -> list[int]:
    return sorted({int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()})


def _sees() -> list[int] | str:
    return _other_processes() if sys.platform == "linux" else "this system shows all"


def _visible_processes(vault: int) -> list[int]:
    """Return processes whose folders in /proc may lead to files: the vault, and some that can be seen."""
    seen: list[int] = []
    with contextlib.suppress(OSError):
        seen = _other_processes()[:16]
    return seen if vault in seen or vault == os.getpid() else [*seen, vault]


def _reach_process(pid: int) -> Iterator[Attempt]:
    if pid == os.getpid():  # so the vault has another number here, or none
        for barrier in ("signals", "tracing"):
            yield Attempt(barrier, f"find process {pid}", False, "another pid namespace")
        return
    libc = ctypes.CDLL(None, use_errno=True)
    yield _try("signals", f"signal process {pid}", _done, os.kill, pid, 0)
    yield _try("signals", f"read and set limits of process {pid}", _reads_limits, libc, pid)
    yield _try("tracing", f"trace process {pid}", _traces, libc, pid)
    yield _try("tracing", f"read memory of process {pid}", _reads_memory, libc, pid)
    for name in ("mem", "environ", "maps"):
        yield _try("tracing", f"read /proc/{pid}/{name}", _opens, f"/proc/{pid}/{name}")


def _checked(result: int) -> bool:
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


def _reads_limits(libc: ctypes.CDLL, pid: int) -> bool:
    """Read a limit of another process; a process that may read it may also set it."""
    return _checked(libc.prlimit(ctypes.c_int(pid), ctypes.c_int(4), None, ctypes.byref((ctypes.c_uint64 * 2)())))


def _traces(libc: ctypes.CDLL, pid: int) -> bool:
    """Seize a process, which does not stop it and ends with this one."""
    return _checked(libc.ptrace(ctypes.c_int(_PTRACE_SEIZE), ctypes.c_int(pid), None, None))


def _reads_memory(libc: ctypes.CDLL, pid: int) -> bool:
    """Read another process's memory; an error about the address means that the process itself was open."""
    buffer = ctypes.create_string_buffer(8)
    here = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    there = (ctypes.c_size_t * 2)(4096, 8)
    words = [ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), ctypes.c_ulong(0)]
    try:
        return _checked(libc.process_vm_readv(ctypes.c_int(pid), ctypes.byref(here), *words))
    except OSError as error:
        if error.errno == errno.EFAULT:
            return True
        raise


# Sockets, programs, privileges


def _legible(address: str) -> str:
    return f"the abstract socket {address[1:]}" if address.startswith("\0") else address


def _connects(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        client.connect(address)
    return True


def _sends(address: str) -> bool:
    """Send from half of a pair of datagram sockets, which can reach any other socket without opening one."""
    sender, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with sender, other:
        sender.sendto(b"probe", address)
    return True


def _listens() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
    return True


def _runs(path: str) -> bool:
    """Run a program with nothing to do; a status of 126 means that it could not be run."""
    child = os.fork()
    if child == 0:
        try:
            null = os.open("/dev/null", os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.execv(path, [path, "--version"])
        finally:
            os._exit(126)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 126


def _keep_privileges() -> Iterator[Attempt]:
    libc = ctypes.CDLL(None, use_errno=True)
    yield _try("privileges", "gain privileges by running a program", _may_gain, libc)
    yield _try("privileges", "keep a capability", _keeps_capability, libc)
    yield _try("privileges", "become root", lambda: os.getuid() != 0 and _done(os.setuid, 0))
    for name, flag in (("users", _NEWUSER), ("mounts", _NEWNS)):
        yield _try("privileges", f"make a namespace of {name}", _unshares, libc, flag)


def _may_gain(libc: ctypes.CDLL) -> bool:
    return not hasattr(libc, "prctl") or libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1


def _keeps_capability(libc: ctypes.CDLL) -> bool:
    """Return whether an effective, permitted or inheritable capability is left."""
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    return _checked(libc.capget(ctypes.byref(header), ctypes.byref(sets))) and any(sets)


def _unshares(libc: ctypes.CDLL, flag: int) -> bool:
    """Create a namespace in a child, so that this process stays where it is."""
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.unshare(ctypes.c_int(flag)) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def _open_descriptors(given: list[int]) -> list[int]:
    found = []
    for number in set(range(3, _FD_LIMIT)) - set(given):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.append(number)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
