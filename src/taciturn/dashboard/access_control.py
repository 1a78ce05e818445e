"""Who may ask, and what browsers are told to do with the answers."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, Collection
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from taciturn.errors import InputError

Scope: TypeAlias = Any
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

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
    """Whether a server bound to this host can be reached from this machine alone."""
    try:
        found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except OSError:
        raise InputError(f"host is {host}: no address of this machine has that name") from None
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)


class Guard:
    """In front of the pages: methods, the Host header on loopback, other sites, the token; and headers of answers."""

    def __init__(self, app: App, host: str, port: int, token: str, free: Collection[str] = ()) -> None:
        self._app, self._token = app, token
        self._free = frozenset(free)  # paths for which nobody needs the token
        self._hosts = {"localhost", "127.0.0.1", "::1", host.lower()} if is_loopback(host) else None
        self._cookie = f"taciturn-{port}"  # cookies do not tell ports apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or say why not."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        refusal = self._refusal(scope, headers)
        if not refusal and self._token and scope["path"] not in self._free:
            more.append((b"set-cookie", self._set_cookie().encode()))

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        if refusal:
            await _refuse(send_with_headers, *refusal)
        else:
            await self._app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        if scope["method"] not in METHODS:
            return 405, "the dashboard only shows things: use GET"
        if self._hosts is not None and _name(headers.get("host", "")) not in self._hosts:
            return 421, "this dashboard answers to localhost alone"  # a page elsewhere may have its name lead here
        if scope["path"].startswith("/api/") and headers.get("sec-fetch-site", "").lower() in FOREIGN:
            return 403, "the page of another site may not ask for runs: open the dashboard itself"
        if self._token and scope["path"] not in self._free and not self._known(scope, headers):
            return 401, "open the page by the address that its command printed: it holds the token"
        return None

    def _known(self, scope: Scope, headers: dict[str, str]) -> bool:
        """Whether the request has the token, in its address or in the cookie of an earlier visit."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            cookie = None
        candidates = [*given, *([cookie.value] if cookie else [])]
        return any(secrets.compare_digest(one.encode(), self._token.encode()) for one in candidates)

    def _set_cookie(self) -> str:
        return f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"


def _name(host: str) -> str:
    """The name in a Host header."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = f"{sentence}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
