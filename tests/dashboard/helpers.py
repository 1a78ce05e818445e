"""Requests to a dashboard without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from taciturn.dashboard.access_control import Guard
from taciturn.dashboard.catalogue import Catalogue

LOOPBACK = "127.0.0.1"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def dashboard(root: Path, host: str = LOOPBACK, token: str = "", local: bool = True) -> Guard:
    from taciturn.dashboard.app import make_app

    return Guard(make_app(Catalogue(root, local)), host, 8321, token)


def ask(app: Guard, address: str, method: str = "GET", **headers: str) -> Reply:
    """Send one request to the ASGI application and return its reply."""
    return asyncio.run(_ask(app, address, method, {"host": "localhost:8321", **headers}))


async def _ask(app: Guard, address: str, method: str, headers: Mapping[str, str]) -> Reply:
    path, _, query = address.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        "server": ("localhost", 8321),
        "client": ("127.0.0.1", 1),
    }
    said: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(3600)

    async def send(message: Any) -> None:
        said.append(message)

    await app(scope, receive, send)
    found = [(name.decode(), value.decode()) for name, value in said[0]["headers"]]
    assert len({name for name, _ in found}) == len(found), f"a header was said twice: {found}"
    return Reply(said[0]["status"], dict(found), b"".join(m.get("body", b"") for m in said[1:]))


def rows(app: Guard) -> dict[str, Any]:
    """Return the rows of the list of runs, by name."""
    return {row["name"]: row for row in ask(app, "/api/runs").json["runs"]}


def settled(app: Guard, address: str) -> Any:
    """Repeat a request until its reply is no longer pending."""

    async def until() -> Any:
        for _ in range(3000):
            found = (await _ask(app, address, "GET", {"host": "localhost"})).json
            if not found["pending"]:
                return found
            await asyncio.sleep(0.02)
        raise AssertionError(f"{address} is still being computed")

    return asyncio.run(until())
