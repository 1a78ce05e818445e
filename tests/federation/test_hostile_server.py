"""A server with the hub's certificate that does what it likes, in front of real sites.

It builds its own messages (see `adversary`). It can refuse to carry; it gets no record, no journal, no key and no
answer that the coordinator did not ask for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taciturn.federation import messages as wire
from taciturn.federation.agreement import derive_agreement
from taciturn.federation.identity import Identity
from taciturn.federation.journal import Journal
from taciturn.federation.local_cluster import find_free_port
from taciturn.federation.messages import Answer, Invitation, Question, Ready, Refusal, Reply, RoundRequest
from taciturn.federation.policy import read_site
from taciturn.federation.seal import HANDSHAKE, QUESTION, Header, open_answer, reply_header, seal_question
from taciturn.federation.terms import read_terms
from tests.cli.helpers import PATIENCE
from tests.federation.helpers import EXPERIMENT

pytest.importorskip("nvflare")

from tests.federation.adversary import (
    PING,
    READY,
    TOPICS,
    Client,
    Server,
    Stream,
    Tables,
    descendants,
    frame,
    giant,
    hello,
    message,
    peak_memory,
    until,
)

pytestmark = pytest.mark.federation

SITES = dict.fromkeys(("north", "south", "west"), 20)
STUDY = {"rounds": 20_000, "noise_multiplier": None, "total_epsilon": 3.0}
MEMORY = 300 << 20
FORGED: list[dict[str, Any]] = [{}, {"from": "server"}, {"conn_url": "tcp://127.0.0.1:1"}, {"route": [["x", 1.0]]}]


class Hostile:
    """A server with the hub's certificate, in front of real sites. It has the coordinator's key only where said."""

    def __init__(self, files: Tables) -> None:
        self.files = files
        self.server = Server(files.address, files.kits / "server")
        self.terms = read_terms(files.terms)
        self.coordinator = Identity.open(files.identity)

    def stream(self, site: str = "north") -> Stream:
        found: Stream = until(lambda: self.server.of(site), PATIENCE, f"{site}'s connection")
        return found

    def seal(self, body: Question, site: str = "north", by: Identity | None = None) -> bytes:
        version = HANDSHAKE if isinstance(body, Invitation) else 1
        header = Header(version, QUESTION, bytes.fromhex(self.terms.digest), bytes.fromhex(body.experiment), site)
        return seal_question(wire.encode(body), header, by or self.coordinator, self.terms.identities[site])

    def ask(self, sealed: bytes, site: str = "north", seconds: float = PATIENCE) -> Reply | None:
        """What a site answers, opened with the coordinator's key; None where it is silent."""
        stream = self.stream(site)
        before = len(stream.messages())
        stream.send(message("server", site, sealed))
        end = time.monotonic() + seconds
        while len(stream.messages()) == before and time.monotonic() < end:
            time.sleep(0.01)
        if len(stream.messages()) == before:
            return None
        answer = stream.messages()[before]
        sender = self.terms.identities[site]
        return wire.decode_reply(
            open_answer(answer, self.coordinator, sender, 1 << 20, reply_header(sealed)).body, 1 << 20
        )

    def departures(self, site: str = "north") -> int:
        with Journal.read(read_site(self.files.site(site)).state) as journal:
            return len(journal.departures())


@pytest.fixture(scope="module")
def hostile(on_disk: Path) -> Iterator[Hostile]:
    files = Tables(on_disk / "federation", "", SITES, STUDY, {"quorum": 2})
    found = None
    try:
        files.prepare()
        found = Hostile(files)
        for site in ("north", "south"):
            files.start_agent(site)
        for site in ("north", "south"):
            found.stream(site)
            digest = found.terms.digest
            assert isinstance(found.ask(found.seal(Invitation(EXPERIMENT, digest), site), site), Ready)
        yield found
        assert all(process.poll() is None for process in files.agents.values())
    finally:
        if found is not None:
            found.server.stop()
        files.stop()


def round_of(hostile: Hostile, t: int, shift: float = 0.0, base: int = 0) -> RoundRequest:
    return RoundRequest(EXPERIMENT, t, dict.fromkeys(SITES, base), derive_agreement(hostile.terms).zero + shift)


def test_a_server_that_sends_what_the_engine_would_obey_gets_nothing(hostile: Hostile) -> None:
    """Without the header that asks for authorisation, as the server, an administrator or the site itself."""
    table = (hostile.files.root / "north" / "table.csv").read_bytes()
    stream, before = hostile.stream(), hostile.departures()
    came = len(stream.came)
    for number, (channel, topic) in enumerate(TOPICS):
        more: dict[str, Any] = {
            "channel": channel,
            "topic": topic,
            "req_id": "7",
            "reply_expected": True,
            "msg_type": "req",
        }
        more |= FORGED[number % 4]
        origin = ("server", "admin", "north", "south")[number % 4]
        payload = f"head {hostile.files.root}/north/table.csv".encode()
        stream.send(message(origin, ("north", "server", "north.state")[number % 3], payload, **more))
    answer = hostile.ask(hostile.seal(round_of(hostile, 1)))
    assert isinstance(answer, Answer)  # it read all of them before
    assert len(stream.came) == came + 1 and not any(table[:40] in data for data in stream.came)
    assert hostile.departures() == before + 1
    for name in ("identity.key", "patients.ledger", "site.toml", "state/journal.sqlite"):
        assert (hostile.files.root / "north" / name).exists()


