"""Health, metrics and page: what they say, to whom, and that the program which serves them holds nothing."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from taciturn.dashboard.monitor_server import bind_monitor
from taciturn.dashboard.monitoring import CoordinatorMonitor, Metric, SiteMonitor, exposition
from taciturn.errors import InputError
from taciturn.federation.messages import digest
from taciturn.federation.status import AGENT_LOCK, STATUS_FILE, AgentStatus, CoordinatorStatus, publish_status
from taciturn.privacy.budget import BudgetLedger
from tests.browsers import CHROMIUM
from tests.cli.helpers import COMMAND, PATIENCE, environment, taciturn
from tests.federation.helpers import Federation, Local, answered, conducted, invite, question, refused

LINE = re.compile(r'[a-z_]+(\{[a-z]+="[a-z ]+"(,[a-z]+="[a-z ]+")*\})? (\d+(\.\d+)?(e-?\d+)?|\+Inf)')


@contextmanager
def at_work(folder: Path, life: AgentStatus | CoordinatorStatus, lock: str = AGENT_LOCK) -> Iterator[None]:
    """A process that holds the lock and writes the status file."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / lock).open("w") as file, publish_status(life, folder / STATUS_FILE):
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def now() -> AgentStatus:
    return AgentStatus(connected=time.time(), heartbeat=time.time(), question=time.time(), answer=time.time())


@pytest.fixture
def busy(federation: Federation) -> Federation:
    """North has answered two rounds, and refused one."""
    with federation.agent("north") as agent:
        invite(agent, federation)
        for t in (1, 2):
            answered(agent, question(federation, t))
        refused(agent, question(federation, 2, shift=1.0))
    return federation


def test_health_says_why_not(federation: Federation) -> None:
    watch, state = SiteMonitor(federation.file("north")), federation.site("north").state
    assert watch.report().health["reason"] == "the agent is not running"
    for life, reason in (
        (now(), ""),
        (AgentStatus(), "not connected to the coordinator"),
        (AgentStatus(connected=1.0, heartbeat=time.time() - 60), "the engine does not respond"),
        (AgentStatus(connected=1.0, heartbeat=time.time() - 60, question=time.time()), ""),  # it works on an answer
    ):
        with at_work(state, life):
            found = watch.report()
        assert (found.health["ok"], found.health["reason"]) == (not reason, reason)
        assert f'taciturn_site_healthy{{site="north"}} {int(not reason)}' in found.metrics
    assert watch.report().health["reason"] == "the agent is not running"


def test_metrics_are_prometheus_text_of_counts_and_budget(busy: Federation) -> None:
    with at_work(busy.site("north").state, now()):
        text = SiteMonitor(busy.file("north")).report().metrics
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert text.endswith("\n") and all(LINE.fullmatch(line) for line in lines), lines
    typed = re.findall(r"# TYPE (\w+) (gauge|counter)\n", text)
    assert {re.split(r"[ {]", line)[0] for line in lines} == {name for name, _ in typed}
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in typed)
    values = dict(line.rsplit(" ", 1) for line in lines)
    assert values['taciturn_site_departures_total{site="north",kind="answer"}'] == "2"
    assert values['taciturn_site_departures_total{site="north",kind="refusal"}'] == "1"
    assert float(values['taciturn_site_budget_epsilon{site="north",part="total"}']) == 3.0
    used, fits = (
        float(values[f'taciturn_site_budget_epsilon{{site="north",part="{part}"}}']) for part in ("used", "next")
    )
    ledger = busy.site("north").ledger
    account = BudgetLedger.open(ledger).state()
    assert used > 0 and used + fits > 3.0 and fits == pytest.approx(account.epsilon_next)
    shown = taciturn("federation", "site", "status", busy.file("north")).stdout
    assert account.room in shown and account.room in taciturn("ledger", ledger).stdout


