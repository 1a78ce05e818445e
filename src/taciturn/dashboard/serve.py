"""The dashboard's server."""

from __future__ import annotations

import secrets
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from taciturn.dashboard.access_control import Guard, is_loopback
from taciturn.dashboard.catalogue import Catalogue, find_runs
from taciturn.dashboard.http_server import base_address, bind_socket, check_token, run_server
from taciturn.errors import InputError

PORT = 8321
SWITCH_INTERVAL = 5e-4  # seconds after which a thread that reads runs lets the server answer


@dataclass
class Dashboard:
    """A dashboard whose socket is bound and that does not answer yet."""

    root: Path
    host: str
    bound: socket.socket
    token: str
    local: bool  # whether figures computed without noise are shown

    @property
    def port(self) -> int:
        """The port of the socket."""
        return int(self.bound.getsockname()[1])

    @property
    def address(self) -> str:
        """The address to open in a browser, with the token if there is one."""
        return f"{base_address(self.host, self.port)}/" + (f"?token={self.token}" if self.token else "")

    def serve(self) -> None:
        """Answer requests until Ctrl-C."""
        from taciturn.dashboard.app import make_app

        sys.setswitchinterval(SWITCH_INTERVAL)
        app = Guard(make_app(Catalogue(self.root, self.local)), self.host, self.port, self.token)
        with suppress(KeyboardInterrupt):
            run_server(app, self.bound)


def bind(root: Path, host: str, port: int | None, token: str | None, with_local: bool) -> Dashboard:
    """Bind a dashboard to an address.

    Parameters
    ----------
    root : Path
        A folder that contains runs, or a run folder.
    host : str
        On any host but loopback, visitors need a token, and local-only figures are left out.
    port : int or None
        None: the usual port, or any free one if that is in use.
    token : str or None
        Letters and digits; None: a random one if a token is needed.
    with_local : bool
        Include local-only figures on any host.

    Raises
    ------
    InputError
        If the folder, the host, the port or the token cannot be used.
    """
    find_runs(root)
    check_token(token)
    loopback = is_loopback(host)
    return Dashboard(
        root,
        host,
        _bind_port(host, port),
        token or ("" if loopback else secrets.token_hex(16)),
        loopback or with_local,
    )


def _bind_port(host: str, port: int | None) -> socket.socket:
    try:
        return bind_socket(host, PORT if port is None else port)
    except OSError as error:
        if port is not None:
            message = f"port {port} of {host} cannot be used: {error.strerror}; choose another --port"
            raise InputError(message) from error
    return bind_socket(host, 0)
