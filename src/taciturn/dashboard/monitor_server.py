"""Health, metrics and a page of a long-running process: this process reads its files, and a confined one serves.

The files of a site contain what noise hides, so the program that visitors talk to cannot open any of them. It has a
listening socket, a link over which it receives what it serves, and no other access to network or files.
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
from taciturn.dashboard.http_server import base_address, bind_socket, check_token
from taciturn.dashboard.monitoring import MonitorPage, MonitorReport
from taciturn.dashboard.replies import encode_json
from taciturn.errors import InputError, PeerLost, TaciturnError
from taciturn.federation.confinement import launch
from taciturn.federation.link import BrokenLink, Frame, Kind, pair

PROGRAM = "taciturn.dashboard.monitor_process"
LIMIT = 1 << 20  # bytes of a report
PERIOD = 1.0  # seconds between two reports
MOST_FILES, MOST_MEMORY = 256, 1 << 29  # of the confined process: open files, bytes


class Monitor(Protocol):
    """A process that can be monitored."""

    def report(self) -> MonitorReport:
        """Return its current state."""
        ...


@dataclass
class MonitorServer:
    """A monitoring page whose socket is bound and that does not answer yet."""

    monitor: Monitor
    host: str
    bound: socket.socket
    token: str

    @property
    def base(self) -> str:
        """The address of the server."""
        return base_address(self.host, self.bound.getsockname()[1])

    @property
    def page(self) -> str:
        """The address to open in a browser, with the token."""
        return f"{self.base}/?token={self.token}"

    def serve(self, stop: Callable[[], bool]) -> None:
        """Answer requests until `stop` returns True.

        Raises
        ------
        PeerLost
            If the confined process has ended.
        """
        link, theirs = pair(LIMIT)
        with theirs:
            listening, (address, *_) = self.bound.fileno(), self.bound.getsockname()
            arguments = ("--fd", str(theirs.fileno()), "--socket", str(listening), "--host", address)
            process = launch(
                [sys.executable, "-m", PROGRAM, *arguments],
                fds=[theirs.fileno(), listening],
                environment={"TACITURN_TOKEN": self.token},
                log=2,
                network=False,
                files=MOST_FILES,
                memory=MOST_MEMORY,
            )
        self.bound.close()
        try:
            while not stop():
                link.send(Frame(Kind.MESSAGE, "", encode_json(self._report())))
                time.sleep(PERIOD)
        except BrokenLink as error:
            raise PeerLost("the process that serves the page has ended") from error
        finally:
            link.close()
            process.terminate()
            process.wait()

    def _report(self) -> MonitorReport:
        try:
            return self.monitor.report()
        except (TaciturnError, OSError) as error:
            health = {"ok": False, "reason": "its files cannot be read"}
            return MonitorReport(health, "", MonitorPage("", str(error), ok=False))


def bind_monitor(monitor: Monitor, listen: str, token: str | None) -> MonitorServer:
    """Bind a monitoring page to an address.

    Parameters
    ----------
    monitor : Monitor
        The process to report about.
    listen : str
        `host:port`.
    token : str or None
        What visitors of the page need: letters and digits; None: a random one.

    Raises
    ------
    InputError
        If the address or the token cannot be used.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"listen is {listen}: it must be an address and a port, as in 127.0.0.1:9464")
    check_token(token)
    is_loopback(host)  # raises if the host is not an address of this machine
    try:
        bound = bind_socket(host, int(port))
    except OSError as error:
        raise InputError(f"cannot listen on {listen}: {error.strerror}; choose another --listen") from error
    return MonitorServer(monitor, host, bound, token or secrets.token_hex(16))