def test_monitors_hear_nothing_of_times_or_records(busy: Federation) -> None:
    """How long an answer took depends on records: neither health nor metrics have a time in them."""
    quick, slow = now(), now()
    slow.question, slow.answer, slow.heartbeat = time.time() - 20, time.time() - 1, time.time() - 20
    found = []
    for life in (quick, slow):
        with at_work(busy.site("north").state, life):
            vitals = SiteMonitor(busy.file("north")).report()
        found.append((vitals.health, vitals.metrics))
    assert found[0] == found[1]
    assert not any(word in found[0][1] for word in ("second", "time", "record_", "rows", "loss"))


def test_the_page_has_what_left_with_its_event(busy: Federation) -> None:
    with at_work(busy.site("north").state, now()):
        page = SiteMonitor(busy.file("north")).report().page
    rows = [row.cells for row in page.rows]
    assert [row[1] for row in rows] == ["refusal", "answer", "answer", "ready"]
    assert [row[2] for row in rows] == ["–", "2", "1", "–"]
    uploads = {row["upload"]: row for row in busy.released("north")}
    assert {row[4] for row in rows[1:3]} == set(uploads)
    assert all("gaussian" in row[5] for row in rows[1:3]) and rows[0][5] == "–"
    assert all(row.ok for row in page.rows) and page.meter is not None and 0 < page.meter.share < 1


def test_an_upload_without_an_event_is_marked(busy: Federation) -> None:
    watch = SiteMonitor(busy.file("north"))
    watch.report()
    with busy.agent("north") as agent:
        agent.journal.record_departure("0" * 32, "answer", 9, b"made up")
        agent.journal.settle_departure(digest(b"made up"), "left")
    row = watch.report().page.rows[0]
    assert row.cells[5] == "NOT IN THE LEDGER" and not row.ok


def test_a_coordinators_vitals(federation: Federation) -> None:
    study = federation.coordinator()
    watch, checkpoints = CoordinatorMonitor(federation.run.path), federation.run.checkpoints
    assert watch.report().health["reason"] == "the command is not running"
    life = CoordinatorStatus(
        listening=time.time(), heartbeat=time.time(), wanted=3, quorum=2, round=2, rounds=4, bytes_up=1234567
    )
    with at_work(checkpoints, life, "lock"):
        assert watch.report().health["reason"] == "0 sites are connected, and 2 must answer"
    life.sites = {"north": time.time(), "west": time.time()}
    with at_work(checkpoints, life, "lock"):
        found = watch.report()
    state = {"running": True, "finished": False, "round": 2, "sites_connected": 2}
    assert found.health == {"ok": True, "role": "coordinator", "reason": "", **state}
    assert 'taciturn_coordinator_bytes_total{direction="up"} 1234567\n' in found.metrics
    assert [row.cells[0] for row in found.page.rows] == ["north", "west"]
    with federation.agents() as agents:
        conducted(study, Local(agents))
    found = watch.report()
    assert found.health["ok"] and found.health["finished"] and found.page.state == "the study has ended"


def test_numbers_keep_their_digits() -> None:
    text = exposition([Metric("m", "h", {"": 12345678.0, 'a="b"': 0.1, 'a="c"': float("inf"), 'a="d"': True})])
    assert text == '# HELP m h\n# TYPE m gauge\nm 12345678\nm{a="b"} 0.1\nm{a="c"} +Inf\nm{a="d"} 1\n'