def test_a_server_does_not_ask_in_the_coordinators_name(hostile: Hostile) -> None:
    """It has the hub's certificate and knows all that is public; the coordinator's key it has not."""
    before, south = hostile.departures(), Identity.open(hostile.files.root / "south" / "identity.key")
    forged = {
        "with another site's key": hostile.seal(round_of(hostile, 5), by=south),
        "another site's question": hostile.seal(round_of(hostile, 5), "south"),
        "in the open": wire.encode(round_of(hostile, 5)),
        "cut": hostile.seal(round_of(hostile, 5))[:-1],
        "noise": os.urandom(700),
        "nothing": b"",
    }
    for kind, sealed in forged.items():
        assert hostile.ask(sealed, seconds=0.3) is None, kind
    assert hostile.departures() == before


def test_a_server_that_replays_mixes_and_delays_gets_the_same_bytes_and_no_more(hostile: Hostile) -> None:
    second, third = hostile.seal(round_of(hostile, 2, 0.1)), hostile.seal(round_of(hostile, 3, 0.2))
    first = hostile.ask(second)
    assert isinstance(first, Answer)
    charged = len(hostile.files.charges("north"))
    again = hostile.ask(second)
    assert isinstance(again, Answer) and again.z.tobytes() == first.z.tobytes()
    assert len(hostile.files.charges("north")) == charged
    assert isinstance(hostile.ask(hostile.seal(round_of(hostile, 2, 0.3))), Refusal)  # the coordinator itself forks
    assert isinstance(hostile.ask(third), Answer)
    assert isinstance(hostile.ask(second), Refusal)  # delayed: it is stale
    assert hostile.ask(third, "south", 0.3) is None  # handed to another site
    assert len(hostile.files.charges("north")) == charged + 1


def test_a_giant_message_from_the_server_costs_a_site_no_memory(hostile: Hostile) -> None:
    stream = hostile.stream()
    stream.send(giant("server", "north", 512_000_000))
    until(lambda: not stream.open, PATIENCE, "the end of the connection")
    hostile.stream()  # it connects again
    for pid in descendants(hostile.files.agents["north"].pid):
        assert peak_memory(pid) < MEMORY


@pytest.mark.parametrize(
    "data",
    [hello("server", READY), hello("other", READY), hello("server"), frame(2), b"short", frame(PING, app=0)],
    ids=["again", "another name", "hello", "fragment", "short", "pings"],
)
def test_a_frame_of_the_servers_that_no_study_needs_ends_the_connection(hostile: Hostile, data: bytes) -> None:
    stream = hostile.stream()
    stream.send(data, data)
    until(lambda: not stream.open, 40.0, "the end of the connection")
    assert hostile.stream() is not stream


def test_floods_from_the_server_do_not_end_a_vault(hostile: Hostile) -> None:
    stream, genuine = hostile.stream(), hostile.seal(round_of(hostile, 6, 0.1))
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        changed = bytearray(genuine)
        changed[-1 - int(time.monotonic() * 1e6) % 300] ^= 1
        stream.send(message("server", "north", bytes(changed)))
    engine = descendants(hostile.files.agents["north"].pid)[-1]
    assert len(list(Path(f"/proc/{engine}/task").iterdir())) < 60  # NVFlare's streams leave a thread for every message
    until(stream.out.empty, PATIENCE, "reading all of it")
    answer = hostile.ask(genuine)
    assert isinstance(answer, Answer)
    for pid in descendants(hostile.files.agents["north"].pid):
        assert peak_memory(pid) < MEMORY


def test_a_sites_certificate_serves_nobody(hostile: Hostile) -> None:
    """South listens where north's kit leads; the hub's own certificate is taken there, and south's is not."""
    import grpc

    for kit, taken in (("south", False), ("server", True)):
        server = Server(f"localhost:{(port := find_free_port())}", hostile.files.kits / kit)
        client = Client(f"localhost:{port}", hostile.files.kits / "north")
        client.send(hello("north"))
        if taken:
            until(lambda: client.name == "server", what="the handshake")  # noqa: B023
        else:
            until(lambda: not client.open, 40.0, "the end of the connection")  # noqa: B023
            assert server.streams == [] and client.call.code() == grpc.StatusCode.UNAVAILABLE
        client.close()
        server.stop()


@pytest.mark.parametrize("name", ["other", "server.child", "north"])
def test_a_server_that_calls_itself_something_else_is_left(hostile: Hostile, name: str) -> None:
    honest, first = hostile.server.greeting, hostile.stream()
    count = len(hostile.server.streams)
    hostile.server.greeting = lambda stream: [hello(name, READY)]
    try:
        first.send(frame(2))
        until(lambda: len(hostile.server.streams) > count, 60.0, "the next connection")
        new = hostile.server.streams[count]
        until(lambda: not new.open, 20.0, "the end of the connection")
    finally:
        hostile.server.greeting = honest
    hostile.stream()
