"""A federation in real processes from its operators' view: status, health, audit, log, a killed agent."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from taciturn.dashboard.monitoring import CoordinatorMonitor, SiteMonitor
from taciturn.federation.local_cluster import LocalFederation, find_free_port, local_federation, start_taciturn
from taciturn.federation.site_operations import site_status
from tests.cli.helpers import PATIENCE
from tests.federation.test_logs import Syslog

pytestmark = pytest.mark.federation

SITES = {"north": 30_000, "south": 30_000}
STUDY = {"features": "none", "algorithm": "objp", "rounds": 2000, "total_epsilon": 3.0}
RUNNING = {"quorum": 1, "answer_seconds": 5}


def until(demo: LocalFederation, true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, [path.read_text() for path in demo.root.glob("*.txt")]
        time.sleep(0.05)


def asked(address: str) -> tuple[int, str]:
    """Return a server's status code and body; 0 if it does not listen yet."""
    try:
        with urllib.request.urlopen(address, timeout=5) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""
    except OSError:
        return 0, ""


def test_people_can_see_how_it_is(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)  # noqa: PTH101
    syslog, log = Syslog(tmp_path / "log"), tmp_path / "north.log"
    with local_federation(tmp_path / "all", "mnist14", SITES, STUDY, RUNNING, patience=PATIENCE) as demo:
        demo.root.mkdir()
        demo.prepare()
        words = ("federation", "site", "start", str(demo.site("north")), "--seeded", "7")
        demo.agents["north"] = start_taciturn(
            demo.root / "north.txt", *words, "--log", str(log), "--audit", f"syslog:{syslog.path}"
        )
        demo.start_agent("south")
        demo.start_coordinator()
        demo.wait_for_round(3)
        until(demo, lambda: site_status(demo.site("north"))["rounds_answered"] > 0)
        found = site_status(demo.site("north"))
        assert found["connected"] and found["running"] and found["pid"] == demo.agents["north"].pid
        assert found["last_heartbeat"] and found["last_answer"] and found["active_study"] == "local"
        assert 7.0 < found["epsilon_next"] < 10.0
        assert SiteMonitor(demo.site("north")).report().health["ok"]
        address = f"127.0.0.1:{find_free_port()}"
        demo.agents["page"] = start_taciturn(
            demo.root / "page.txt", "federation", "serve", str(demo.run), "--listen", address
        )
        until(demo, lambda: asked(f"http://{address}/health")[0] == 200)
        status, text = asked(f"http://{address}/metrics")
        assert status == 200 and "taciturn_coordinator_sites_connected 2\n" in text
        assert asked(f"http://{address}/api/now")[0] == 401

        demo.agents["north"].send_signal(signal.SIGKILL)
        demo.agents["north"].wait()
        assert not site_status(demo.site("north"))["connected"], "at once: the lock goes with the process"
        assert SiteMonitor(demo.site("north")).report().health["reason"] == "the agent is not running"
        until(demo, lambda: CoordinatorMonitor(demo.run).report().health["sites_connected"] == 1)
        demo.start_agent("north")
        until(demo, lambda: bool(site_status(demo.site("north"))["connected"]))
        until(demo, lambda: CoordinatorMonitor(demo.run).report().health["sites_connected"] == 2)
    lines = syslog.lines()
    syslog.socket.close()
    assert [line["event"] for line in lines[:4]] == ["start", "connected", "invitation", "departure"]
    assert {line["party"] for line in lines} == {"north"}
    assert any(line["event"] == "departure" and line.get("round") == 1 for line in lines)
    assert "INFO connected to the coordinator" in log.read_text()
    assert (demo.root / "north.txt").read_text().count("connected to the coordinator") <= 2  # of the second start alone
    status = json.loads((demo.run / "checkpoint" / "status.json").read_text())
    assert status["dropped"] == 0 and status["restarts"] == 0
