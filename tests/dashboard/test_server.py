"""The dashboard's replies, its access control, and what it never reveals."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.dashboard import serve
from taciturn.dashboard.access_control import is_loopback
from taciturn.dashboard.catalogue import find_runs
from taciturn.dashboard.serve import bind
from taciturn.errors import InputError
from taciturn.runs.folder import RunFolder
from taciturn.runs.metrics_log import METRICS, MetricsLog
from tests.dashboard.helpers import ask, dashboard, rows, settled

DETAILS = ("curves", "privacy", "settings", "ledger")
TOKEN = "abc123"


def test_the_list_has_every_run_with_its_figures(runs: Path) -> None:
    found = rows(dashboard(runs))
    assert list(found) == ["budgets", "paper", "sweep/hardened"]
    budgets, paper, hardened = found.values()
    assert (budgets["data"], budgets["algorithms"], budgets["seeds"]) == ("records", ["additive"], 3)
    assert (budgets["epsilon"], budgets["done"], budgets["state"]) == (["1", "3"], 12, "finished")
    assert (hardened["noise"], hardened["done"], hardened["share"]) == ("hardened", 8, 1.0)
    assert (paper["mode"], paper["errors_local"]) == ("paper", False)
    assert budgets["errors_local"]
    ended = RunFolder.open(runs / "budgets").read_summary()["runs"]
    means = [sum(e["test_error"] for e in ended if e["epsilon"] == epsilon) / 3 for epsilon in (1, 3)]
    assert budgets["errors"] == pytest.approx([min(means), max(means)])
    assert rows(dashboard(runs / "budgets")) == {"budgets": budgets}, "a run folder by itself"


def test_the_list_is_sent_once_and_again_when_something_changed(runs: Path) -> None:
    app = dashboard(runs)
    first = ask(app, "/api/runs")
    assert ask(app, "/api/runs", if_none_match=first.headers["etag"]).status == 304
    with (runs / "paper" / "metrics.jsonl").open("a") as file:
        file.write("\n")
    assert ask(app, "/api/runs", if_none_match=first.headers["etag"]).status == 200
    shutil.rmtree(runs / "budgets")
    assert list(rows(app)) == ["paper", "sweep/hardened"]


def test_an_unfinished_run_shows_its_progress_and_how_to_continue(runs: Path) -> None:
    (runs / "paper" / "summary.json").unlink()
    lines = (runs / "paper" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (runs / "paper" / "metrics.jsonl").write_text("".join(lines[:12]) + lines[12][:20])  # outp's third round, and half
    app = dashboard(runs)
    row = rows(app)["paper"]
    assert (row["state"], row["done"], row["planned"], row["at"]) == ("stopped", 3, 9, "outp")
    assert row["share"] == pytest.approx((9 + 3) / 18)
    assert row["resume"] == f"taciturn resume {runs / 'paper'}"
    charts = ask(app, f"/api/runs/{row['id']}/curves").json["charts"]
    assert [line["rounds"][-1] for line in charts["noise"]["lines"]] == [9, 3]
    with RunFolder(runs / "paper").locked():
        assert rows(app)["paper"]["state"] == "running"


def test_a_study_whose_records_are_elsewhere_is_not_resumed_here(runs: Path) -> None:
    (runs / "budgets" / "summary.json").unlink()
    shutil.rmtree(runs / "budgets" / "local-only")
    row = rows(dashboard(runs))["budgets"]
    assert row["state"] == "waiting"
    assert not row["resume"]


def test_details_are_numbers_made_from_the_run(runs: Path) -> None:
    app = dashboard(runs)
    found = rows(app)
    place = f"/api/runs/{found['budgets']['id']}"
    charts = ask(app, f"{place}/curves").json["charts"]
    assert {name: chart["local"] for name, chart in charts.items()} == {
        "test_error": True, "train_objective": True, "consensus_residual": False, "noise": False,
    }  # fmt: skip
    (one, three) = charts["test_error"]["lines"]
    assert (one["label"], one["seeds"], one["rounds"]) == ("additive, ε = 1", 3, list(range(1, 13)))
    assert all(low <= mean <= high for low, mean, high in zip(one["low"], one["mean"], one["high"], strict=True))
    assert three["label"] == "additive, ε = 3"
    beside = ask(app, f"{place}/settings?other={found['paper']['id']}").json["settings"]
    assert {s["name"]: (s["value"], s["other"]) for s in beside if s["differs"]}["mode"] == ("certified", "paper")
    assert all(setting["other"] is None for setting in ask(app, f"{place}/settings").json["settings"])
    ledger = settled(app, f"{place}/ledger")
    assert ledger["lines"] == len(RunFolder.open(runs / "budgets").read_ledger())
    assert [total["agents"] for total in ledger["totals"]] == [["north", "south", "west"]] * 6
    assert ledger["entries"][-1]["kind"] == "study"
    assert "all 6 runs" in ledger["together"]
    assert settled(app, f"{place}/privacy")["headline"].startswith("Simulated:")


def test_the_unit_of_noise_is_what_the_ledger_says_about_the_method(runs: Path) -> None:
    ledger = runs / "sweep" / "hardened" / "ledger.jsonl"
    original = ledger.read_text()
    units = {}
    for noise_on in ("gradients", "uploads"):
        assert '"noise_on": "gradients"' in original
        ledger.write_text(original.replace('"noise_on": "gradients"', f'"noise_on": "{noise_on}"'))
        app = dashboard(runs)
        charts = ask(app, f"/api/runs/{rows(app)['sweep/hardened']['id']}/curves").json["charts"]
        units[noise_on] = {metric: [line["unit"] for line in chart["lines"]] for metric, chart in charts.items()}
    assert units["gradients"]["noise"] == ["gradient units"]
    assert units["uploads"]["noise"] == ["parameter units"]
    assert units["uploads"]["consensus_residual"] == [""], "only the noise depends on the method"
    ledger.unlink()
    app = dashboard(runs)
    reply = ask(app, f"/api/runs/{rows(app)['sweep/hardened']['id']}/curves").json
    assert "noise" in reply["charts"], "curves are drawn without a ledger"


def test_the_columns_are_the_rows_that_others_read(made: Path) -> None:
    folder = RunFolder.open(made / "budgets")
    metrics = MetricsLog.of(folder, local=True)
    metrics.refresh()
    for name in METRICS:
        for run in range(6):
            rows = [row for row in folder.read_metrics() if row["run"] == run]
            series, own = metrics.series(run, name)
            assert series is not None
            assert own == (name in {"test_error", "train_objective"})
            np.testing.assert_array_equal(series.rounds, [row["round"] for row in rows])
            np.testing.assert_array_equal(series.values, [row[name] for row in rows])


def test_csv_files_have_every_row_and_say_what_is_the_owners(runs: Path) -> None:
    app = dashboard(runs)
    found = rows(app)
    budgets, paper = (f"run={found[name]['id']}" for name in ("budgets", "paper"))
    public = ask(app, f"/api/metrics.csv?{budgets}")
    owners = ask(app, f"/api/metrics.csv?{budgets}&local=1")
    assert public.headers["content-disposition"] == 'attachment; filename="budgets.csv"'
    assert owners.headers["content-disposition"] == 'attachment; filename="budgets-local-only.csv"'
    for reply, private in ((public, False), (owners, True)):
        table = list(csv.DictReader(io.StringIO(reply.body.decode())))
        assert len(table) == 6 * 12
        assert all(bool(row["test_error"]) == bool(row["seconds"]) == private for row in table)
    assert ask(app, f"/api/metrics.csv?{paper}&local=1").headers["content-disposition"].endswith('"paper.csv"')
    both = ask(app, f"/api/metrics.csv?{budgets}&{paper}")
    assert both.headers["content-disposition"].endswith('"2-runs.csv"')
    assert {row["folder"] for row in csv.DictReader(io.StringIO(both.body.decode()))} == {"budgets", "paper"}
    assert ask(app, "/api/metrics.csv").status == 404


def test_on_another_host_what_is_computed_without_noise_is_left_out(runs: Path) -> None:
    app = dashboard(runs, "0.0.0.0", TOKEN, local=False)
    listed = ask(app, f"/api/runs?token={TOKEN}").json
    row = next(row for row in listed["runs"] if row["name"] == "budgets")
    assert (row["errors"], row["duration"], row["tested"]) == (None, None, True)
    place = f"/api/runs/{row['id']}"
    charts = ask(app, f"{place}/curves?token={TOKEN}").json["charts"]
    assert set(charts) == {"consensus_residual", "noise"}
    settings = {s["name"]: s["value"] for s in ask(app, f"{place}/settings?token={TOKEN}").json["settings"]}
    assert (settings["data"], settings["schema"]) == ("records.csv", "schema.toml")
    table = ask(app, f"/api/metrics.csv?run={row['id']}&local=1&token={TOKEN}")
    assert table.headers["content-disposition"].endswith('"budgets.csv"')
    assert all(not row["train_objective"] for row in csv.DictReader(io.StringIO(table.body.decode())))
    kept = [json.loads(line) for line in (runs / "budgets/local-only/metrics.jsonl").read_text().splitlines()]
    said = table.body + json.dumps([listed, charts]).encode()
    assert not any(str(line["train_objective"]).encode() in said for line in kept)


def test_on_another_host_no_answer_has_a_path_of_this_machine(runs: Path) -> None:
    config = runs / "budgets" / "config.toml"
    config.write_text(config.read_text().replace("plugins = []", f'plugins = ["{runs}/own/mine.py"]'))
    for run in ("budgets", "paper"):
        (runs / run / "summary.json").unlink()
    ledger = runs / "sweep" / "hardened" / "ledger.jsonl"  # whose head is kept in the state folder too
    lines = ledger.read_text().splitlines(keepends=True)
    whole = next(count for count, line in enumerate(lines, 1) if not json.loads(line)["more"])  # the first append
    ledger.write_text("".join(lines[:whole]))
    head = {"lines": whole, "head": hashlib.sha256(lines[whole - 1].rstrip().encode()).hexdigest()}
    (runs / "sweep" / "hardened" / "ledger.head").write_text(json.dumps(head))
    for place, own in ((runs, "paper"), (runs / "paper", "paper")):
        app = dashboard(place, local=False)
        found = rows(app)
        assert found[own]["resume"] == "taciturn resume paper"
        said = ask(app, "/api/runs").body
        for row in found.values():
            for detail in ("curves", "settings"):
                said += ask(app, f"/api/runs/{row['id']}/{detail}").body
            for detail in ("privacy", "ledger"):
                said += json.dumps(settled(app, f"/api/runs/{row['id']}/{detail}")).encode()
            said += ask(app, f"/api/metrics.csv?run={row['id']}").body
        for path in (runs.parent, Path(os.environ["XDG_STATE_HOME"])):
            assert str(path).encode() not in said
        assert place != runs or (b'"mine.py"' in said and b".json counts " in said)


def test_a_paper_run_with_a_picture_in_local_only_is_not_private(runs: Path) -> None:
    (runs / "paper" / "local-only").mkdir()
    (runs / "paper" / "local-only" / "sent.png").touch()
    found = rows(dashboard(runs, local=False))
    assert (found["paper"]["duration_local"], found["budgets"]["duration_local"]) == (False, True)
    assert found["paper"]["duration"] is not None


def test_the_duration_of_a_run_without_local_only_is_not_shown(runs: Path) -> None:
    """As for a federation's coordinator: the run is certified, and its times may depend on records."""
    shutil.rmtree(runs / "budgets" / "local-only")
    for local in (False, True):
        assert rows(dashboard(runs, local=local))["budgets"]["duration"] is None


