"""Start a program confined: it reaches nothing of this machine except what it is given, and ends with this process.

>>> process = launch([sys.executable, "-c", "print(open('/etc/shadow').read())"], log=2)  # doctest: +SKIP
>>> process.wait()  # the log shows PermissionError or FileNotFoundError  # doctest: +SKIP
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
from typing import TypedDict

from taciturn.errors import InputError
from taciturn.federation.confinement import kernel
from taciturn.federation.confinement.inside import MECHANISMS, READY, Order

# The packages `taciturn` and `taciturn.federation` import much that the small process neither needs nor finds.
_BOOTSTRAP = """
import sys, types
for name, folder in zip(("taciturn", "taciturn.federation", "taciturn.federation.confinement"), sys.argv[1:]):
    module = types.ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module
from taciturn.federation.confinement import inside
inside.main()
"""
_LOG_BYTES = 1 << 23  # a longer log is renamed when a program starts
_ELF_64 = b"\x7fELF\x02"
_PACKAGE = Path(__file__).resolve().parents[2]
_FOLDERS = [str(_PACKAGE), str(_PACKAGE / "federation"), str(_PACKAGE / "federation" / "confinement")]


class Confined(subprocess.Popen[bytes]):
    """A confined program. Wait for it, ask for its exit status, terminate or kill it like any other.

    It is killed when this process ends, or when nothing refers to this object any more.

    Attributes
    ----------
    missing
        The mechanisms that this machine did not allow, each with the reason.
    """

    missing: Mapping[str, str]


class LaunchOptions(TypedDict, total=False):
    """What a program may do and use beyond reading files: keywords of `launch`."""

    user: str | None
    network: bool
    connect: Sequence[int] | None
    listen: Sequence[int]
    files: int
    _without: Collection[str]


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

    Before the program runs it enters new namespaces (users, mounts, processes, IPC, host name) with a new root, is put
    under Landlock and a seccomp filter, and loses its capabilities. A mechanism that this machine does not allow is
    skipped and named in the result: `try_confinement` shows whether the others suffice.

    Parameters
    ----------
    command
        Path of a program (not a script), and its arguments.
    readable
        Files and folders that it can read, besides Python's libraries, this package, the system's shared libraries and
        the files for name resolution. Files of up to 1 MB are copied when it starts.
    fds
        Descriptors that it inherits, under the same numbers; all others are closed.
    environment
        Its whole environment, except for `HOME`, `LANG`, `PYTHONPATH` and `TMPDIR`, which have defaults.
    log
        File to which its standard output and error are appended, or a descriptor. A file of more than 8 MB is first
        renamed, with `.1` appended; the program cannot make it longer than 64 MB.
    user
        System user to run as; only root can choose one. Without it, root's programs run as `nobody`.
    network
        Whether it can use the network at all.
    connect, listen
        TCP ports that it can connect to (None for all) and listen on, if the kernel can restrict them.
    files
        Maximum number of open descriptors.
    memory
        Maximum bytes of private memory; None for no limit.
    scratch
        Bytes that it can write in its own `/tmp`, which vanishes with it.
    may_lack
        Mechanisms that it may start without. Pass what a trial found missing (`trial.missing`), so that nothing starts
        with less confinement than was tried.

    Returns
    -------
    Confined
        The running program.

    Raises
    ------
    InputError
        If the program does not exist or cannot be run, the user does not exist or cannot be chosen, or a required
        mechanism is missing.
    """
    program = _find_program(command[0])
    order = Order(
        command=(program, *map(str, command[1:])),
        environment=_environment(environment or {}),
        readable=(*_python_paths(program), *(str(Path(path).absolute()) for path in readable)),
        identity=None if user is None else _find_user(user),
        network=network,
        connect=None if connect is None else tuple(connect),
        listen=tuple(listen),
        files=files,
        memory=memory,
        scratch=scratch,
    )
    missing: dict[str, str] = {}
    if sys.platform != "linux":
        missing = {name: f"{name}: only on Linux" for name in MECHANISMS if name != "user"}
    while True:
        mechanisms = tuple(name for name in MECHANISMS if name not in missing and name not in _without)
        process, failure = _try(order._replace(mechanisms=mechanisms), fds, log)
        if failure is None:
            process.missing = missing
            return process
        mechanism, why = failure
        if mechanism not in mechanisms or (mechanism == "user" and user is not None):
            raise InputError(f"a confined program did not start: {why}")
        if mechanism not in may_lack:
            raise InputError(f"a program was not started because it would be less confined than in the trial: {why}")
        missing[mechanism] = why


def shield() -> None:
    """Protect this process's memory from other processes of its user, and keep it out of core dumps (Linux).

    This is for a process that holds keys, which unconfined programs of the same user could otherwise trace.
    """
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.limit(resource.RLIMIT_CORE, 0)


def _find_program(given: str | Path) -> str:
    program = Path(given).absolute()
    if not os.access(program, os.X_OK) or not program.is_file():
        raise InputError(f"{program} is not an executable file")
    with program.open("rb") as file:
        if sys.platform == "linux" and file.read(5) != _ELF_64:
            raise InputError(f"{program} is not a program for this machine; scripts cannot be confined")
    return str(program)


def _find_user(user: str) -> tuple[int, int]:
    import pwd

    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise InputError(f"there is no system user '{user}'") from error
    if os.geteuid() not in (0, entry.pw_uid):
        raise InputError(f"only root can start a program as user '{user}': do not name a user")
    return entry.pw_uid, entry.pw_gid


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    folders = [str(_PACKAGE.parent), *(path for path in _package_folders() if path not in site.getsitepackages())]
    defaults = {"HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(folders), "TMPDIR": "/tmp"}
    return {**defaults, "PYTHONDONTWRITEBYTECODE": "1", **given}


def _package_folders() -> list[str]:
    """Return the folders of installed packages that this process uses, including the user's own."""
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def _python_paths(program: str) -> list[str]:
    """Return the program, the standard library, installed packages, this package, and Python's shared libraries."""
    paths = {program, os.path.realpath(program), str(_PACKAGE), *_package_folders()}
    paths |= {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for prefix in (sys.prefix, sys.base_prefix, sys.base_exec_prefix):
        paths |= {str(Path(prefix, name)) for name in ("lib", "lib64", "pyvenv.cfg")}
    return sorted(path for path in paths if Path(path).is_absolute() and Path(path).exists())


def _try(order: Order, fds: Sequence[int], log: Path | int) -> tuple[Confined, tuple[str, str] | None]:
    """Start the small process with one set of mechanisms; return the mechanism that failed and why, if one did."""
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
        _send(process, order._replace(report=reporter, lifeline=life))
        lines = reports.read().splitlines()
    if lines == [READY]:
        return process, None
    hang_up()
    process.wait()
    if not lines:
        return process, ("program", f"{order.command}: see its log")
    failure = json.loads(lines[-1])
    return process, (failure["failed"], failure["why"])


def _open_log(path: Path) -> int:
    if not path.is_symlink() and path.is_file() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _send(process: Confined, order: Order) -> None:
    """Pass the order on standard input, where no process listing shows it."""
    stream, process.stdin = process.stdin, None
    if stream is not None:
        with contextlib.suppress(BrokenPipeError), stream:
            stream.write(json.dumps(order._asdict()).encode())
