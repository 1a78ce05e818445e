"""What both servers of the dashboard share: tokens, addresses, sockets, and uvicorn."""

from __future__ import annotations

import logging
import socket

import uvicorn

from taciturn.dashboard.access_control import Guard
from taciturn.errors import InputError

ALL_ADDRESSES = ("0.0.0.0", "::", "")  # bound to these, the machine answers under its own name


def check_token(token: str | None) -> None:
    """Raise an InputError if a token cannot be part of an address."""
    if token is not None and not (token.isascii() and token.isalnum()):
        raise InputError("token must be letters and digits, because it is part of an address")


def base_address(host: str, port: int) -> str:
    """Return the address of a server, as a browser needs it.

    Examples
    --------
    >>> base_address("::1", 8321)
    'http://[::1]:8321'
    """
    name = socket.gethostname() if host in ALL_ADDRESSES else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises
    ------
    OSError
        If the address is in use, or is not one of this machine.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)
    except OSError:
        bound.close()
        raise
    return bound


def run_server(app: Guard, bound: socket.socket, **limits: int) -> None:
    """Answer requests on a bound socket until the process is asked to stop.

    Parameters
    ----------
    app : Guard
        The application behind its access control.
    bound : socket
        A listening socket.
    **limits
        Further settings of `uvicorn.Config`.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # requests that Ctrl-C interrupts are no errors
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=0,
        **limits,  # type: ignore[arg-type]
    )
    uvicorn.Server(config).run(sockets=[bound])