def test_only_local_names_are_answered_to_on_loopback(runs: Path) -> None:
    app = dashboard(runs)
    for host in ("localhost", "127.0.0.1:8321", "[::1]:8321", "LOCALHOST:99"):
        assert ask(app, "/api/runs", host=host).status == 200, host
    for host in ("evil.example", "localhost.evil.example:8321", "", "127.0.0.1.evil", "["):
        reply = ask(app, "/", host=host)
        assert reply.status == 421, host
        assert b"<" not in reply.body


def test_on_another_host_the_token_is_requested_once(runs: Path) -> None:
    app = dashboard(runs, "0.0.0.0", TOKEN)
    for address in ("/", "/main.js", "/api/runs", "/api/metrics.csv", "/?token=", "/?token=abc12", "/?token=ABC123"):
        assert ask(app, address).status == 401, address
    assert ask(app, "/", cookie="taciturn-8321=wrong").status == 401
    assert ask(app, "/", cookie="taciturn-8321=\u00e4").status == 401
    first = ask(app, f"/?token={TOKEN}")
    assert first.status == 200
    cookie, *terms = first.headers["set-cookie"].split("; ")
    assert set(terms) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    assert ask(app, "/api/runs", cookie=cookie).status == 200
    assert "set-cookie" not in ask(dashboard(runs), "/").headers


