"""Many requests at once, and requests from pages of other sites."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from taciturn.dashboard import catalogue
from taciturn.dashboard.catalogue import FoundRun, find_runs
from tests.dashboard.helpers import ask, dashboard, rows


def test_pages_of_other_sites_may_link_here_but_not_send_requests(runs: Path) -> None:
    app = dashboard(runs)
    paper = rows(app)["paper"]["id"]
    for address in ("/api/runs", f"/api/runs/{paper}/curves", f"/api/metrics.csv?run={paper}"):
        for site in ("same-origin", "none"):
            assert ask(app, address, sec_fetch_site=site).status == 200, (address, site)
        for site in ("cross-site", "same-site", "Cross-Site"):
            assert ask(app, address, sec_fetch_site=site).status == 403, (address, site)
    assert ask(app, "/", sec_fetch_site="cross-site").status == 200


def test_one_request_has_the_folder_looked_through_once_at_most(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Path] = []

    def look(root: Path) -> list[FoundRun]:
        looks.append(root)
        return find_runs(root)

    monkeypatch.setattr(catalogue, "find_runs", look)
    app = dashboard(runs)
    while not looks:
        time.sleep(0.01)  # the first look, while the browser opens
    paper = rows(app)["paper"]["id"]
    unknown = "&".join(f"run={number:012x}" for number in range(400))
    for address, most in (
        (f"/api/metrics.csv?{unknown}&run={paper}", 1),
        (f"/api/runs/{paper}/settings", 0),
        (f"/api/runs/{paper}/settings?other={paper}", 0),
        ("/api/runs/nothing/settings?other=nobody", 1),
    ):
        before = len(looks)
        ask(app, address)
        assert len(looks) - before == most, address


def test_a_run_asked_for_twice_is_sent_once_and_too_many_are_refused(runs: Path) -> None:
    app = dashboard(runs)
    paper = f"run={rows(app)['paper']['id']}"
    assert ask(app, f"/api/metrics.csv?{'&'.join([paper] * 600)}") == ask(app, f"/api/metrics.csv?{paper}")
    reply = ask(app, "/api/metrics.csv?" + "&".join(f"run={number}" for number in range(501)))
    assert reply.status == 400 and "501 runs" in reply.json["error"]
