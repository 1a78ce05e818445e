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
from taciturn.dashboard.replies import encode_json, file_routes, json_response, page_files
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
    endpoints = Endpoints(catalogue)
    app = Starlette(
        routes=[
            *file_routes(page_files("page", "page/vendor")),
            Route("/api/runs", endpoints.runs),
            Route("/api/runs/{id}/{detail}", endpoints.detail),
            Route("/api/metrics.csv", endpoints.metrics_csv),
        ]
    )
    app.router.redirect_slashes = False
    return app


class Endpoints:
    """The requests that are not for files of the page; background threads answer them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue, self._workers = catalogue, Workers(THREADS)
        self._workers.submit(catalogue.runs)  # while the browser opens
        self._details: dict[str, Detail] = {
            "curves": lambda run, other: catalogue.curves(run),
            "privacy": lambda run, other: catalogue.privacy(run),
            "ledger": lambda run, other: catalogue.ledger(run),
            "effects": lambda run, other: catalogue.effects(run),
            "settings": catalogue.settings,
        }

    async def runs(self, request: Request) -> Response:
        """Return the list of runs, or status 304 if the browser has it already."""
        body = await self._workers.run(lambda: encode_json(self._catalogue.runs()))
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag})
        return Response(body, media_type="application/json", headers={"etag": tag})

    async def detail(self, request: Request) -> Response:
        """Return one kind of detail about a run, compared with another run if the request names one."""
        identity, other = request.path_params["id"], request.query_params.get("other", "")
        make = self._details.get(request.path_params["detail"])

        def answer() -> Response:
            found = self._catalogue.select([identity, other] if other else [identity])
            if make is None or identity not in found:
                return json_response(NOT_FOUND, 404)
            return json_response(make(found[identity], found.get(other)))

        return await self._workers.run(answer)

    async def metrics_csv(self, request: Request) -> Response:
        """Return the metrics of runs as one CSV file, whose name says if it contains local-only figures."""
        wanted = list(dict.fromkeys(request.query_params.getlist("run")))
        if len(wanted) > MOST_RUNS:
            error = f"{len(wanted)} runs were requested; one file contains at most {MOST_RUNS}"
            return json_response({"error": error}, 400)
        runs = list((await self._workers.run(lambda: self._catalogue.select(wanted))).values())
        if not runs:
            return json_response(NOT_FOUND, 404)
        local = self._catalogue.local and request.query_params.get("local") == "1"
        local = local and await self._workers.run(lambda: any(RunFolder(run.path).has_local for run in runs))
        rows = _csv_rows(runs, local)

        async def parts() -> AsyncIterator[str]:
            while part := await self._workers.run(lambda: next(rows, "")):
                yield part

        name = {"content-disposition": f'attachment; filename="{_csv_name(runs, local)}"'}
        return StreamingResponse(parts(), media_type="text/csv", headers=name)


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
