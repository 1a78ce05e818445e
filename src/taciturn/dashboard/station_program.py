"""The program that serves what it is told over a link: it can open no file of its owner's, and no connection."""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from taciturn.dashboard.access_control import Guard, is_loopback
from taciturn.dashboard.replies import encoded
from taciturn.federation.link import BrokenLink, Link

LIMIT = 1 << 20
STALE = 10.0  # seconds, after which what was told last no longer counts
FREE = ("/health", "/metrics")  # for programs on this machine
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
COMMON = ("style.css", "dom.js", "icon.svg")  # of the dashboard

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass
class StationState:
    """The last that came over the link."""

    what: dict[str, Any] = field(default_factory=dict)
    at: float = -STALE

    @property
    def fresh(self) -> bool:
        """Whether it still counts."""
        return time.monotonic() - self.at < STALE

    def listen(self, link: Link) -> None:
        """Take what comes; end this process with the link."""
        try:
            while True:
                frame = link.receive(3600.0)
                if frame is not None:
                    self.what, self.at = json.loads(frame.data), time.monotonic()
        except BrokenLink:
            os._exit(0)


def make_app(told: StationState) -> Starlette:
    """Three addresses, and the files of the page."""

    async def health(request: Request) -> Response:
        found = told.what["health"] if told.fresh else {"ok": False, "reason": "nothing was heard for a while"}
        return Response(encoded(found), status_code=200 if found["ok"] else 503, media_type="application/json")

    async def metrics(request: Request) -> Response:
        text = told.what["metrics"] if told.fresh else ""
        return Response(text, status_code=200 if text else 503, media_type="text/plain; version=0.0.4")

    async def now(request: Request) -> Response:
        page = told.what["page"] if told.fresh else None
        return Response(encoded(page), status_code=200 if page else 503, media_type="application/json")

    routes = [Route("/health", health), Route("/metrics", metrics), Route("/api/now", now)]
    package = files("taciturn.dashboard")
    page = {name: package.joinpath("page", name).read_bytes() for name in COMMON}
    page |= {file.name: file.read_bytes() for file in package.joinpath("station_page").iterdir()}
    routes += [Route("/" if name == "index.html" else f"/{name}", _file(name, body)) for name, body in page.items()]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return app


def _file(name: str, content: bytes) -> Endpoint:
    async def show(request: Request) -> Response:
        return Response(content, media_type=KINDS[name.rpartition(".")[2]])

    return show


def main() -> None:
    """Serve until the link ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the link")
    parser.add_argument("--socket", type=int, required=True, help="listens already")
    parser.add_argument("--host", required=True)
    given = parser.parse_args()
    told, bound = StationState(), socket.socket(fileno=given.socket)
    link = Link(socket.socket(fileno=given.fd), LIMIT)
    threading.Thread(target=told.listen, args=(link,), daemon=True).start()
    free = FREE if is_loopback(given.host) else ()
    guard = Guard(make_app(told), given.host, bound.getsockname()[1], os.environ["TACITURN_TOKEN"], free)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    settings = uvicorn.Config(
        guard,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=100,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=0,
    )
    uvicorn.Server(settings).run(sockets=[bound])


if __name__ == "__main__":
    main()