@pytest.mark.parametrize("address", ["/", "/main.js", "/api/runs", "/nothing", "/api/runs/x/curves"])
def test_every_answer_has_the_security_headers(runs: Path, address: str) -> None:
    for app in (dashboard(runs), dashboard(runs, "0.0.0.0", TOKEN)):
        headers = ask(app, address).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert {policy[f"{kind}-src"] for kind in ("script", "style", "connect", "img")} == {"'self'"}
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(runs: Path, method: str) -> None:
    for address in ("/", "/api/runs", "/nothing"):
        assert ask(dashboard(runs), address, method).status == 405


def test_head_is_get_without_a_body(runs: Path) -> None:
    assert ask(dashboard(runs), "/api/runs", "HEAD").status == 200


@pytest.mark.parametrize(
    "address",
    [
        *("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page/main.js", "/budgets/config.toml", "/__init__.py"),
        *("/api/runs/budgets/curves", "/api/runs/..%2fbudgets/curves", "/api/runs/%2fetc/ledger", "/api/runs//curves"),
        *("/api/runs/x/config.toml", "/api/metrics.csv?run=../../etc/passwd", "/index.html", "/main.js/"),
    ],
)
def test_no_path_leads_to_a_file(runs: Path, address: str) -> None:
    reply = ask(dashboard(runs), address)
    assert reply.status == 404
    assert b"root:" not in reply.body and b"total_epsilon" not in reply.body


