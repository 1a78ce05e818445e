"""The small process that confines itself and then becomes the program, and its parent that watches it.

`taciturn.federation.confinement.start` runs this in a fresh interpreter without site packages. It forks once: the child
confines itself and calls execve; the parent waits for it, forwards signals and its exit status, and kills it when the
process that launched it has ended. Each mechanism is either applied completely or reported as failed, and then nothing
is started: the launcher may try again without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from taciturn.federation.confinement import kernel, landlock, root, seccomp

MECHANISMS = ("user", "namespaces", "privileges", "landlock", "seccomp")
NOBODY = 65534
READY = b"ready"  # written to the report descriptor just before the program runs
_LOG_BYTES = 1 << 26  # no file that was open before, such as the log, grows beyond this
_TASKS = 512  # processes and threads
_SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
_SETTINGS = (
    *("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/localtime"),
    *("/etc/ld.so.cache", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf"),
    *("/etc/pki/ca-trust/extracted", "/etc/crypto-policies"),
)


class Order(NamedTuple):
    """The program to start and what it is given; see `launch` for the meaning of most fields."""

    command: tuple[str, ...]
    environment: dict[str, str]
    readable: tuple[str, ...]
    identity: tuple[int, int] | None  # user and group to become
    network: bool
    connect: tuple[int, ...] | None
    listen: tuple[int, ...]
    files: int
    memory: int | None
    scratch: int
    mechanisms: tuple[str, ...] = MECHANISMS
    report: int = -1  # descriptor for READY or a failure
    lifeline: int = -1  # descriptor that closes when the launcher has ended


class Failed(Exception):
    """A mechanism could not be applied."""

    def __init__(self, mechanism: str, cause: Exception) -> None:
        super().__init__(f"{mechanism}: {cause}")
        self.mechanism = mechanism


@contextlib.contextmanager
def _applying(mechanism: str) -> Iterator[None]:
    """Raise Failed for a mechanism if the block raises OSError."""
    try:
        yield
    except OSError as error:
        raise Failed(mechanism, error) from error


def main() -> NoReturn:
    """Read an order from standard input, start its program confined, and watch it until it ends."""
    order = Order(**json.load(sys.stdin))
    for descriptor in (order.report, order.lifeline):
        os.set_inheritable(descriptor, False)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        privileged = _leave_pids(order)
        alive, watcher = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(watcher)
            _become(order, privileged, alive)
    except Failed as error:
        _report(order.report, error.mechanism, str(error))
    _watch(child, order.lifeline, keep=watcher)


def _report(descriptor: int, mechanism: str, why: str) -> NoReturn:
    os.write(descriptor, json.dumps({"failed": mechanism, "why": why}).encode() + b"\n")
    os._exit(1)


# The child


def _become(order: Order, privileged: bool, alive: int) -> NoReturn:
    """Apply every mechanism of the order, then run its program."""
    try:
        os.setsid()
        os.chdir("/")
        os.umask(0o022)  # for the files of the new root
        paths = (*_SYSTEM, *_SETTINGS, *order.readable)
        if "namespaces" in order.mechanisms:
            _enter_namespaces(order, paths, privileged)
        elif order.identity is not None and os.geteuid() == 0:
            _change_user(order)
        _lower_limits(order)
        _give_up_rights(order, paths, alive)
        os.umask(0o077)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.write(order.report, READY + b"\n")
        os.execve(order.command[0], order.command, order.environment)
    except Failed as error:
        _report(order.report, error.mechanism, str(error))
    except OSError as error:
        _report(order.report, "program", f"{order.command[0]}: {error}")


def _lower_limits(order: Order) -> None:
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: order.files, resource.RLIMIT_FSIZE: _LOG_BYTES}
    if order.memory is not None:
        limits[resource.RLIMIT_DATA] = order.memory
    if "namespaces" in order.mechanisms:  # without them, all processes of the user would count
        limits[resource.RLIMIT_NPROC] = _TASKS
    for kind, value in limits.items():
        kernel.limit(kind, value)


def _leave_pids(order: Order) -> bool:
    """Make the next child start a new pid namespace; return whether this process can create namespaces by itself."""
    if "namespaces" not in order.mechanisms:
        return False
    with _applying("namespaces"):
        if os.geteuid() == 0:
            with contextlib.suppress(PermissionError):
                kernel.unshare(kernel.NEWPID)
                return True
            if order.identity is not None:
                _change_user(order)
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.NEWUSER | kernel.NEWPID)
        kernel.map_user(uid, gid, _open_own_folder())
    return False


def _enter_namespaces(order: Order, paths: tuple[str, ...], privileged: bool) -> None:
    """Enter new mount, IPC, host name and user namespaces, and a root that contains only the paths."""
    network = 0 if order.network else kernel.NEWNET
    change = privileged and "user" in order.mechanisms
    owner = order.identity or (NOBODY, NOBODY) if change else (os.geteuid(), os.getegid())
    with _applying("namespaces"):
        contents = root.copies(paths)
        proc = _open_own_folder()
        kernel.unshare(kernel.NEWNS | kernel.NEWIPC | kernel.NEWUTS | kernel.NEWCGROUP | network)
        kernel.call("sethostname", b"confined", 8)
        root.enter(paths, contents, owner, order.scratch)
    if change:
        _change_user(order)
    if privileged:
        with _applying("namespaces"):
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # otherwise its files in /proc belong to root
            kernel.unshare(kernel.NEWUSER)
            kernel.map_user(*owner, proc)


def _open_own_folder() -> int:
    return os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _change_user(order: Order) -> None:
    uid, gid = order.identity or (NOBODY, NOBODY)
    with _applying("user"):
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        for path in (os.path.realpath(order.command[0]), os.__file__):  # fail now if the user cannot read these
            with open(path, "rb"):
                pass


def _give_up_rights(order: Order, paths: tuple[str, ...], alive: int) -> None:
    """Apply what needs no namespaces: drop capabilities, Landlock, seccomp, and die with the watcher."""
    if not kernel.LINUX:
        return
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if "privileges" in order.mechanisms:
        with _applying("privileges"):
            kernel.drop_capabilities()
    if "landlock" in order.mechanisms:
        with _applying("landlock"):
            landlock.restrict(_grants(order, paths), order.connect, order.listen)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([alive], [], [], 0)[0]:
        os._exit(1)  # the watcher ended before this process asked to die with it
    if "seccomp" in order.mechanisms:
        with _applying("seccomp"):
            seccomp.restrict(order.network)


def _grants(order: Order, paths: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return the rights to files: read what is given, run only the program, write to a private /tmp."""
    program = os.path.realpath(order.command[0])
    grants = [(path, landlock.READ) for path in paths]
    packages = order.environment.get("PYTHONPATH", "").split(os.pathsep)  # Python lists these folders
    grants += [(path, landlock.READ_DIR) for path in packages if path]
    grants += [(path, landlock.EXECUTE | landlock.READ_FILE) for path in (program, _interpreter(program)) if path]
    grants += [(path, landlock.READ_FILE | landlock.WRITE_FILE) for path in root.DEVICES]
    if "namespaces" in order.mechanisms:
        return [*grants, ("/proc", landlock.READ), ("/tmp", landlock.SCRATCH)]
    return [*grants, (f"/proc/{os.getpid()}", landlock.READ)]


