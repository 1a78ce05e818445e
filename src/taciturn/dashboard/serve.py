"""The server: a socket on this machine, and the page behind it."""

from __future__ import annotations

import logging
import secrets
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from taciturn.dashboard.access_control import Guard, is_loopback
from taciturn.dashboard.catalogue import Catalogue, find
from taciturn.errors import InputError

PORT = 8321
PATIENCE = 5e-4  # seconds a thread that reads runs may keep the server from answering
EVERYWHERE = ("0.0.0.0", "::", "")  # bound to these, the machine answers under its own name


@dataclass
class Dashboard:
    """A dashboard that is bound and not yet answering."""

    root: Path
    host: str
    bound: socket.socket
    token: str
    local: bool  # whether figures computed without noise are shown

    @property
    def port(self) -> int:
        """The port it is bound to."""
        return int(self.bound.getsockname()[1])

    @property
    def address(self) -> str:
        """What to open in a browser."""
        name = socket.gethostname() if self.host in EVERYWHERE else f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def app(self) -> Guard:
        """What answers."""
        from taciturn.dashboard.app import make_app

        return Guard(make_app(Catalogue(self.root, self.local)), self.host, self.port, self.token)

    def serve(self) -> None:
        """Answer until Ctrl-C."""
        import uvicorn

        sys.setswitchinterval(PATIENCE)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # requests cut off by Ctrl-C are no news
        settings = uvicorn.Config(
            self.app(),
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=0,
        )
        with suppress(KeyboardInterrupt):
            uvicorn.Server(settings).run(sockets=[self.bound])


def bind(root: Path, host: str, port: int | None, token: str | None, with_local: bool) -> Dashboard:
    """A dashboard on this host; on any but loopback it asks for a token, and leaves out what is local-only."""
    find(root)
    loopback = is_loopback(host)
    if token is not None and not (token.isascii() and token.isalnum()):
        raise InputError("token must be letters and digits, since it stands in an address")
    made = token or ("" if loopback else secrets.token_hex(16))
    return Dashboard(root, host, _listening(host, port), made, loopback or with_local)


def _listening(host: str, port: int | None) -> socket.socket:
    """A socket at the port asked for; at the usual one, or any other that is free, where none was."""
    try:
        return _bound(host, PORT if port is None else port)
    except OSError as error:
        if port is not None:
            raise InputError(f"port {port} of {host} cannot be used: {error.strerror}; choose another --port") from None
    return _bound(host, 0)


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError:
        found.close()
        raise
    return found
