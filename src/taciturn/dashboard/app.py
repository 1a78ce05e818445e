"""The dashboard's web application: the page, JSON about runs, and metrics as CSV files."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from taciturn.dashboard.catalogue import Catalogue, FoundRun
from taciturn.dashboard.replies import Endpoint, encode_json, file_routes, json_response, page_files
from taciturn.dashboard.workers import Workers
from taciturn.runs.folder import RunFolder

Detail: TypeAlias = Callable[[FoundRun, FoundRun | None], object]  # the reply about a run, compared with another

COLUMNS = (
    *("folder", "run", "algorithm", "epsilon", "seed", "round", "test_error", "train_objective"),
    *("consensus_residual", "noise", "rho", "eta", "seconds", "bytes_up", "bytes_down"),
)
THREADS = 3
MOST_RUNS = 500  # in one CSV file
NOT_FOUND = {"error": "there is no such run"}


def make_app(catalogue: Catalogue) -> Starlette:
    """Return the application. It never opens a path that a request names.

    Parameters
    ----------
    catalogue : Catalogue
        Answers the requests about runs.
    """
    workers = Workers(THREADS)
    workers.submit(catalogue.runs)  # while the browser opens
    details: dict[str, Detail] = {
        "curves": lambda run, other: catalogue.curves(run),
        "privacy": lambda run, other: catalogue.privacy(run),
        "ledger": lambda run, other: catalogue.ledger(run),
        "settings": catalogue.settings,
    }
    app = Starlette(
        routes=[
            *file_routes(page_files("page", "page/vendor")),
            Route("/api/runs", _runs(catalogue, workers)),
            *(Route(f"/api/runs/{{id}}/{name}", _detail(catalogue, workers, make)) for name, make in details.items()),
            Route("/api/metrics.csv", _csv(catalogue, workers)),
        ]
    )
    app.router.redirect_slashes = False
    return app


def _runs(catalogue: Catalogue, workers: Workers) -> Endpoint:
    async def serve(request: Request) -> Response:
        body = await workers.run(lambda: encode_json(catalogue.runs()))
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag})
        return Response(body, media_type="application/json", headers={"etag": tag})

    return serve


def _detail(catalogue: Catalogue, workers: Workers, make: Detail) -> Endpoint:
    async def serve(request: Request) -> Response:
        identity, other = request.path_params["id"], request.query_params.get("other", "")

        def answer() -> Response:
            found = catalogue.select([identity, other] if other else [identity])
            if identity not in found:
                return json_response(NOT_FOUND, 404)
            return json_response(make(found[identity], found.get(other)))

        return await workers.run(answer)

    return serve


def _csv(catalogue: Catalogue, workers: Workers) -> Endpoint:
    async def serve(request: Request) -> Response:
        wanted = list(dict.fromkeys(request.query_params.getlist("run")))
        if len(wanted) > MOST_RUNS:
            error = f"{len(wanted)} runs were requested; one file contains at most {MOST_RUNS}"
            return json_response({"error": error}, 400)
        runs = list((await workers.run(lambda: catalogue.select(wanted))).values())
        if not runs:
            return json_response(NOT_FOUND, 404)
        local = catalogue.local and request.query_params.get("local") == "1"
        local = local and await workers.run(lambda: any(RunFolder(run.path).has_local for run in runs))
        rows = _csv_rows(runs, local)

        async def parts() -> AsyncIterator[str]:
            while part := await workers.run(lambda: next(rows, "")):
                yield part

        name = {"content-disposition": f'attachment; filename="{_csv_name(runs, local)}"'}
        return StreamingResponse(parts(), media_type="text/csv", headers=name)

    return serve


def _csv_name(runs: Sequence[FoundRun], local: bool) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", runs[0].name) if len(runs) == 1 else f"{len(runs)}-runs"
    return f"{name.strip('-.') or 'run'}{'-local-only' if local else ''}.csv"


def _csv_rows(runs: Sequence[FoundRun], local: bool) -> Iterator[str]:
    """Yield the heading, then all rows of one run after another."""
    yield ",".join(COLUMNS) + "\n"
    for run in runs:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writerows({"folder": run.name, **row} for row in RunFolder(run.path).read_metrics(local))
        yield text.getvalue()
