"""The engine's program beside a party's own process: started confined, watched, and started again when it falls."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.federation.kits import FILES, HUB
from tacit.federation.link import Link, pair

PROGRAM = "tacit.federation.nvflare.carrier"
STOP_SECONDS = 5.0


@dataclass(frozen=True)
class Engine:
    """How to start it.

    Parameters
    ----------
    name
        `HUB` at the coordinator, the site's name at a site.
    peers
        The names it may talk to. At the hub each with the SHA-256 of its certificate, as `name=digest`.
    """

    name: str
    peers: Sequence[str]
    kit: Path
    address: str  # host:port
    limit: int  # bytes of a message
    log: Path

    def start(self) -> Running:
        """A new process, and the link to it."""
        link, theirs = pair(self.limit)
        with theirs, self.log.open("ab") as log:
            command = [
                *(sys.executable, "-m", PROGRAM, "--fd", str(theirs.fileno()), "--kit", str(self.kit.resolve())),
                *("--address", self.address, "--limit", str(self.limit)),
                *("--name", self.name, "--peers", ",".join(self.peers)),
            ]
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        return Running(link, process)


@dataclass
class Running:
    """A process that carries messages."""

    link: Link
    process: subprocess.Popen[bytes]

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