def _interpreter(program: str) -> str | None:
    """Return the dynamic loader that a 64-bit ELF program names, which the kernel runs in its place."""
    with open(program, "rb") as file:
        head = file.read(64)
        start, size, count = struct.unpack_from("<Q", head, 32) + struct.unpack_from("<HH", head, 54)
        file.seek(start)
        headers = file.read(size * count)
        for offset in range(0, size * count, size):
            kind, place, length = struct.unpack_from("<I4xQ16xQ", headers, offset)
            if kind == 3:  # PT_INTERP
                file.seek(place)
                return file.read(length).rstrip(b"\0").decode()
    return None


# The watcher


def _watch(child: int, lifeline: int, keep: int) -> NoReturn:
    """Exit as the child exits; kill it when the lifeline closes, and forward signals to it."""
    wake, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    if kernel.LINUX:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    low = 0
    for descriptor in sorted((lifeline, keep, wake, wakeup)):  # close all others
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, 1 << 16)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _exit_as(status)
        ready = select.select([lifeline, wake], [], [])[0]
        if lifeline in ready:
            os.kill(child, signal.SIGKILL)
            _exit_as(os.waitpid(child, 0)[1])
        for received in os.read(wake, 64):
            if received != signal.SIGCHLD:
                os.kill(child, received if _catches(child, received) else signal.SIGKILL)


def _catches(pid: int, number: int) -> bool:
    """Return whether a process handles a signal; the first of a pid namespace never gets one that it does not."""
    try:
        with open(f"/proc/{pid}/status") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _exit_as(status: int) -> NoReturn:
    """Exit with a child's exit status, or by the signal that ended it."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)
