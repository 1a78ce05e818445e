"""The program that tries to break out of a confinement, and tells what it could do.

`barriers.holds` runs it confined as the real program would be. It reads a task from one inherited descriptor and writes
its attempts to another. Whatever it could do is undone where that is possible; it never damages what it reaches.
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
_NO_NEW_PRIVS = 39  # of prctl: ask
_CAPABILITY_VERSION_3 = 0x2008_0522
_NEWUSER, _NEWNS = 0x1000_0000, 0x0002_0000
_FD_LIMIT = 4096


class Task(NamedTuple):
    """What to try."""

    secrets: dict[str, list[str]]  # what must stay shut, by name
    canary: str  # a file that was given, and must be readable
    content: str  # of the canary
    vault: int  # process that must be out of reach
    user: int  # of the vault
    buses: list[
        str
    ]  # addresses of Unix sockets for the vault's user alone; an abstract one starts with a null character
    sockets: list[str]  # of those for every user
    mailboxes: list[str]  # of those that take datagrams
    code: list[str]  # folders from which the vault loads what it runs
    control: str  # a file of the vault's user that may be damaged
    open_folder: str  # a folder in which every user may write
    mark: str  # name of the files to make
    fds: list[int]  # descriptors that were given


class Attempt(NamedTuple):
    """One thing that was tried."""

    barrier: str
    what: str
    through: bool
    said: str
    left_in: str = ""  # folder in which a file was left: whether it arrived outside is for the vault to see


def main(arguments: list[str]) -> None:
    """Try everything; `arguments` are the descriptors of the task and of the answer."""
    asked, answer = (int(text) for text in arguments)
    with os.fdopen(asked, "rb") as stream:
        task = Task(**json.load(stream))
    attempts = [attempt._asdict() for attempt in _attempts(task)]
    with os.fdopen(answer, "wb") as stream:
        stream.write(json.dumps(attempts).encode())


def _attempts(task: Task) -> Iterator[Attempt]:
    yield _try("works", "read a file that was given", _reads, task.canary, task.content)
    others = _doors(task.vault)
    for name, paths in task.secrets.items():
        for path in paths:
            yield from _secret(name, path, others, task)
    yield from _damage(task.control)
    yield from _process(task.vault)
    yield _try("processes", "see other processes", _sees)
    for address in task.buses:
        yield _try("buses", f"connect to {_legible(address)}", _connect, address)
    for address in task.mailboxes:
        barrier = "buses" if os.getuid() == task.user else "sockets"
        yield _try(barrier, f"send to {_legible(address)}", _sends, address)
    for address in task.sockets:  # what serves every user serves the vault's user differently
        barrier = "buses" if os.getuid() == task.user else "sockets"
        yield _try(barrier, f"connect to {_legible(address)}", _connect, address)
    yield from _writes(task)
    for path in (*_SHELLS, *_SETUID):
        yield _try("programs", f"run {path}", _runs, path)
    yield from _privileges()
    yield _try("ports", "listen on a TCP port", _listens)
    yield _try("descriptors", "use a descriptor that was not given", _descriptors, task.fds)


def _try(barrier: str, what: str, attempt: Callable[..., object], *arguments: object) -> Attempt:
    """It got through if it returned something true; the error says what stopped it otherwise."""
    try:
        result = attempt(*arguments)
    except OSError as error:
        return Attempt(barrier, what, False, errno.errorcode.get(error.errno or 0, str(error)))
    except AttributeError:
        return Attempt(barrier, what, False, "not on this system")
    return Attempt(barrier, what, bool(result), str(result) if result else "nothing there")


# Files


def _secret(name: str, path: str, others: list[int], task: Task) -> Iterator[Attempt]:
    folder, base = os.path.split(path)
    yield _try(name, f"read {path}", _opens, path)
    yield _try(name, f"write {path}", _opens, path, os.O_WRONLY)
    yield _try(name, f"find it in {folder}", _finds, folder, base)
    yield _leave(name, folder, task.mark)
    for link, make in (("hard", os.link), ("symbolic", os.symlink)):
        yield _try(name, f"read {path} by a {link} link", _linked, path, make)
    for pid in others:
        for door in ("root", "cwd"):
            way = f"/proc/{pid}/{door}/{'../' * 40}{path}"  # up to the root of that process, whose parent is itself
            yield _try(name, f"read {path} by /proc/{pid}/{door}", _opens, way)
        yield _try(name, f"read {path} by /proc/{pid}/fd", _descriptor_of, pid, path)


def _reads(path: str, content: str) -> bool:
    with open(path) as file:
        return file.read() == content


def _opens(path: str, flags: int = os.O_RDONLY) -> str:
    """Open a file without changing it; a folder counts as open if it can be listed."""
    if os.path.isdir(path):
        return f"lists {os.listdir(path)[:3]}"
    os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK))
    return "opened"


def _finds(folder: str, name: str) -> bool:
    return name in os.listdir(folder)


def _leave(barrier: str, folder: str, mark: str) -> Attempt:
    def attempt() -> bool:
        os.close(os.open(os.path.join(folder, mark), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return True

    return _try(barrier, f"make a file in {folder}", attempt)._replace(left_in=folder)


def _linked(path: str, make: Callable[[str, str], None]) -> str:
    link = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"probe-{os.getpid()}")
    make(path, link)
    try:
        return _opens(link)
    finally:
        os.unlink(link)


def _descriptor_of(pid: int, path: str) -> str:
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):
        if os.readlink(f"{folder}/{number}") == path:
            return _opens(f"{folder}/{number}")
    return ""


def _writes(task: Task) -> Iterator[Attempt]:
    for folder in (os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.__file__), sys.prefix, *task.code):
        yield _leave("code", folder, task.mark)
    for folder in (task.open_folder, "/", "/etc", "/usr", "/usr/lib", "/var/tmp", "/dev/shm", "/run"):
        yield _leave("writing", folder, task.mark)


def _damage(path: str) -> Iterator[Attempt]:
    """What destroys or exposes a file without opening it, tried on one that nobody needs."""
    for what, change, arguments in (
        ("change the rights of", os.chmod, (0o666,)),
        ("change the owner of", os.chown, (os.getuid(), os.getgid())),
        ("truncate", os.truncate, (0,)),
        ("label", _labels, ()),
        ("rename", os.rename, (path + "-renamed",)),
        ("remove", os.unlink, ()),
    ):
        yield _try("damage", f"{what} a file", _does, change, path, *arguments)


def _does(change: Callable[..., None], *arguments: object) -> bool:
    change(*arguments)
    return True


def _labels(path: str) -> None:
    os.setxattr(path, "user.probe", b"1")


# Processes


def _seen() -> list[int]:
    return sorted({int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()})


def _sees() -> list[int] | str:
    return _seen() if sys.platform == "linux" else "this system shows all"


def _doors(vault: int) -> list[int]:
    """Processes whose folders in /proc may lead to files: the vault, and some others that can be seen."""
    seen: list[int] = []
    with contextlib.suppress(OSError):
        seen = _seen()[:16]
    return seen if vault in seen or vault == os.getpid() else [*seen, vault]


def _process(pid: int) -> Iterator[Attempt]:
    if pid == os.getpid():  # so that process has another number here, or none
        for barrier in ("signals", "tracing"):
            yield Attempt(barrier, f"find process {pid}", False, "another pid namespace")
        return
    libc = ctypes.CDLL(None, use_errno=True)
    yield _try("signals", f"signal process {pid}", _signals, pid)
    yield _try("signals", f"read and set limits of process {pid}", _limits, libc, pid)
    yield _try("tracing", f"trace process {pid}", _traces, libc, pid)
    yield _try("tracing", f"read memory of process {pid}", _reads_memory, libc, pid)
    for name in ("mem", "environ", "maps"):
        yield _try("tracing", f"read /proc/{pid}/{name}", _opens, f"/proc/{pid}/{name}")


def _checked(result: int) -> bool:
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


def _signals(pid: int) -> bool:
    os.kill(pid, 0)
    return True


def _limits(libc: ctypes.CDLL, pid: int) -> bool:
    """Ask for a limit of another process; a process that may ask may also set it."""
    return _checked(libc.prlimit(ctypes.c_int(pid), ctypes.c_int(4), None, ctypes.byref((ctypes.c_uint64 * 2)())))


def _traces(libc: ctypes.CDLL, pid: int) -> bool:
    """Seizing does not stop a process, and it ends with this one."""
    return _checked(libc.ptrace(ctypes.c_int(_PTRACE_SEIZE), ctypes.c_int(pid), None, None))


def _reads_memory(libc: ctypes.CDLL, pid: int) -> bool:
    """A complaint about the address means that the process itself was open."""
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


def _connect(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as each:
        each.settimeout(2)
        each.connect(address)
    return True


def _sends(address: str) -> bool:
    """Half of a pair of datagram sockets can send to any other socket: no socket needs to be opened for it."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(b"probe", address)
    return True


