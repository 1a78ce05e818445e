"""Start a program confined: it reaches nothing of this machine but what it is given, and ends when this process ends.

>>> process = launch([sys.executable, "-c", "print(open('/etc/shadow').read())"], log=2)  # doctest: +SKIP
>>> process.wait()  # PermissionError or FileNotFoundError, in the log  # doctest: +SKIP
1
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import site
import subprocess
import sys
import sysconfig
import weakref
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from taciturn.errors import InputError
from taciturn.federation.confinement import kernel
from taciturn.federation.confinement.inside import MECHANISMS, READY

# `taciturn` and `taciturn.federation` import much that the small process does not need and, without site packages, has not
_BOOTSTRAP = """
import sys, types
for name, folder in zip(("taciturn", "taciturn.federation", "taciturn.federation.confinement"), sys.argv[1:]):
    module = types.ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module
from taciturn.federation.confinement import inside
inside.main()
"""
_LOG_BYTES = 1 << 23  # a log that is longer is put aside when a program starts
_ELF_64 = b"\x7fELF\x02"
_PACKAGE = Path(__file__).resolve().parents[2]
_FOLDERS = [str(_PACKAGE), str(_PACKAGE / "federation"), str(_PACKAGE / "federation" / "confinement")]


class Confined(subprocess.Popen[bytes]):
    """A program that runs confined: wait for it, ask how it ended, terminate or kill it as any other.

    It is killed when this process ends, or when nothing refers to this object any more.

    Attributes
    ----------
    missing
        The mechanisms that this machine did not allow, and why.
    """

    missing: Mapping[str, str]


def launch(
    command: Sequence[str | Path],
    *,
    readable: Sequence[Path] = (),
    fds: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
    log: Path | int,
    user: str | None = None,
    network: bool = True,
    connect: Sequence[int] | None = None,
    listen: Sequence[int] = (),
    files: int = 1024,
    memory: int | None = None,
    scratch: int = 1 << 24,
    may_lack: Collection[str] = MECHANISMS,
    _without: Collection[str] = (),
) -> Confined:
    """Start a program that can read the Python installation and what it is given, and nothing else.

    Before the program runs it is put into namespaces of its own (users, mounts, processes, IPC, host name) with a new
    root, under Landlock and a seccomp filter, without capabilities. A mechanism that this machine does not allow is
    left out and named in the result: ask `barriers.holds` whether the rest is enough.

    Parameters
    ----------
    command
        Path of a program (not a script), and its arguments.
    readable
        Files and folders that it can read, besides Python's libraries, this package, the system's shared libraries and
        what resolves names. Files of up to 1 MB are copied when it starts.
    fds
        Descriptors that it inherits, under the same numbers; every other one is closed.
    environment
        All of its environment, but for `HOME`, `LANG`, `PYTHONPATH` and `TMPDIR`, which have defaults.
    log
        File to which its standard output and error are appended, or a descriptor. A file of more than 8 MB is first
        renamed, with `.1` at its end; the program cannot make it longer than 64 MB.
    user
        System user to run as; only root can choose one. Without it root's programs run as `nobody`.
    network
        Whether it can use the network at all.
    connect, listen
        TCP ports that it can connect to (None for all) and listen on, where the kernel can restrict them.
    files
        Descriptors that it can have open.
    memory
        Bytes of private memory that it can have, without limit if None.
    scratch
        Bytes that it can write in its own `/tmp`, which vanishes with it.
    may_lack
        Mechanisms that it may start without. Give what a trial found missing (`trial.missing`), so that nothing starts
        with less than was tried.

    Raises
    ------
    InputError
        If the program does not exist or cannot be run, if there is no such user, if this process may not become it,
        or if a mechanism is missing that must not be.
    """
    program = _program(command[0])
    order = {
        "command": (program, *map(str, command[1:])),
        "environment": _environment(environment or {}),
        "readable": [*_python(program), *(str(Path(path).absolute()) for path in readable)],
        "identity": None if user is None else _identity(user),
        "network": network,
        "connect": connect,
        "listen": listen,
        "files": files,
        "memory": memory,
        "scratch": scratch,
    }
    missing = (
        {} if sys.platform == "linux" else {name: f"{name}: only on Linux" for name in MECHANISMS if name != "user"}
    )
    while True:
        mechanisms = [name for name in MECHANISMS if name not in missing and name not in _without]
        process, failure = _try({**order, "mechanisms": mechanisms}, fds, log)
        if failure is None:
            process.missing = missing
            return process
        mechanism, why = failure
        if mechanism not in mechanisms or (mechanism == "user" and user is not None):
            raise InputError(f"a confined program did not start: {why}")
        if mechanism not in may_lack:
            raise InputError(f"a program was not started, since it would be confined less than was tried: {why}")
        missing[mechanism] = why


def shield() -> None:
    """Close this process's memory to all other processes of its user, and keep it out of core dumps (Linux).

    For a process that holds keys: programs of the same user that are not confined could trace it otherwise.
    """
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.limit(resource.RLIMIT_CORE, 0)


def _program(given: str | Path) -> str:
    program = Path(given).absolute()
    if not os.access(program, os.X_OK) or not program.is_file():
        raise InputError(f"{program} is not a program that can be run")
    with program.open("rb") as file:
        if sys.platform == "linux" and file.read(5) != _ELF_64:
            raise InputError(f"{program} is not a program for this machine but a script or something else")
    return str(program)


def _identity(user: str) -> tuple[int, int]:
    import pwd

    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise InputError(f"there is no system user '{user}': name one that this machine knows") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise InputError(f"only root can start a program as user '{user}': leave the user out")
    return entry.pw_uid, entry.pw_gid


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    folders = [str(_PACKAGE.parent), *(path for path in _installed() if path not in site.getsitepackages())]
    defaults = {"HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(folders), "TMPDIR": "/tmp"}
    return {**defaults, "PYTHONDONTWRITEBYTECODE": "1", **given}


def _installed() -> list[str]:
    """Folders of installed packages that this process uses, the user's own among them."""
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def _python(program: str) -> list[str]:
    """The program, the standard library, installed packages, this package, and shared libraries beside Python's."""
    paths = {program, os.path.realpath(program), str(_PACKAGE)}
    paths |= {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= set(_installed())
    for prefix in (sys.prefix, sys.base_prefix, sys.base_exec_prefix):
        paths |= {str(Path(prefix, name)) for name in ("lib", "lib64", "pyvenv.cfg")}
    return sorted(path for path in paths if Path(path).is_absolute() and Path(path).exists())


def _try(order: Mapping[str, object], fds: Sequence[int], log: Path | int) -> tuple[Confined, tuple[str, str] | None]:
    """Start the small process with one set of mechanisms; say which of them failed, and why, if one did."""
    output = log if isinstance(log, int) else _open_log(log)
    report, reporter = os.pipe()
    life, lifeline = os.pipe()
    try:
        process = Confined(
            [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, *_FOLDERS],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={},
            start_new_session=True,
            pass_fds=(*fds, reporter, life),
        )
    except BaseException:
        os.close(report)
        os.close(lifeline)
        raise
    finally:
        os.close(reporter)
        os.close(life)
        if output is not log:
            os.close(output)
    hang_up = weakref.finalize(process, os.close, lifeline)
    with os.fdopen(report, "rb") as reports:
        _send(process, {**order, "report": reporter, "lifeline": life})
        said = reports.read().splitlines()
    if said == [READY]:
        return process, None
    hang_up()
    process.wait()
    if not said:
        return process, ("program", f"{order['command']}: its log says why")
    failure = json.loads(said[-1])
    return process, (failure["failed"], failure["why"])


def _open_log(path: Path) -> int:
    if not path.is_symlink() and path.is_file() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _send(process: Confined, order: Mapping[str, object]) -> None:
    """Hand the order over on standard input, where no list of processes shows it."""
    stream, process.stdin = process.stdin, None
    if stream is not None:
        with contextlib.suppress(BrokenPipeError), stream:
            stream.write(json.dumps(order).encode())
