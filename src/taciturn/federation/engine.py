"""The engine's program beside a party's own process: started confined, watched, and started again when it falls."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taciturn.federation.confinement import Confined, Trial, holds, launch
from taciturn.federation.kits import ADDRESS, FILES, HUB
from taciturn.federation.link import Link, pair

PROGRAM = "taciturn.federation.nvflare.carrier"
STOP_SECONDS = 5.0
MEMORY = 1 << 30  # bytes an engine can have; it needs a tenth of that
FILES_AT_HUB = 65536  # descriptors, as far as the system lets a process have them


@dataclass(frozen=True)
class Engine:
    """How to start it.

    Parameters
    ----------
    name
        `HUB` at the coordinator, the site's name at a site.
    peers
        The names it may talk to. At the hub each with the SHA-256 of its certificate, as `name=digest`.
    user
        The system user it runs as; empty for this process's own, or `nobody` where that is root.
    """

    name: str
    peers: Sequence[str]
    kit: Path
    address: str  # host:port
    limit: int  # bytes of a message
    log: Path
    user: str = ""

    def start(self, secrets: Mapping[str, Sequence[Path]]) -> Running:
        """A new process, confined, and the link to it.

        Parameters
        ----------
        secrets
            What it must not be able to open, by name: that is tried first.

        Raises
        ------
        InputError
            Where this machine has no way to keep the process from them.
        """
        trial = self.try_barriers(secrets)
        trial.require()
        link, theirs = pair(self.limit)
        with theirs:
            command = [
                *(sys.executable, "-m", PROGRAM, "--fd", str(theirs.fileno()), "--kit", str(self.kit.resolve())),
                *("--address", self.address, "--limit", str(self.limit)),
                *("--name", self.name, "--peers", ",".join(self.peers)),
            ]
            process = launch(
                command,
                fds=[theirs.fileno()],
                log=self.log,
                memory=MEMORY,
                may_lack=list(trial.missing),
                **self._reach(),
            )
        return Running(link, process)

    def try_barriers(self, secrets: Mapping[str, Sequence[Path]]) -> Trial:
        """What this process could do if it were taken over; a program of ours tries it in its place."""
        return holds(secrets, **self._reach())

    def _reach(self) -> dict[str, Any]:
        """What it is given: its kit, and one port."""
        port = int(self.address.rpartition(":")[2])
        at_hub = self.name == HUB
        return {
            "readable": [self.kit.resolve() / name for name in sorted(FILES - {ADDRESS})],
            "listen": [port] if at_hub else [],
            "connect": [port],
            "files": FILES_AT_HUB if at_hub else 256,
            "user": self.user or None,
        }


@dataclass
class Running:
    """A process that carries messages."""

    link: Link
    process: Confined

    def stop(self) -> None:
        """Hang up; it ends by itself, or is ended."""
        self.link.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def hub_address(host: str, port: int) -> str:
    """Where a hub listens: on loopback where the sites reach it there, else on every interface."""
    return f"{host}:{port}" if host in ("localhost", "127.0.0.1", "::1") else f"0.0.0.0:{port}"