def _listens() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as each:
        each.bind(("127.0.0.1", 0))
        each.listen()
    return True


def _runs(path: str) -> bool:
    """Run a program with nothing to do; a status of 126 says that it could not be run."""
    child = os.fork()
    if child == 0:
        try:
            null = os.open("/dev/null", os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.execv(path, [path, "--version"])
        finally:
            os._exit(126)
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status) != 126


def _privileges() -> Iterator[Attempt]:
    libc = ctypes.CDLL(None, use_errno=True)
    yield _try("privileges", "gain privileges by running a program", _may_gain, libc)
    yield _try("privileges", "keep a capability", _keeps, libc)
    yield _try("privileges", "become root", _becomes_root)
    for name, flag in (("users", _NEWUSER), ("mounts", _NEWNS)):
        yield _try("privileges", f"make a namespace of {name}", _unshares, libc, flag)


def _may_gain(libc: ctypes.CDLL) -> bool:
    return not hasattr(libc, "prctl") or libc.prctl(_NO_NEW_PRIVS, 0, 0, 0, 0) != 1


def _keeps(libc: ctypes.CDLL) -> bool:
    """Whether a capability is left, effective, permitted or inheritable."""
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    return _checked(libc.capget(ctypes.byref(header), ctypes.byref(sets))) and any(sets)


def _becomes_root() -> bool:
    if os.getuid() == 0:
        return False
    os.setuid(0)
    return True


def _unshares(libc: ctypes.CDLL, flag: int) -> bool:
    """In a child, so that this process stays where it is."""
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.unshare(ctypes.c_int(flag)) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def _descriptors(given: list[int]) -> list[int]:
    found = []
    for number in range(3, _FD_LIMIT):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.append(number)
    return [number for number in found if number not in given]


if __name__ == "__main__":
    main(sys.argv[1:])
