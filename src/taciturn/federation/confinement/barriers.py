"""A trial of the confinement: a probe runs confined, tries to break out, and the result shows which barriers hold."""

from __future__ import annotations

import contextlib
import json
import os
import secrets as random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from taciturn.errors import InputError
from taciturn.federation.confinement import probe
from taciturn.federation.confinement.start import LaunchOptions, launch

_SYSTEM_BUS = "/run/dbus/system_bus_socket"
SECONDS = 30.0  # limit for the attempts
_REQUIRED = ("damage", "tracing", "signals", "buses", "code", "descriptors")
_MEANING = {
    "damage": "truncate, remove or change the rights of the site's files",
    "tracing": "trace the site's process or read its memory",
    "signals": "signal or stop the site's process",
    "buses": "reach D-Bus or another program's socket as the site's user",
    "code": "change the code that the site runs",
    "descriptors": "use a descriptor that it was not given",
    "sockets": "reach sockets that are open to every user",
    "processes": "see other processes",
    "writing": "write outside its own /tmp",
    "programs": "run a shell or another program",
    "privileges": "keep or gain privileges, or make namespaces",
    "ports": "listen on a TCP port",
}
_CHOICES = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone or user.max_user_namespaces, an AppArmor profile "
    "on Ubuntu, or the container's seccomp profile); use Linux 5.13 or later with Landlock; on another operating "
    "system, use a virtual machine with Linux"
)


@dataclass(frozen=True)
class Barrier:
    """One thing that a confined program must not be able to do.

    Attributes
    ----------
    name
        The name of a secret, or one of damage, tracing, signals, buses, code, descriptors, sockets, processes, writing,
        programs, privileges and ports.
    meaning
        What the program could do without it.
    holds
        Whether every attempt failed.
    attempts
        The number of attempts.
    through
        The attempts that succeeded.
    """

    name: str
    meaning: str
    holds: bool
    attempts: int
    through: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """The result of a trial on this machine.

    Attributes
    ----------
    barriers
        All barriers, those of the secrets first.
    missing
        The mechanisms that this machine does not allow, each with the reason.
    required
        Names of the barriers without which nothing may start.
    """

    barriers: tuple[Barrier, ...]
    missing: Mapping[str, str]
    required: tuple[str, ...]

    @property
    def broken(self) -> tuple[Barrier, ...]:
        """The required barriers that do not hold."""
        return tuple(each for each in self.barriers if each.name in self.required and not each.holds)

    def require(self) -> None:
        """Raise unless all required barriers hold.

        Raises
        ------
        InputError
            With what the program could do, the missing mechanisms, and the choices.
        """
        if self.broken:
            could = "; ".join(f"{each.meaning} ({(*each.through, 'not tried')[0]})" for each in self.broken)
            raise InputError(
                f"the program that talks to the network could {could}: nothing was started. Mechanisms that this "
                f"machine lacks: {'; '.join(self.missing.values()) or 'none'}. Choices: {_CHOICES}"
            )


