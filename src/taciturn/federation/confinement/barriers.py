"""What keeps a confined program out, found by trying: a program of ours runs confined and tries to break out."""

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
from typing import Any

from taciturn.errors import InputError
from taciturn.federation.confinement import probe
from taciturn.federation.confinement.start import launch

_SYSTEM_BUS = "/run/dbus/system_bus_socket"
SECONDS = 30.0  # that the attempts may take
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
    "on Ubuntu, or the container's seccomp profile); use Linux 5.13 or later with Landlock; elsewhere than on Linux, a "
    "virtual machine with Linux"
)


@dataclass(frozen=True)
class Barrier:
    """One thing that a confined program must not be able to do.

    Attributes
    ----------
    name
        A name of a secret, or one of damage, tracing, signals, buses, code, descriptors, sockets, processes, writing,
        programs, privileges and ports.
    meaning
        What the program would do without it.
    holds
        Whether every attempt failed.
    attempts
        How many there were.
    through
        Those that succeeded.
    """

    name: str
    meaning: str
    holds: bool
    attempts: int
    through: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """What was found on this machine.

    Attributes
    ----------
    barriers
        All of them, those of the secrets first.
    missing
        The mechanisms that this machine does not allow, and why.
    required
        Names of the barriers without which nothing may start.
    """

    barriers: tuple[Barrier, ...]
    missing: Mapping[str, str]
    required: tuple[str, ...]

    @property
    def broken(self) -> tuple[Barrier, ...]:
        """The barriers that are required and do not hold."""
        return tuple(each for each in self.barriers if each.name in self.required and not each.holds)

    def require(self) -> None:
        """Go on only if all that is required holds.

        Raises
        ------
        InputError
            Names what the program could do, which mechanisms are missing, and the choices.
        """
        if not self.broken:
            return
        could = "; ".join(f"{each.meaning} ({each.through[0]})" for each in self.broken)
        lacks = "; ".join(self.missing.values()) or "none is missing"
        raise InputError(
            f"the program that talks to the network could {could}: nothing was started. Mechanisms this machine lacks: "
            f"{lacks}. Choices: {_CHOICES}"
        )


def holds(
    secrets: Mapping[str, Sequence[Path]],
    *,
    readable: Sequence[Path] = (),
    sockets: Sequence[Path] = (),
    user: str | None = None,
    **options: Any,
) -> Trial:
    """Try to break out of the confinement that `launch` would give a program, from inside.

    Parameters
    ----------
    secrets
        What must stay shut, by name: files and folders with records, journal, ledger, identity, policy.
    readable
        As for `launch`; the secrets must not lie beneath.
    sockets
        Paths of Unix sockets that must be out of reach, besides those of D-Bus.
    user, **options
        As for `launch`.

    Returns
    -------
    Trial
        Every barrier with what was tried. Call its `require` before the real program starts.
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
        task = stack.enter_context(tempfile.TemporaryFile())
        answer = stack.enter_context(tempfile.TemporaryFile())
        what = probe.Task(
            secrets={name: [str(path.absolute()) for path in paths] for name, paths in secrets.items()},
            canary=str(given),
            content=given.read_text(),
            vault=os.getpid(),
            user=os.getuid(),
            buses=[*map(str, sockets), *_session_buses(), stack.enter_context(_listening(str(private / "bus")))],
            sockets=[_SYSTEM_BUS, *(stack.enter_context(_listening(each)) for each in _open_sockets(stage / "bus"))],
            mailboxes=[stack.enter_context(_listening(each, False)) for each in _open_sockets(stage / "mailbox")],
            code=[str(Path(path).absolute()) for path in sys.path if Path(path).is_dir()],
            control=str(private / "control"),
            open_folder=str(stage),
            mark=f".taciturn-trial-{random.token_hex(8)}",
            fds=[task.fileno(), answer.fileno()],
        )
        task.write(json.dumps(what._asdict()).encode())
        task.seek(0)
        missing = _run(what.fds, [*readable, given], folder / "log", user, options)
        answer.seek(0)
        attempts = _judged(_attempts(answer.read(), folder / "log"), what.mark)
    names = {**dict.fromkeys(secrets, ""), **_MEANING}
    barriers = tuple(_barrier(name, meaning or f"open the {name}", attempts) for name, meaning in names.items())
    required = (*secrets, *_REQUIRED)
    return Trial(tuple(each for each in barriers if each.attempts or each.name in required), missing, required)


def _run(
    fds: Sequence[int], readable: Sequence[Path], log: Path, user: str | None, options: Mapping[str, Any]
) -> Mapping[str, str]:
    """Run the attempts; say which mechanisms were missing."""
    command = [sys.executable, "-I", "-S", probe.__file__, *map(str, fds)]
    process = launch(command, readable=readable, fds=fds, log=log, user=user, **options)
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        raise InputError(f"the trial of the confinement did not end within {SECONDS:g} s") from None
    finally:
        process.kill()
        process.wait()
    return process.missing


def _attempts(answer: bytes, log: Path) -> list[probe.Attempt]:
    """What the program said; a program that could not work at all has proved nothing."""
    try:
        attempts = [probe.Attempt(**each) for each in json.loads(answer)]
    except ValueError:
        said = log.read_text(errors="replace").strip().splitlines() or ["nothing"]
        raise InputError(f"the trial of the confinement failed; its last words: {said[-1]}") from None
    if not attempts[0].through:
        raise InputError(f"a confined program cannot {attempts[0].what}: {attempts[0].said}")
    return attempts[1:]


def _judged(attempts: Sequence[probe.Attempt], mark: str) -> list[probe.Attempt]:
    """Files that were made count only if they arrived outside; they are removed."""
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
    """Where the D-Bus of this user listens."""
    yield f"/run/user/{os.getuid()}/bus"
    for address in os.environ.get("DBUS_SESSION_BUS_ADDRESS", "").split(";"):
        kind, _, rest = address.partition(":")
        keys = dict(part.partition("=")[::2] for part in rest.split(","))
        if kind == "unix":
            yield from (prefix + keys[key] for key, prefix in (("path", ""), ("abstract", "\0")) if key in keys)


def _open_sockets(path: Path) -> list[str]:
    """Addresses at which this process itself listens while the attempts run, so that they are never in vain."""
    abstract = [f"\0taciturn-trial-{random.token_hex(8)}"] if sys.platform == "linux" else []
    return [str(path), *abstract]


@contextlib.contextmanager
def _listening(address: str, stream: bool = True) -> Iterator[str]:
    """A socket that every user of this machine may connect to, if they reach it, as that of the system's bus."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as each:
        each.bind(address)
        if not address.startswith("\0"):
            Path(address).chmod(0o666)
        if stream:
            each.listen(16)
        yield address