@pytest.mark.parametrize("listen", ["9464", ":9464", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:http"])
def test_an_address_that_is_none_is_one_sentence(federation: Federation, listen: str) -> None:
    with pytest.raises(InputError, match=r"listen is .*127\.0\.0\.1:9464"):
        bind_monitor(SiteMonitor(federation.file("north")), listen, None)


class Served:
    """`site serve` as a process."""

    def __init__(self, site: Path, *words: str, env: dict[str, str] | None = None) -> None:
        command = [*COMMAND, "federation", "site", "serve", str(site), *words]
        self.process = subprocess.Popen(
            command, env=env or environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.lines = [self.process.stdout.readline().strip() for _ in range(3)]
        self.page = self.lines[0].split()[1]
        self.base = self.page.partition("/?")[0]
        self.until(lambda: self.ask("/health")[0] in (200, 401, 503))

    def ask(self, path: str, **headers: str) -> tuple[int, str]:
        asked = urllib.request.Request(self.base + path, headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=5) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def until(self, true: Callable[[], bool], seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end and self.process.poll() is None, self.lines
            time.sleep(0.05)

    def stop(self) -> str:
        """What it said on the way."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def child(self) -> int:
        """The program that talks to visitors."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"monitor_process" in path.read_bytes() and str(self.process.pid) in _ancestors(
                    int(path.parent.name)
                ):
                    return int(path.parent.name)
            except OSError:
                continue
        raise AssertionError("there is none")


def _ancestors(pid: int) -> list[str]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(str(pid))
    return found


@pytest.mark.linux
def test_the_command_answers_only_those_with_access(busy: Federation) -> None:
    state = busy.site("north").state
    with Served(busy.file("north"), "--listen", "127.0.0.1:0", env=environment(TACITURN_PAGE_TOKEN="sesame")) as served:
        assert served.page.endswith("/?token=sesame")
        with at_work(state, now()):
            served.until(lambda: served.ask("/health")[0] == 200)
            status, text = served.ask("/metrics")
            assert status == 200 and 'taciturn_site_connected{site="north"} 1' in text
            for path in ("/", "/api/now", "/monitor.js", "/?token=wrong"):
                assert served.ask(path)[0] == 401, path
            page = json.loads(served.ask("/api/now?token=sesame")[1])
            assert page["state"] == "connected to the coordinator" and len(page["rows"]) == 4
            assert served.ask("/?token=sesame")[1].startswith("<!doctype html>")
            assert served.ask("/health", Host="evil.example")[0] == 421
            asked = urllib.request.Request(f"{served.base}/health")
            with urllib.request.urlopen(asked, timeout=5) as found:
                assert "set-cookie" not in {name.lower() for name in found.headers}, "who asks for health gets no token"
            child = served.child()
            if os.geteuid() == 0:  # who may look at it
                opened = [str(link.readlink()) for link in Path(f"/proc/{child}/fd").iterdir()]
                assert not any(str(busy.root) in one for one in opened)
                assert not Path(f"/proc/{child}/root{busy.root}").exists(), (
                    "the program that serves sees no file of the site"
                )
                assert Path(f"/proc/{child}/net/route").read_text().count("\n") <= 1, "it has no network of its own"
        served.until(lambda: served.ask("/health")[0] == 503)
        assert json.loads(served.ask("/health")[1])["reason"] == "the agent is not running"
        assert served.stop() == ""


@pytest.mark.linux
def test_another_address_is_warned_about_and_needs_the_token(busy: Federation) -> None:
    with Served(busy.file("north"), "--listen", "0.0.0.0:0", "--token", "sesame") as served:
        served.base = re.sub(r"//[^:/]+", "//127.0.0.1", served.base)
        served.until(lambda: served.ask("/health")[0] == 401)
        assert served.ask("/metrics")[0] == 401
        served.until(lambda: served.ask("/health?token=sesame")[0] == 503)
        assert "warning: 0.0.0.0 is not loopback" in served.stop()


@pytest.mark.linux
@pytest.mark.browser
def test_the_page_in_a_browser_shows_what_leaves(busy: Federation) -> None:
    play = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine: install one to see the page in it")
    with Served(busy.file("north"), "--listen", "127.0.0.1:0") as served:
        complaints: list[str] = []
        with play.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            page: Any = browser.new_page(viewport={"width": 1440, "height": 900})
            page.on("console", lambda said: complaints.append(said.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(served.page)
            page.wait_for_selector("#news.live")
            assert page.locator("#state").inner_text() == "the agent is not running"
            assert page.locator("#lines tr").count() == 4
            with busy.agent("north") as agent:
                invite(agent, busy)
                answered(agent, question(busy, 3))
            page.wait_for_selector("#lines tr:nth-child(6)")
            assert page.locator("#lines tr").first.locator("td").nth(2).inner_text() == "3"
            with at_work(busy.site("north").state, now()):
                page.wait_for_selector("#state.good")
            assert "of 3 used" in page.locator("#used").inner_text()
            browser.close()
        served.stop()
        assert complaints == []
