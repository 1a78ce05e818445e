"""The routes: the page's own files, and what it asks for."""

from __future__ import annotations

import hashlib
import json
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tacit.dashboard.catalogue import Catalogue
from tacit.dashboard.downloads import csv_name, csv_rows, holds_local
from tacit.dashboard.find import Found
from tacit.dashboard.workers import Workers

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Answer: TypeAlias = Callable[[Request, Found], dict[str, Any]]

KINDS = {".js": "text/javascript", ".svg": "image/svg+xml"}
THREADS = 3


def make_app(catalogue: Catalogue) -> Starlette:
    """The application; it reads nothing by a name that a request gave."""
    workers = Workers(THREADS)
    workers.submit(catalogue.runs)  # while the browser opens
    details: dict[str, Answer] = {
        "curves": lambda request, one: catalogue.curves(one),
        "privacy": lambda request, one: catalogue.privacy(one),
        "ledger": lambda request, one: catalogue.ledger(one),
        "settings": lambda request, one: catalogue.settings(one, _other(catalogue, request)),
    }
    app = Starlette(
        routes=[
            *(Route(f"/{name}" if name != "index.html" else "/", _file(name, text)) for name, text in _page().items()),
            Route("/api/runs", _runs(catalogue, workers)),
            *(Route(f"/api/runs/{{id}}/{name}", _detail(catalogue, workers, make)) for name, make in details.items()),
            Route("/api/metrics.csv", _csv(catalogue, workers)),
        ]
    )
    app.router.redirect_slashes = False
    return app


def _page() -> dict[str, bytes]:
    """The page's files, in memory."""
    return {file.name: file.read_bytes() for file in files("tacit.dashboard").joinpath("page").iterdir()}


def _file(name: str, content: bytes) -> Endpoint:
    suffix = name[name.rindex(".") :]
    kind = KINDS.get(suffix) or mimetypes.types_map[suffix]

    async def show(request: Request) -> Response:
        return Response(content, media_type=kind)

    return show


def _runs(catalogue: Catalogue, workers: Workers) -> Endpoint:
    async def show(request: Request) -> Response:
        body = await workers.do(lambda: _text(catalogue.runs()).encode())
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag})
        return Response(body, media_type="application/json", headers={"etag": tag})

    return show


def _detail(catalogue: Catalogue, workers: Workers, make: Answer) -> Endpoint:
    async def show(request: Request) -> Response:
        def answer() -> str | None:
            one = catalogue.run(request.path_params["id"])
            return _text(make(request, one)) if one else None

        body = await workers.do(answer)
        return _missing() if body is None else Response(body, media_type="application/json")

    return show


def _csv(catalogue: Catalogue, workers: Workers) -> Endpoint:
    async def show(request: Request) -> Response:
        asked = request.query_params.getlist("run")
        found = await workers.do(lambda: [one for one in map(catalogue.run, asked) if one])
        if not found:
            return _missing()
        wanted = catalogue.local and request.query_params.get("local") == "1"
        local = wanted and await workers.do(lambda: holds_local(found))
        rows = csv_rows(found, local)

        async def pieces() -> AsyncIterator[str]:
            while piece := await workers.do(lambda: next(rows, "")):
                yield piece

        name = {"content-disposition": f'attachment; filename="{csv_name(found, local)}"'}
        return StreamingResponse(pieces(), media_type="text/csv", headers=name)

    return show


def _other(catalogue: Catalogue, request: Request) -> Found | None:
    return catalogue.run(request.query_params.get("other", ""))


def _text(answer: Any) -> str:
    """JSON of what is plain already, so that it need not be gone through first."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False)


def _missing() -> Response:
    return Response(_text({"error": "there is no such run"}), status_code=404, media_type="application/json")
