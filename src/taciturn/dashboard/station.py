"""Health, metrics and a page of a process that stays up: one process reads, and a confined one serves.

The files of a site hold what noise hides, so the program that talks to visitors cannot open any of them: it has a
listening socket and a link over which it gets what it serves, and no network besides.
"""

from __future__ import annotations

import secrets
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from taciturn.dashboard.access_control import is_loopback
from taciturn.dashboard.serve import EVERYWHERE
from taciturn.dashboard.vitals import Vitals
from taciturn.errors import InputError, TaciturnError
from taciturn.federation.confinement import launch
from taciturn.federation.link import BrokenLink, Frame, Kind, pair

PROGRAM = "taciturn.dashboard.station_program"
LIMIT = 1 << 20  # bytes of what is served
PERIOD = 1.0  # seconds between two looks
FILES, MEMORY = 256, 1 << 29


class Watch(Protocol):
    """Something to look at."""

    def vitals(self) -> Vitals:
        """How it is now."""
        ...


@dataclass
class Station:
    """A page that is bound and not yet answering."""

    watch: Watch
    host: str
    bound: socket.socket
    token: str

    @property
    def base(self) -> str:
        """Where it is."""
        name = socket.gethostname() if self.host in EVERYWHERE else f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.bound.getsockname()[1]}"

    @property
    def page(self) -> str:
        """What to open in a browser."""
        return f"{self.base}/?token={self.token}"

    def serve(self, stop: Callable[[], bool]) -> None:
        """Answer until somebody asks to stop.

        Raises
        ------
        InputError
            If the program that serves has ended.
        """
        link, theirs = pair(LIMIT)
        with theirs:
            listening, (address, *_) = self.bound.fileno(), self.bound.getsockname()
            words = ("--fd", str(theirs.fileno()), "--socket", str(listening), "--host", address)
            process = launch(
                [sys.executable, "-m", PROGRAM, *words],
                fds=[theirs.fileno(), listening],
                environment={"TACITURN_TOKEN": self.token},
                log=2,
                network=False,
                files=FILES,
                memory=MEMORY,
            )
        self.bound.close()
        try:
            while not stop():
                link.send(Frame(Kind.MESSAGE, "", self._look().encoded()))
                time.sleep(PERIOD)
        except BrokenLink:
            raise InputError("the program that serves the page has ended") from None
        finally:
            link.close()
            process.terminate()
            process.wait()

    def _look(self) -> Vitals:
        """How it is; where that cannot be read, why not."""
        try:
            return self.watch.vitals()
        except (TaciturnError, OSError) as error:
            page = {"title": "", "state": str(error), "good": False, "facts": [], "meter": None}
            return Vitals({"ok": False, "reason": "its files cannot be read"}, "", page | _NO_TABLE)


_NO_TABLE = {"headings": (), "rows": [], "note": ""}


def bind_station(watch: Watch, listen: str, token: str | None) -> Station:
    """A page at an address, `host:port`; visitors need a token, a random one where none is given."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"listen is {listen}: it must be an address and a port, as in 127.0.0.1:9464")
    if token is not None and not (token.isascii() and token.isalnum()):
        raise InputError("token must be letters and digits, since it stands in an address")
    is_loopback(host)  # a host that is no address of this machine is one sentence
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)
    except OSError as error:
        raise InputError(f"cannot listen on {listen}: {error.strerror}; choose another --listen") from None
    return Station(watch, host, bound, token or secrets.token_hex(16))
