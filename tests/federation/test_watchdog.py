"""An engine that hangs, dies, never listens or never connects is restarted, and the operator is informed."""

from __future__ import annotations

from pathlib import Path

import pytest

from taciturn.federation import coordinator_process, engine, vault
from taciturn.federation.coordinator import STOPPED
from taciturn.federation.coordinator_process import CoordinatorProcess
from taciturn.federation.engine import hub_address
from taciturn.federation.kits import HUB
from taciturn.federation.logs import logged
from taciturn.federation.site_operations import site_status
from tests.federation.stations import (
    FALLS,
    HANGS,
    HEAD,
    LISTENS_AND_HANGS,
    NEVER_CONNECTS,
    Other,
    vault_with,
    whole_federation,
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only briefly for a hanging engine to end."""
    monkeypatch.setattr(engine, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(coordinator_process, "shield", lambda: None)


@pytest.mark.parametrize(
    ("code", "limit", "words"),
    [
        (HANGS, "SILENCE_SECONDS", "no heartbeat for 0.3 s"),
        (NEVER_CONNECTS, "DISCONNECTED_SECONDS", "not connected to the coordinator for 0.3 s"),
        (FALLS, None, "the other end has closed the link"),
    ],
)
def test_a_site_starts_a_bad_engine_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, limit: str | None, words: str
) -> None:
    federation, _ = whole_federation(tmp_path)
    if limit is not None:
        monkeypatch.setattr(vault, limit, 0.3)
    with vault_with(federation, code, monkeypatch) as found:
        found.until(lambda: f"restarting the engine: {words}" in found.said)
        found.until(lambda: site_status(federation.file("north"))["engine_restarts"] >= 1)
        assert not site_status(federation.file("north"))["connected"]
    assert found.said[0] == "north: the agent is up; Ctrl-C stops it"


def test_an_engine_cannot_fill_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine may report any number of connections and disconnections."""
    federation, _ = whole_federation(tmp_path)
    noted: list[str] = []

    def note(event: str, /, **facts: object) -> None:
        noted.append(event)

    flaps = HEAD + "for i in range(2001): say(Kind.DOWN if i % 2 else Kind.UP, 'server')\n"
    with vault_with(federation, flaps + "while True: say(Kind.BEAT); time.sleep(0.1)", monkeypatch, note) as found:
        found.until(lambda: site_status(federation.file("north"))["connected"])
    assert sum("connected" in line for line in found.said) <= 21
    assert noted.count("connected") + noted.count("disconnected") <= 21


@pytest.mark.parametrize(
    ("code", "limit", "words"),
    [
        (HANGS, "LISTEN_SECONDS", "after 0.3 s"),
        (LISTENS_AND_HANGS, "SILENCE_SECONDS", "no heartbeat for 0.3 s"),
        (FALLS, None, "the other end has closed the link"),
    ],
)
def test_a_coordinator_starts_a_bad_hub_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, limit: str | None, words: str
) -> None:
    federation, identity = whole_federation(tmp_path)
    if limit is not None:
        monkeypatch.setattr(coordinator_process, limit, 0.3)
    terms, said = federation.terms, list[str]()
    address = hub_address(terms.host, terms.port)
    hub = Other(HUB, [], tmp_path / "kits" / HUB, address, 1 << 20, tmp_path / "hub.log", code=code)
    study = CoordinatorProcess(
        terms, hub, identity, federation.coordinator(), lambda: len(_gone(said)) >= 2, lambda line: None
    )
    with logged(None, said.append):
        assert study.run() == STOPPED
    assert len(_gone(said)) == 2 and all(words in line for line in _gone(said))
    assert study.status.restarts == 2


def _gone(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith("restarting the engine")]
