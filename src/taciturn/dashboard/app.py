"""Metrics as a CSV file: every row, and in its name whether it holds what is the owner's alone."""

from __future__ import annotations

import csv
import hashlib
import io
import mimetypes
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from taciturn.dashboard.catalogue import Catalogue, FoundRun
from taciturn.dashboard.replies import encoded
from taciturn.dashboard.workers import Workers
from taciturn.runs.folder import RunFolder

COLUMNS = (
    *("folder", "run", "algorithm", "epsilon", "seed", "round", "test_error", "train_objective"),
    *("consensus_residual", "noise", "rho", "eta", "seconds", "bytes_up", "bytes_down"),
)


def csv_name(found: Sequence[FoundRun], local: bool) -> str:
    """What the file is called."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", found[0].name) if len(found) == 1 else f"{len(found)}-runs"
    return f"{name.strip('-.') or 'run'}{'-local-only' if local else ''}.csv"


def holds_local(found: Sequence[FoundRun]) -> bool:
    """Whether some of these runs have figures computed without noise."""
    return any(RunFolder(one.path).has_local for one in found)


def csv_rows(found: Sequence[FoundRun], local: bool) -> Iterator[str]:
    """The text, run by run."""
    yield ",".join(COLUMNS) + "\n"
    for one in found:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writerows({"folder": one.name, **row} for row in RunFolder(one.path).read_metrics(local))
        yield text.getvalue()


Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Answer: TypeAlias = Callable[[FoundRun, FoundRun | None], dict[str, Any]]  # of a run, maybe beside another

KINDS = {".js": "text/javascript", ".svg": "image/svg+xml"}
THREADS = 3
MOST = 500  # runs in one file
MISSING = "there is no such run"


def make_app(catalogue: Catalogue) -> Starlette:
    """The application; it reads nothing by a name that a request gave."""
    workers = Workers(THREADS)
    workers.submit(catalogue.runs)  # while the browser opens
    details: dict[str, Answer] = {
        "curves": lambda one, other: catalogue.curves(one),
        "privacy": lambda one, other: catalogue.privacy(one),
        "ledger": lambda one, other: catalogue.ledger(one),
        "settings": catalogue.settings,
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
    page = files("taciturn.dashboard").joinpath("page")
    found = [(folder, file) for folder in ("", "vendor/") for file in page.joinpath(folder).iterdir()]
    return {f"{folder}{file.name}": file.read_bytes() for folder, file in found if file.name.endswith((".html", ".css", ".js", ".svg"))}


def _file(name: str, content: bytes) -> Endpoint:
    suffix = name[name.rindex(".") :]
    kind = KINDS.get(suffix) or mimetypes.types_map[suffix]

    async def show(request: Request) -> Response:
        return Response(content, media_type=kind)

    return show


def _runs(catalogue: Catalogue, workers: Workers) -> Endpoint:
    async def show(request: Request) -> Response:
        body = await workers.do(lambda: encoded(catalogue.runs()))
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag})
        return Response(body, media_type="application/json", headers={"etag": tag})

    return show


def _detail(catalogue: Catalogue, workers: Workers, make: Answer) -> Endpoint:
    async def show(request: Request) -> Response:
        def answer() -> bytes | None:
            identity, other = request.path_params["id"], request.query_params.get("other", "")
            found = catalogue.some([identity, other] if other else [identity])
            return encoded(make(found[identity], found.get(other))) if identity in found else None

        body = await workers.do(answer)
        return _refused(404, MISSING) if body is None else Response(body, media_type="application/json")

    return show


def _csv(catalogue: Catalogue, workers: Workers) -> Endpoint:
    async def show(request: Request) -> Response:
        asked = list(dict.fromkeys(request.query_params.getlist("run")))
        if len(asked) > MOST:
            return _refused(400, f"{len(asked)} runs were asked for: one file holds {MOST} at most")
        found = list((await workers.do(lambda: catalogue.some(asked))).values())
        if not found:
            return _refused(404, MISSING)
        wanted = catalogue.local and request.query_params.get("local") == "1"
        local = wanted and await workers.do(lambda: holds_local(found))
        rows = csv_rows(found, local)

        async def pieces() -> AsyncIterator[str]:
            while piece := await workers.do(lambda: next(rows, "")):
                yield piece

        name = {"content-disposition": f'attachment; filename="{csv_name(found, local)}"'}
        return StreamingResponse(pieces(), media_type="text/csv", headers=name)

    return show


def _refused(status: int, sentence: str) -> Response:
    return Response(encoded({"error": sentence}), status_code=status, media_type="application/json")