def try_confinement(
    secrets: Mapping[str, Sequence[Path]],
    *,
    readable: Sequence[Path] = (),
    **options: Unpack[LaunchOptions],
) -> Trial:
    """Try to break out of the confinement that `launch` would give a program, from inside.

    Parameters
    ----------
    secrets
        What must stay closed, by name: files and folders with records, journal, ledger, identity, policy.
    readable
        As for `launch`; the secrets must not be below these paths.
    **options
        As for `launch`.

    Returns
    -------
    Trial
        Every barrier with its attempts. Call its `require` before the real program starts.

    Raises
    ------
    InputError
        If the probe itself could not work, which would prove nothing.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="taciturn-trial-")))
        folder.chmod(0o755)
        given, stage, private = folder / "given", folder / "stage", folder / "private"
        given.write_text(random.token_hex())
        stage.mkdir()
        stage.chmod(0o1777)
        private.mkdir(mode=0o700)
        (private / "control").write_text("")
        task_file = stack.enter_context(tempfile.TemporaryFile())
        answer = stack.enter_context(tempfile.TemporaryFile())
        task = probe.Task(
            secrets={name: [str(path.absolute()) for path in paths] for name, paths in secrets.items()},
            canary=str(given),
            content=given.read_text(),
            vault=os.getpid(),
            user=os.getuid(),
            buses=[*_session_buses(), stack.enter_context(_listening(str(private / "bus")))],
            sockets=[_SYSTEM_BUS, *(stack.enter_context(_listening(each)) for each in _addresses(stage / "bus"))],
            mailboxes=[stack.enter_context(_listening(each, False)) for each in _addresses(stage / "mailbox")],
            code=[str(Path(path).absolute()) for path in sys.path if Path(path).is_dir()],
            control=str(private / "control"),
            open_folder=str(stage),
            mark=f".taciturn-trial-{random.token_hex(8)}",
            fds=[task_file.fileno(), answer.fileno()],
        )
        task_file.write(json.dumps(task._asdict()).encode())
        task_file.seek(0)
        missing = _run_probe(task.fds, [*readable, given], folder / "log", options)
        answer.seek(0)
        attempts = _check_files(_read_attempts(answer.read(), folder / "log"), task.mark)
    names = {**dict.fromkeys(secrets, ""), **_MEANING}
    barriers = tuple(_barrier(name, meaning or f"open the {name}", attempts) for name, meaning in names.items())
    required = (*secrets, *_REQUIRED)
    return Trial(tuple(each for each in barriers if each.attempts or each.name in required), missing, required)


def _run_probe(fds: Sequence[int], readable: Sequence[Path], log: Path, options: LaunchOptions) -> Mapping[str, str]:
    """Run the probe and return the mechanisms that were missing."""
    command = [sys.executable, "-I", "-S", probe.__file__, *map(str, fds)]
    process = launch(command, readable=readable, fds=fds, log=log, **options)
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"the trial of the confinement did not end within {SECONDS:g} s") from error
    finally:
        process.kill()
        process.wait()
    return process.missing


def _read_attempts(answer: bytes, log: Path) -> list[probe.Attempt]:
    """Return the probe's attempts; a probe that could not work at all has proved nothing."""
    try:
        works, *attempts = (probe.Attempt(**each) for each in json.loads(answer))
    except ValueError as error:
        lines = log.read_text(errors="replace").strip().splitlines() or ["nothing"]
        raise InputError(f"the trial of the confinement failed; the last line of its log: {lines[-1]}") from error
    if not works.through:
        raise InputError(f"a confined program cannot {works.what}: {works.said}")
    return attempts


def _check_files(attempts: Sequence[probe.Attempt], mark: str) -> list[probe.Attempt]:
    """Count a created file as a success only if it arrived outside; remove it."""
    arrived = set()
    for folder in {attempt.left_in for attempt in attempts if attempt.left_in}:
        with contextlib.suppress(OSError):
            Path(folder, mark).unlink()
            arrived.add(folder)
    return [a._replace(through=a.left_in in arrived) if a.left_in else a for a in attempts]


def _barrier(name: str, meaning: str, attempts: Sequence[probe.Attempt]) -> Barrier:
    mine = [attempt for attempt in attempts if attempt.barrier == name]
    through = tuple(f"{attempt.what}: {attempt.said}" for attempt in mine if attempt.through)
    return Barrier(name, meaning, bool(mine) and not through, len(mine), through)


def _session_buses() -> Iterator[str]:
    """Yield the addresses at which the D-Bus of this user listens."""
    yield f"/run/user/{os.getuid()}/bus"
    for address in os.environ.get("DBUS_SESSION_BUS_ADDRESS", "").split(";"):
        kind, _, rest = address.partition(":")
        keys = dict(part.partition("=")[::2] for part in rest.split(","))
        if kind == "unix":
            yield from (prefix + keys[key] for key, prefix in (("path", ""), ("abstract", "\0")) if key in keys)


def _addresses(path: Path) -> list[str]:
    """Return addresses at which this process listens during the attempts, so that they have a target."""
    abstract = [f"\0taciturn-trial-{random.token_hex(8)}"] if sys.platform == "linux" else []
    return [str(path), *abstract]


@contextlib.contextmanager
def _listening(address: str, stream: bool = True) -> Iterator[str]:
    """Open a socket that every user of this machine may connect to, like the system bus."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as server:
        server.bind(address)
        if not address.startswith("\0"):
            Path(address).chmod(0o666)
        if stream:
            server.listen(16)
        yield address
