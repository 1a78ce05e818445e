"""The engine beside a party's own process: a confined program that carries its messages over the network."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from taciturn.federation.confinement import Confined, Trial, launch, try_confinement
from taciturn.federation.confinement.start import LaunchOptions
from taciturn.federation.kits import ADDRESS, FILES, HUB
from taciturn.federation.link import Link, pair

PROGRAM = "taciturn.federation.nvflare.carrier"
STOP_SECONDS = 5.0
MEMORY = 1 << 30  # bytes that an engine can have; it needs a tenth of that
FILES_AT_HUB = 65536  # open descriptors, if the system allows as many


@dataclass(frozen=True)
class Engine:
    """The settings with which an engine starts.

    Attributes
    ----------
    name
        `HUB` at the coordinator, the site's name at a site.
    peers
        The names it may talk to; at the hub each with the SHA-256 of its certificate, as `name=digest`.
    kit
        The folder of its kit.
    address
        host:port of the hub.
    limit
        Maximum bytes of a message.
    log
        The file for its output.
    user
        The system user it runs as; empty for this process's own, or `nobody` if that is root.
    """

    name: str
    peers: Sequence[str]
    kit: Path
    address: str
    limit: int
    log: Path
    user: str = ""

    def start(self, secrets: Mapping[str, Sequence[Path]]) -> EngineProcess:
        """Start the engine confined, after a trial of its confinement.

        Parameters
        ----------
        secrets
            What it must not be able to open, by name.

        Raises
        ------
        InputError
            If this machine cannot keep the process from them.
        """
        trial = self.try_barriers(secrets)
        trial.require()
        link, theirs = pair(self.limit)
        with theirs:
            options = {
                "fd": theirs.fileno(),
                "kit": self.kit.resolve(),
                "address": self.address,
                "limit": self.limit,
                "name": self.name,
                "peers": ",".join(self.peers),
            }
            command = [sys.executable, "-m", PROGRAM]
            for name, value in options.items():
                command += [f"--{name}", str(value)]
            may_lack = list(trial.missing)
            given = self._given()
            process = launch(command, fds=[theirs.fileno()], log=self.log, memory=MEMORY, may_lack=may_lack, **given)
        return EngineProcess(link, process)

    def try_barriers(self, secrets: Mapping[str, Sequence[Path]]) -> Trial:
        """Try what the engine could do if it were taken over; a probe runs in its place."""
        return try_confinement(secrets, **self._given())

    def _given(self) -> _Given:
        """Return the options of `launch` for what the engine is given: its kit and one port."""
        port = int(self.address.rpartition(":")[2])
        at_hub = self.name == HUB
        return {
            "readable": [self.kit.resolve() / name for name in sorted(FILES - {ADDRESS})],
            "listen": [port] if at_hub else [],
            "connect": [port],
            "files": FILES_AT_HUB if at_hub else 256,
            "user": self.user or None,
        }


class _Given(LaunchOptions):
    """What this program may read, do and use."""

    readable: list[Path]


@dataclass
class EngineProcess:
    """A running engine and the link to it."""

    link: Link
    process: Confined

    def stop(self) -> None:
        """Close the link and wait for the engine to end; kill it after STOP_SECONDS."""
        self.link.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def hub_address(host: str, port: int) -> str:
    """Return the address on which a hub listens: loopback if the sites reach it there, else every interface.

    >>> hub_address("localhost", 8002), hub_address("center.example.org", 8002)
    ('localhost:8002', '0.0.0.0:8002')
    """
    return f"{host}:{port}" if host in ("localhost", "127.0.0.1", "::1") else f"0.0.0.0:{port}"
