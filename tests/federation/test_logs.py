"""Logs are rotated and private; audit records are JSON lines in syslog; neither can stop the work."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taciturn.errors import InputError
from taciturn.federation import logs
from taciturn.federation import messages as wire
from taciturn.federation.confinement import start
from taciturn.federation.identity import Identity
from taciturn.federation.logs import audited, check_audit, logged
from taciturn.federation.messages import Invitation, RoundRequest
from taciturn.federation.policy import read_site
from taciturn.federation.release import ReleaseGate
from taciturn.federation.seal import HANDSHAKE, QUESTION, Header, seal_question
from taciturn.federation.vault import Vault
from tests.federation.helpers import EXPERIMENT, Federation, question
from tests.federation.stations import CONNECTS, vault_with, whole_federation


class Syslog:
    """A syslog that stores what it receives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(5.0)

    def lines(self) -> list[dict[str, Any]]:
        """Return all records received so far."""
        found: list[dict[str, Any]] = []
        self.socket.setblocking(False)
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                return found
            priority, ident, body = re.fullmatch(rb"<(\d+)>(taciturn: )(\{.*\})", data, re.DOTALL).groups()  # type: ignore[union-attr]
            assert priority == b"14" and ident  # user.info
            found.append(json.loads(body))


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[Syslog]:
    found = Syslog(tmp_path / "log")
    yield found
    found.socket.close()


def test_lines_go_to_a_private_file_that_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SIZE", 2000)
    file, shown = tmp_path / "north.log", list[str]()
    with logged(file, shown.append) as say:
        for number in range(500):
            say(f"line {number} of {{100%}} [bold]")
    files = sorted(tmp_path.iterdir())
    assert len(files) == 10 and not shown
    assert all(one.stat().st_size <= 2000 and one.stat().st_mode & 0o777 == 0o600 for one in files)
    last = file.read_text().splitlines()[-1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO line 499 of \{100%\} \[bold\]", last)
    assert not logging.getLogger("taciturn.federation").handlers


def test_without_a_file_lines_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    with logged(None, shown.append) as log_line:
        log_line("the engine is gone")
        logging.getLogger("taciturn.federation").warning("and %s", "back")
    assert shown == ["the engine is gone", "and back"]
    assert capsys.readouterr() == ("", "")


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logged(Path("/dev/full"), print) as say:
        for _ in range(3):
            say("a line")
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "No space left on device" in said
    with pytest.raises(InputError, match="cannot write the log"), logged(tmp_path / "no" / "file", print):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="cannot write the log"), logged(tmp_path / "link", print):
        pass


def test_audit_lines_are_json_in_syslog(syslog: Syslog) -> None:
    with audited(f"syslog:{syslog.path}", "north") as note:
        note("refusal", reason='two\nlines and "quotes" \x00 é')
        note("stop", dropped=3)
    refusal, stop = syslog.lines()
    assert refusal["event"] == "refusal" and refusal["party"] == "north"
    assert refusal["reason"] == 'two\nlines and "quotes" \x00 é'
    assert stop["dropped"] == 3 and time.strptime(stop["time"], "%Y-%m-%dT%H:%M:%S%z")


def test_a_syslog_that_is_stuck_or_missing_stops_nothing(
    syslog: Syslog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "SECONDS", 0.05)
    with audited(f"syslog:{syslog.path}", "north") as note:
        began = time.monotonic()
        for _ in range(30):  # the queue of a Unix socket holds about ten
            note("departure", bytes=1)
        assert time.monotonic() - began < 10.0
        syslog.socket.close()
        syslog.path.unlink()
        note("departure", bytes=2)
    said = capsys.readouterr().err
    assert said.count("is lost") == 1 and "Traceback" not in said


@pytest.mark.parametrize("where", ["192.0.2.1:514", "udp://x", "syslog:relative", "file:/tmp/x", 3])
def test_an_audit_goes_to_no_network(where: object) -> None:
    with pytest.raises(InputError, match="opens no network connection"):
        check_audit("audit", where)


def test_an_audit_that_nobody_takes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no syslog listens"), audited(f"syslog:{tmp_path / 'none'}", "north"):
        pass


def test_a_site_asks_for_an_audit_in_its_file(federation: Federation) -> None:
    assert read_site(federation.file("north")).audit == ""
    federation.change("north", {"logging": {"audit": "syslog"}})
    assert read_site(federation.file("north")).audit == "syslog"
    federation.change("north", {"logging": {"audit": "192.0.2.1:514"}})
    with pytest.raises(InputError, match=r"\[logging\] audit is '192.0.2.1:514'"):
        read_site(federation.file("north"))


def test_everything_that_leaves_has_an_audit_line(tmp_path: Path, syslog: Syslog) -> None:
    federation, coordinator = whole_federation(tmp_path)
    with federation.agent("north") as agent, audited(f"syslog:{syslog.path}", "north") as note:
        identity = Identity.open(federation.site("north").identity)
        vault = Vault(federation.file("north"), agent, identity, ReleaseGate(agent.journal), audit=note)

        def ask(message: Invitation | RoundRequest, version: int = HANDSHAKE) -> None:
            terms = bytes.fromhex(federation.terms.digest)
            header = Header(version, QUESTION, terms, bytes.fromhex(message.experiment), "north")
            assert vault.answer(seal_question(wire.encode(message), header, coordinator, identity.public))

        ask(Invitation(EXPERIMENT, federation.terms.digest))
        ask(question(federation, 1), 1)
        ask(question(federation, 1, shift=1.0), 1)  # a fork
        for _ in range(5):
            assert vault.answer(os.urandom(100)) is None
        departures = agent.journal.departures()
    lines = syslog.lines()
    names = ["invitation", "departure", "departure", "refusal", "departure", "dropped", "dropped", "dropped"]
    assert [line["event"] for line in lines] == names
    left = [line for line in lines if line["event"] == "departure"]
    assert [(line["sha256"], line["bytes"]) for line in left] == [(one.sha256, one.bytes) for one in departures]
    assert [line["kind"] for line in left] == ["ready", "answer", "refusal"]
    assert left[1]["round"] == 1 and "fork" in lines[3]["reason"]
    assert [line["messages"] for line in lines[5:]] == [1, 2, 4]


def test_start_connection_and_stop_have_audit_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syslog: Syslog
) -> None:
    federation, _ = whole_federation(tmp_path)
    with (
        audited(f"syslog:{syslog.path}", "north") as note,
        vault_with(federation, CONNECTS, monkeypatch, note) as found,
    ):
        found.until(lambda: "connected to the coordinator" in found.said)
    lines = syslog.lines()
    assert [line["event"] for line in lines] == ["start", "connected", "stop"]
    assert lines[0]["pid"] == os.getpid()


def test_an_engines_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long log is renamed when an engine starts; during its life an engine can write at most 64 MB."""
    log = tmp_path / "engine.log"
    monkeypatch.setattr(start, "_LOG_BYTES", 100)
    for name in ("first", "second", "third"):
        log.write_text(name * 50)
        os.close(start._open_log(log))
        assert log.read_text() == "" and (tmp_path / "engine.log.1").read_text() == name * 50
    assert sorted(path.name for path in tmp_path.iterdir()) == ["engine.log", "engine.log.1"]
