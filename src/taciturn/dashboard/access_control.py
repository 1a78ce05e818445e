"""Access control of the dashboard's servers: who may request what, and the security headers of every response."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from taciturn.errors import InputError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
METHODS = ("GET", "HEAD")
FOREIGN = ("cross-site", "same-site")  # same-site: another port of this machine


def is_loopback(host: str) -> bool:
    """Return whether a server bound to this host can be reached only from this machine.

    Raises
    ------
    InputError
        If the host has no address.

    Examples
    --------
    >>> is_loopback("127.0.0.1")
    True
    """
    try:
        found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except OSError as error:
        raise InputError(f"host is {host}: it is not an address of this machine") from error
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)


class Guard:
    """ASGI middleware that checks method, Host header, origin and token, and adds security headers to responses.

    Parameters
    ----------
    app : callable
        The application behind it.
    host : str
        The host it is bound to; on loopback, only local names are accepted in the Host header, which stops DNS
        rebinding.
    port : int
        Its port, which names its cookie.
    token : str
        What visitors need; an empty text: nothing.
    free : collection of str
        Paths that need no token.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, token: str, free: Collection[str] = ()) -> None:
        self._app, self._token, self._free = app, token, frozenset(free)
        self._hosts = {"localhost", "127.0.0.1", "::1", host.lower()} if is_loopback(host) else None
        self._cookie = f"taciturn-{port}"  # browsers share cookies between ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        refusal = self._refusal(scope, headers)
        if not refusal and self._token and scope["path"] not in self._free:
            cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
            added.append((b"set-cookie", cookie.encode()))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        if refusal:
            from starlette.responses import PlainTextResponse

            status, sentence = refusal
            await PlainTextResponse(f"{sentence}\n", status)(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Return the status and the reason for which a request is refused."""
        if scope["method"] not in METHODS:
            return 405, "the dashboard is read-only: use GET"
        if self._hosts is not None and _host_name(headers.get("host", "")) not in self._hosts:
            # another site's name may resolve to this machine
            return 421, "this dashboard answers only requests to localhost"
        if scope["path"].startswith("/api/") and headers.get("sec-fetch-site", "").lower() in FOREIGN:
            return 403, "pages of other sites may not request runs: open the dashboard itself"
        if self._token and scope["path"] not in self._free and not self._has_token(scope, headers):
            return 401, "open the address that the command printed: it contains the token"
        return None

    def _has_token(self, scope: Scope, headers: dict[str, str]) -> bool:
        """Return whether the token is in the address, or in the cookie of an earlier visit."""
        candidates = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            cookie = None
        if cookie:
            candidates.append(cookie.value)
        return any(secrets.compare_digest(text.encode(), self._token.encode()) for text in candidates)


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
