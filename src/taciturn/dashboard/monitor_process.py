"""The confined program that serves a monitoring page: it cannot open its owner's files or a connection."""

from __future__ import annotations

import argparse
import json
import os
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TypedDict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from taciturn.dashboard.access_control import Guard, is_loopback
from taciturn.dashboard.http_server import run_server
from taciturn.dashboard.replies import file_routes, json_response, page_files
from taciturn.federation.link import BrokenLink, Link

LIMIT = 1 << 20  # bytes of a report
STALE = 10.0  # seconds after which a report no longer counts
WITHOUT_TOKEN = ("/health", "/metrics")  # for programs on this machine
SHARED_FILES = ("style.css", "dom.js", "icon.svg")  # of the dashboard's page


class ReceivedReport(TypedDict):
    """The JSON of a `MonitorReport`."""

    health: dict[str, object]
    metrics: str
    page: dict[str, object] | None


NO_REPORT: ReceivedReport = {
    "health": {"ok": False, "reason": "no report for more than 10 seconds"},
    "metrics": "",
    "page": None,
}


@dataclass
class LatestReport:
    """The last report that arrived over the link."""

    content: ReceivedReport = field(default_factory=lambda: NO_REPORT)
    received: float = -STALE  # on the monotonic clock

    def current(self) -> ReceivedReport:
        """Return the report, or an empty one if it is too old."""
        return self.content if time.monotonic() - self.received < STALE else NO_REPORT

    def listen(self, link: Link) -> None:
        """Receive reports; end this process when the link ends."""
        try:
            while True:
                frame = link.receive(3600.0)
                if frame is not None:
                    self.content, self.received = json.loads(frame.data), time.monotonic()
        except BrokenLink:
            os._exit(0)


def make_app(latest: LatestReport) -> Starlette:
    """Return the application: /health, /metrics, /api/now, and the files of the page."""

    async def health(request: Request) -> Response:
        state = latest.current()["health"]
        return json_response(state, 200 if state["ok"] else 503)

    async def metrics(request: Request) -> Response:
        text = latest.current()["metrics"]
        return Response(text, status_code=200 if text else 503, media_type="text/plain; version=0.0.4")

    async def page(request: Request) -> Response:
        content = latest.current()["page"]
        return json_response(content, 200 if content else 503)

    shared = {name: content for name, content in page_files("page").items() if name in SHARED_FILES}
    files = file_routes(shared | page_files("monitor_page"))
    app = Starlette(routes=[Route("/health", health), Route("/metrics", metrics), Route("/api/now", page), *files])
    app.router.redirect_slashes = False
    return app


def main() -> None:
    """Serve until the link ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="file descriptor of the link")
    parser.add_argument("--socket", type=int, required=True, help="file descriptor of a listening socket")
    parser.add_argument("--host", required=True, help="address of that socket")
    arguments = parser.parse_args()
    latest, bound = LatestReport(), socket.socket(fileno=arguments.socket)
    link = Link(socket.socket(fileno=arguments.fd), LIMIT)
    threading.Thread(target=latest.listen, args=(link,), daemon=True).start()
    free = WITHOUT_TOKEN if is_loopback(arguments.host) else ()
    guard = Guard(make_app(latest), arguments.host, bound.getsockname()[1], os.environ["TACITURN_TOKEN"], free)
    run_server(guard, bound, limit_concurrency=100, timeout_keep_alive=30)


if __name__ == "__main__":
    main()
