"""The small process that confines itself and then becomes the program, and the one that watches over it.

`taciturn.federation.confinement.start` runs this in a fresh interpreter without site packages. It forks once: the child
confines itself and calls execve; the parent waits for it, passes on signals and its exit status, and ends it when the
process that asked for it has ended. Each mechanism is either applied in full or reported as failed, and then nothing
is started: the caller may ask again without it.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import struct
import sys
from typing import NamedTuple, NoReturn

from taciturn.federation.confinement import kernel, landlock, root, seccomp

MECHANISMS = ("user", "namespaces", "privileges", "landlock", "seccomp")
NOBODY = 65534
READY = b"ready"  # said on the report descriptor when nothing is left but to run the program
_LOG_BYTES = 1 << 26  # no file that was open before, such as the log, grows beyond this
_TASKS = 512  # processes and threads
_SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
_SETTINGS = (
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/localtime",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies",
)


class Order(NamedTuple):
    """What to start, and what it is given."""

    command: tuple[str, ...]
    environment: dict[str, str]
    readable: tuple[str, ...]
    mechanisms: tuple[str, ...]
    identity: tuple[int, int] | None  # user and group to become
    network: bool
    connect: tuple[int, ...] | None
    listen: tuple[int, ...]
    files: int
    memory: int | None
    scratch: int
    report: int  # descriptor on which a failure is told
    lifeline: int  # descriptor that closes when the caller has ended


class Failed(Exception):
    """A mechanism could not be applied."""

    def __init__(self, mechanism: str, cause: Exception) -> None:
        super().__init__(f"{mechanism}: {cause}")
        self.mechanism = mechanism


def main() -> NoReturn:
    """Read an order from standard input, start its program confined, and watch over it until it ends."""
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
        os.umask(0o022)  # of what is made on the way
        paths = (*_SYSTEM, *_SETTINGS, *order.readable)
        if "namespaces" in order.mechanisms:
            _enter_namespaces(order, paths, privileged)
        elif order.identity is not None and os.geteuid() == 0:
            _change_user(order)
        _lower_limits(order)
        _give_up(order, paths, alive)
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
    if "namespaces" in order.mechanisms:  # elsewhere all processes of the user count
        limits[resource.RLIMIT_NPROC] = _TASKS
    for kind, value in limits.items():
        kernel.limit(kind, value)


def _leave_pids(order: Order) -> bool:
    """Have the next child start a new pid namespace; say whether this process may make namespaces by itself."""
    if "namespaces" not in order.mechanisms:
        return False
    try:
        if os.geteuid() == 0:
            try:
                kernel.unshare(kernel.NEWPID)
            except PermissionError:
                pass
            else:
                return True
            if order.identity is not None:
                _change_user(order)
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.NEWUSER | kernel.NEWPID)
        kernel.map_user(uid, gid, _own_folder())
    except OSError as error:
        raise Failed("namespaces", error) from error
    return False


def _enter_namespaces(order: Order, paths: tuple[str, ...], privileged: bool) -> None:
    """Own mounts, processes, IPC, host name and users; a root with nothing in it but the paths."""
    network = 0 if order.network else kernel.NEWNET
    change = privileged and "user" in order.mechanisms
    owner = order.identity or (NOBODY, NOBODY) if change else (os.geteuid(), os.getegid())
    try:
        contents = root.copies(paths)
        proc = _own_folder()
        kernel.unshare(kernel.NEWNS | kernel.NEWIPC | kernel.NEWUTS | kernel.NEWCGROUP | network)
        kernel.call("sethostname", b"confined", 8)
        root.enter(paths, contents, owner, order.scratch)
    except OSError as error:
        raise Failed("namespaces", error) from error
    if change:
        _change_user(order)
    if privileged:
        try:
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # else its files in /proc belong to root
            kernel.unshare(kernel.NEWUSER)
            kernel.map_user(*owner, proc)
        except OSError as error:
            raise Failed("namespaces", error) from error


def _own_folder() -> int:
    return os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _change_user(order: Order) -> None:
    uid, gid = order.identity or (NOBODY, NOBODY)
    try:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        needed = (os.path.realpath(order.command[0]), os.__file__)
        for path in needed:
            with open(path, "rb"):
                pass
    except OSError as error:
        raise Failed("user", error) from error


def _give_up(order: Order, paths: tuple[str, ...], alive: int) -> None:
    """Everything that holds without a view of its own: capabilities, Landlock, seccomp, and death with the watcher."""
    if not kernel.LINUX:
        return
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if "privileges" in order.mechanisms:
        try:
            kernel.drop_capabilities()
        except OSError as error:
            raise Failed("privileges", error) from error
    if "landlock" in order.mechanisms:
        try:
            landlock.restrict(_grants(order, paths), order.connect, order.listen)
        except OSError as error:
            raise Failed("landlock", error) from error
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([alive], [], [], 0)[0]:
        os._exit(1)  # the watcher ended before its end could be noticed
    if "seccomp" in order.mechanisms:
        try:
            seccomp.restrict(order.network)
        except OSError as error:
            raise Failed("seccomp", error) from error


def _grants(order: Order, paths: tuple[str, ...]) -> list[tuple[str, int]]:
    """Rights on files: read what is given, run the program and nothing else, write to a private /tmp."""
    program = os.path.realpath(order.command[0])
    grants = [(path, landlock.READ) for path in paths]
    packages = order.environment.get("PYTHONPATH", "").split(os.pathsep)  # whose names Python lists
    grants += [(path, landlock.READ_DIR) for path in packages if path]
    grants += [(path, landlock.EXECUTE | landlock.READ_FILE) for path in (program, _interpreter(program)) if path]
    grants += [(path, landlock.READ_FILE | landlock.WRITE_FILE) for path in root.DEVICES]
    if "namespaces" in order.mechanisms:
        return [*grants, ("/proc", landlock.READ), ("/tmp", landlock.SCRATCH)]
    return [*grants, (f"/proc/{os.getpid()}", landlock.READ)]


def _interpreter(program: str) -> str | None:
    """The loader of shared libraries that a 64-bit ELF program names, which the kernel runs in its place."""
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
    """End with the child as it ended; end the child when the lifeline closes or a signal asks for it."""
    wake, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    if kernel.LINUX:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    _close_all_but(lifeline, keep, wake, wakeup)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end_as(status)
        ready = select.select([lifeline, wake], [], [])[0]
        if lifeline in ready:
            os.kill(child, signal.SIGKILL)
            _end_as(os.waitpid(child, 0)[1])
        for asked in os.read(wake, 64):
            if asked != signal.SIGCHLD:
                os.kill(child, asked if _catches(child, asked) else signal.SIGKILL)


def _close_all_but(*kept: int) -> None:
    low = 0
    for descriptor in sorted(kept):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, 1 << 16)


def _catches(pid: int, number: int) -> bool:
    """Whether a process handles a signal; the first of a pid namespace never gets one that it does not handle."""
    try:
        with open(f"/proc/{pid}/status") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _end_as(status: int) -> NoReturn:
    """End with a child's exit status or by the signal that ended it."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)