def test_the_dashboard_changes_no_file(runs: Path) -> None:
    (runs / "budgets" / "summary.json").unlink()  # so that it is asked whether somebody works at it
    before = traces(runs)
    app = dashboard(runs)
    for row in rows(app).values():
        for detail in DETAILS:
            ask(app, f"/api/runs/{row['id']}/{detail}")
        settled(app, f"/api/runs/{row['id']}/ledger")
        ask(app, f"/api/metrics.csv?run={row['id']}&local=1")
    assert traces(runs) == before


def traces(folder: Path) -> Any:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_runs_are_found_at_any_depth_and_nothing_else_is(runs: Path) -> None:
    (runs / "notes").mkdir()
    (runs / ".hidden").mkdir()
    (runs / ".hidden" / "config.toml").touch()
    (runs / "loop").symlink_to(runs)
    (runs / "budgets" / "inside").mkdir()
    (runs / "budgets" / "inside" / "config.toml").touch()
    assert [one.name for one in find_runs(runs)] == ["budgets", "paper", "sweep/hardened"]
    identities = [one.identity for one in find_runs(runs)]
    assert identities == [one.identity for one in find_runs(runs)], "a bookmark holds"


def test_names_are_sent_as_text_whatever_they_are(runs: Path) -> None:
    strange = os.fsencode(runs) + b'/<img src=x onerror="alert(1)">\xff'
    shutil.copytree(runs / "paper", strange.decode(errors="surrogateescape"))
    assert rows(dashboard(runs))['<img src=x onerror="alert(1)">\\udcff']["state"] == "finished"


def test_a_port_in_use_is_refused_only_if_it_was_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bind(tmp_path, "127.0.0.1", 0, None, False)
    with pytest.raises(InputError, match=f"port {first.port} of 127.0.0.1"):
        bind(tmp_path, "127.0.0.1", first.port, None, False)
    monkeypatch.setattr(serve, "PORT", first.port)
    other = bind(tmp_path, "127.0.0.1", None, None, False)
    assert other.port not in {0, first.port}
    assert other.address == f"http://127.0.0.1:{other.port}/"
    for made in (first, other):
        made.bound.close()


def test_an_empty_folder_has_no_runs_and_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert ask(dashboard(tmp_path), "/api/runs").json["runs"] == []
    with pytest.raises(InputError, match="nowhere"):
        bind(tmp_path / "nowhere", "127.0.0.1", 0, None, False)


def test_what_it_binds_to_decides_token_and_local_figures(tmp_path: Path) -> None:
    here = bind(tmp_path, "localhost", 0, None, False)
    there = bind(tmp_path, "0.0.0.0", 0, None, False)
    asked = bind(tmp_path, "0.0.0.0", 0, "mine1", True)
    for made in (here, there, asked):
        made.bound.close()
    assert (here.token, here.local) == ("", True)
    assert (len(there.token), there.local) == (32, False)
    assert (asked.token, asked.local) == ("mine1", True)
    with pytest.raises(InputError, match="letters and digits"):
        bind(tmp_path, "localhost", 0, "a b", False)
    with pytest.raises(InputError, match=r"no\.such\.host\.invalid"):
        is_loopback("no.such.host.invalid")
