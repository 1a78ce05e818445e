"""Attacks on real processes by a hostile server, a hostile site, an outsider and a local user.

They build their own messages (see `adversary`), so that no honest code of the engine's stands between them and a site.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taciturn.federation import messages as wire
from taciturn.federation.agreement import derive_agreement
from taciturn.federation.identity import Identity
from taciturn.federation.kits import provision
from taciturn.federation.messages import Invitation, Refusal, RoundRequest
from taciturn.federation.policy import read_site
from taciturn.federation.seal import QUESTION, Header, open_question, reply_header, seal_answer, seal_question
from taciturn.federation.terms import read_terms
from taciturn.runs.folder import read_lines

pytest.importorskip("nvflare")

from taciturn.federation.nvflare.cell import HANDSHAKE_SECONDS
from tests.cli.helpers import PATIENCE
from tests.federation.adversary import (
    DATA,
    PING,
    READY,
    TOPICS,
    Client,
    Stream,
    Tables,
    carrier_of,
    descendants,
    forged_kit,
    frame,
    giant,
    half_open,
    hello,
    message,
    parsed,
    peak_memory,
    sockets_of,
    until,
)

pytestmark = pytest.mark.federation

HONEST, EVIL = ("north", "west"), ("south", "east", "mars")
SITES = dict.fromkeys((*HONEST, *EVIL), 20)
STUDY = {
    "trust": "agents",
    "rounds": 20_000,
    "noise_multiplier": None,
    "total_epsilon": 3.0,
}  # more rounds than will be played
RUNNING = {"quorum": 2, "answer_seconds": 2, "ready_seconds": 20}
MEMORY = 300 << 20
SECRET = "a-password-in-the-environment"


@pytest.fixture(scope="module")
def study(on_disk: Path) -> Iterator[Tables]:
    """A study under way with two honest sites; the others are hostile, and south has a kit that was renewed."""
    found = Tables(on_disk / "federation", "", SITES, STUDY, RUNNING)
    try:
        terms = found.prepare()
        shutil.copytree(found.kits / "south", found.root / "retired")
        provision(terms, found.kits, ["south"])
        found.start_agent("north", TACITURN_PASSWORD=SECRET)
        found.start_slow_agent("west")
        found.start_coordinator(TACITURN_PASSWORD=SECRET)
        found.wait_for_round(1)
        yield found
        goes_on(found)
    finally:
        found.stop()


def goes_on(study: Tables, rounds: int = 3, seconds: float = PATIENCE) -> None:
    """Both honest sites answer some more rounds."""
    begin = study.rounds_done
    until(lambda: study.rounds_done >= begin + rounds, seconds, "a few rounds")
    last = list(read_lines(study.run / "rounds.jsonl"))[-1]
    assert {"north", "west"} <= set(last["answered"])
    assert "PRIVACY" not in said(study, "north") and "dropped" not in said(study, "north")


def said(study: Tables, who: str) -> str:
    return (study.root / f"{who}.txt").read_text(errors="replace")


USED: dict[str, float] = {}  # when a hostile site last connected


@contextlib.contextmanager
def connected(study: Tables, name: str = "{}", site: str = "") -> Iterator[tuple[str, Client]]:
    """A hostile site with the certificate it was given; two streams of one must not follow at once."""
    site = site or min(EVIL, key=lambda each: USED.get(each, 0.0))
    time.sleep(max(0.0, USED.get(site, 0.0) + 0.6 - time.monotonic()))
    found = Client(study.address, study.kits / site)
    try:
        found.send(hello(name.format(site)))
        until(lambda: found.name or not found.open, what="the handshake")
        USED[site] = time.monotonic()
        yield site, found
    finally:
        found.close()


def read_to_the_end(stream: Stream) -> None:
    """The other end has read all that was sent: the last of it made it hang up."""
    assert stream.open
    stream.send(frame(2))
    until(lambda: not stream.open, PATIENCE, "the end of the connection")


def only_questions(study: Tables, stream: Stream, site: str) -> None:
    """All that came is the hub's handshake and what the coordinator sealed for this very site."""
    own, terms = Identity.open(study.root / site / "identity.key"), read_terms(study.terms)
    head = {"channel": "taciturn", "topic": "sealed", "origin": "server", "destination": site}
    for data in stream.came:
        kind, headers, payload = parsed(data)
        if kind != READY:
            assert kind == DATA and headers == {f"cn__{name}": value for name, value in head.items()}
            digest = bytes.fromhex(terms.digest)
            opened = open_question(payload, own, terms.coordinator, 1 << 20, site=site, terms=digest)
            assert isinstance(wire.decode_question(opened.body, 1 << 20), (Invitation, RoundRequest))


# ---------------------------------------------------------------------------------------------- a hostile site


def test_a_site_that_sends_what_the_engine_would_obey_reaches_nobody(study: Tables) -> None:
    """Every topic that NVFlare knows, to the hub and through it to another site, with forged headers: no word comes."""
    table = (study.root / "north" / "table.csv").read_bytes()
    with connected(study) as (site, south):
        for number, (channel, topic) in enumerate(TOPICS):
            more = {
                "channel": channel, "topic": topic, "from": ("server", "north", "south")[number % 3], "req_id": "1",
                "reply_expected": True, "msg_type": "req",
            }  # fmt: skip
            origin, destination = (site, "server", "admin")[number % 3], ("north", "server", "north.job")[number % 3]
            south.send(message(origin, destination, f"cat {study.root}/north/table.csv".encode(), **more))
        read_to_the_end(south)
        only_questions(study, south, site)
        assert not any(table[:40] in data for data in south.came)
    goes_on(study)


def test_a_header_more_or_another_one_and_a_message_is_dropped(study: Tables) -> None:
    """Each is from a site that was asked: the coordinator would tell of a message that was let in."""
    headers: list[dict[str, Any]] = [
        *({"conn_url": url} for url in ("grpc://127.0.0.1:1", "tcp://10.0.0.1:8102", "uds:///tmp/x")),
        *({name: "north"} for name in ("from", "to", "origin", "destination", "channel", "topic")),
        *({"origin": "server"}, {"destination": "south"}, {"destination": "server.job"}),
        *({"route": [["north", 1.0]]}, {"msg_type": "reply", "req_id": "1"}, {"reply_expected": True}),
        *({"payload_encoding": "fobs"}, {"encrypted": True}, {"return_code": "ok"}, {"secure": True}),
    ]
    with connected(study) as (site, south):
        until(south.messages, what="an invitation")
        for more in headers:
            head = {"origin": site, "destination": "server"} | more
            south.send(message(str(head.pop("origin")), str(head.pop("destination")), b"let in", **head))
        read_to_the_end(south)
    goes_on(study)
    assert "dropped" not in said(study, "coordinator")


@pytest.mark.parametrize(
    "name",
    ["north", "server", "{}.x", "{}.north", "north.{}", "", "../north", "{}_", "admin_1", "x" * 5000],
    ids=["other", "hub", "child", "child-other", "other-child", "none", "path", "near", "admin", "long"],
)
def test_a_site_has_its_own_name_and_no_other(study: Tables, name: str) -> None:
    with connected(study, name) as (_, south):
        until(lambda: not south.open, 20.0, "the end of the connection")
        assert south.messages() == []
    goes_on(study, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 15,
        b"\xff" * 300,
        frame(2),
        frame(3),
        frame(255),
        frame(READY),
        hello("{}"),
        hello("x.y"),
        frame(PING),
    ],
    ids=["empty", "short", "noise", "fragment", "ack", "unknown", "ready", "again", "child", "pings"],
)
def test_a_frame_that_no_study_needs_ends_its_connection(study: Tables, data: bytes) -> None:
    with connected(study) as (_, south):
        assert south.open
        south.send(data, data)
        until(lambda: not south.open, 20.0, "the end of the connection")
    goes_on(study, 1)


def test_nothing_is_taken_before_a_handshake(study: Tables) -> None:
    time.sleep(0.6)
    south = Client(study.address, study.kits / "south")
    south.send(message("south", "server", b"x"))
    until(lambda: not south.open, 20.0, "the end of the connection")
    assert south.came == []
    USED["south"] = time.monotonic()
    south.close()


def test_a_site_does_not_play_coordinator_towards_another(study: Tables) -> None:
    """South knows every public fact, and seals a round for north with its own key: it does not even arrive."""
    terms, own = read_terms(study.terms), Identity.open(study.root / "south" / "identity.key")
    asked = len(study.charges("north"))
    with connected(study, site="south") as (_, south):
        until(south.messages, what="an invitation")
        header = reply_header(south.messages()[0])
        zero = derive_agreement(terms).zero
        body = wire.encode(RoundRequest(header.experiment.hex(), 99_000, dict.fromkeys(SITES, 0), zero))
        question = Header(1, QUESTION, header.terms, header.experiment, "north")
        sealed = seal_question(body, question, own, terms.identities["north"])
        for origin in ("south", "server"):
            south.send(message(origin, "north", sealed), message(origin, "server", sealed))
        read_to_the_end(south)
        only_questions(study, south, "south")
    goes_on(study)
    assert "stale" not in said(study, "coordinator") and len(study.charges("north")) > asked


def test_a_site_does_not_answer_for_another(study: Tables) -> None:
    """South seals an answer with its own key in the name of north; the hub says whose certificate brought it."""
    terms, own = read_terms(study.terms), Identity.open(study.root / "south" / "identity.key")
    with connected(study, site="south") as (_, south):
        until(south.messages, what="an invitation")
        header = reply_header(south.messages()[0])._replace(site="north")
        forged = seal_answer(
            wire.encode(Refusal(header.experiment.hex(), "north", "x")), header, own, terms.coordinator
        )
        south.send(message("south", "server", forged))
        goes_on(study)
    assert "north does not take part" not in said(study, "coordinator")


def test_a_flood_costs_neither_memory_nor_rounds(study: Tables) -> None:
    """As many answers to a question as it likes, signs of life, and names: the others hardly notice."""
    assert study.coordinator is not None
    hub = carrier_of(study.coordinator.pid)
    with connected(study) as (site, south):
        until(south.messages, what="an invitation")
        head = south.messages()[0][:120]
        begin, end = study.rounds_done, time.monotonic() + 1.5
        while (time.monotonic() < end or study.rounds_done < begin + 3) and south.open:
            south.send(message(site, "server", head + os.urandom(500)))
    for kind in (frame(PING, app=0), hello("south.x", junk="x" * 3000)):
        with connected(study) as (_, south):
            end = time.monotonic() + 0.5
            while time.monotonic() < end and south.open:
                south.send(kind)
    goes_on(study)
    assert peak_memory(hub) < MEMORY
    assert "dropped 16 " not in said(study, "coordinator")  # one answer for a question


@pytest.mark.parametrize("packed", [False, True])
def test_a_giant_message_costs_the_hub_no_memory(study: Tables, packed: bool) -> None:
    """Half a gigabyte, and 50 MB that are 50 kB while they travel."""
    assert study.coordinator is not None
    import grpc

    time.sleep(max(0.0, USED.get("south", 0.0) + 0.6 - time.monotonic()))
    south = Client(study.address, study.kits / "south", grpc.Compression.Gzip if packed else None)
    south.send(hello("south"))
    until(lambda: south.name, what="the handshake")
    south.send(giant("south", "server", 50_000_000 if packed else 500_000_000))
    until(lambda: not south.open, PATIENCE, "the end of the connection")
    south.close()
    USED["south"] = time.monotonic()
    goes_on(study)
    for who in (study.coordinator, study.agents["north"]):
        assert all(peak_memory(pid) < MEMORY for pid in descendants(who.pid))


def test_a_second_stream_of_a_site_ends_its_first_and_nobody_elses(study: Tables) -> None:
    with connected(study, site="south") as (_, first), connected(study, site="south") as (_, second):
        until(lambda: not first.open, 20.0, "the end of the first")
        assert second.open
        until(second.messages, 20.0, "another invitation")  # what the first was asked is lost, and the hub says so
        quick = Client(study.address, study.kits / "south")  # at once: it is turned away
        until(lambda: not quick.open, 20.0, "the end of the third")
        quick.close()
        assert second.open
    goes_on(study)


def test_a_stream_that_says_nothing_is_ended_by_the_next(study: Tables) -> None:
    """Each would hold a thread of the hub's; there are few."""
    silent = []
    for _ in range(4):
        time.sleep(0.6)
        silent.append(Client(study.address, study.kits / "mars"))
    until(lambda: not any(each.open for each in silent[:3]), 20.0, "the end of the older ones")
    for each in silent:
        each.close()
    USED["mars"] = time.monotonic()
    goes_on(study)


# ---------------------------------------------------------------------------------------------- an outsider


def _forged(name: str, signer: str, days: int = 90) -> Callable[[Tables, Path], Path]:
    def make(study: Tables, place: Path) -> Path:
        return forged_kit(place / "kit", study.kits / "south", name, study.kits / signer if signer else None, days)

    return make


KITS: dict[str, Callable[[Tables, Path], Path]] = {
    "self-signed": _forged("south", ""),
    "foreign authority": lambda study, place: provision(read_terms(study.terms), place)["south"],
    "signed by a site": _forged("north", "south"),
    "expired": _forged("south", "authority", -1),
    "retired": lambda study, place: study.root / "retired",
    "not issued here": _forged("south", "authority"),
    "of no site": _forged("venus", "authority"),
    "of the hub": lambda study, place: study.kits / "server",
}


@pytest.mark.parametrize("kind", KITS)
def test_a_certificate_that_is_not_a_sites_present_one_gets_nothing(study: Tables, tmp_path: Path, kind: str) -> None:
    """The present one of the same site is let in by the tests above."""
    kit = KITS[kind](study, tmp_path / "kits")
    intruder = Client(study.address, kit)
    intruder.send(hello({"of no site": "venus", "signed by a site": "north"}.get(kind, "south")))
    until(lambda: not intruder.open, 30.0, "the end of the connection")
    assert intruder.came == []
    intruder.close()
    goes_on(study, 1)


@pytest.mark.parametrize("kind", ["plain", "http", "tls", "garbage in tls"])
def test_a_client_without_a_certificate_gets_nothing(study: Tables, kind: str) -> None:
    host, _, port = study.address.rpartition(":")
    with socket.create_connection((host, int(port)), 5.0) as plain:
        plain.settimeout(15.0)
        end: socket.socket = plain
        if "tls" in kind:
            context = ssl.create_default_context(cafile=str(study.kits / "south" / "ca.crt"))
            context.set_alpn_protocols(["h2"])
            end = context.wrap_socket(plain, server_hostname=host)
        words = {"http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "tls": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}
        with contextlib.suppress(OSError), end:
            end.sendall(words.get(kind, b"\0" * 300))
            came = end.recv(1 << 16)
            assert b"server" not in came and len(came) < 200  # an alert of TLS at most
            while came:
                came = end.recv(1 << 16)
    goes_on(study, 1)


def without_stream(study: Tables) -> ssl.SSLSocket:
    """A connection with a site's certificate that greets, and asks for nothing."""
    host, _, port = study.address.rpartition(":")
    kit = study.kits / "south"
    context = ssl.create_default_context(cafile=str(kit / "ca.crt"))
    context.load_cert_chain(kit / "own.crt", kit / "own.key")
    context.set_alpn_protocols(["h2"])
    found = context.wrap_socket(socket.create_connection((host, int(port)), 5.0), server_hostname=host)
    found.settimeout(15.0)
    found.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    return found


def test_1200_half_open_connections_do_not_stop_a_study(study: Tables) -> None:
    """At a limit of 1,024 files; and they are gone when the time for a handshake is over."""
    assert study.coordinator is not None
    hub = carrier_of(study.coordinator.pid)
    limits = Path(f"/proc/{hub}/limits").read_text()
    assert "Max open files            1024" in limits

    def files() -> int:
        return len(list(Path(f"/proc/{hub}/fd").iterdir()))

    connections: list[socket.socket] = []

    def crowded() -> bool:
        """Open them again: on a busy machine the first ones are gone before the hub has seen the last."""
        for each in connections:
            each.close()
        connections[:] = half_open(study.address, 1200)
        end = time.monotonic() + HANDSHAKE_SECONDS
        while files() <= 500 and time.monotonic() < end:
            time.sleep(0.05)
        return files() > 500

    idle = without_stream(study)
    try:
        until(crowded, what="so many files")
        goes_on(study, 10)
        until(lambda: files() < 100, PATIENCE, "letting them go")
        with contextlib.suppress(ConnectionError):
            while idle.recv(1 << 16):  # so is the connection of a site that asks for nothing
                pass
    finally:
        for each in (idle, *connections):
            each.close()
    goes_on(study)
    with connected(study) as (_, south):  # and a site can come
        assert south.open


# ---------------------------------------------------------------------------------------------- a local user


def test_a_site_listens_nowhere_and_its_vault_has_no_network(study: Tables) -> None:
    listening = "0A"
    for name in ("north", "west"):
        vault = study.agents[name].pid
        assert sockets_of(vault) == []
        engine = carrier_of(vault)
        for pid in descendants(vault):
            assert all(state != listening and not kind.startswith("udp") for kind, _, state in sockets_of(pid)), name
        assert len(sockets_of(engine)) == 1  # the one to the hub
    assert study.coordinator is not None
    assert sockets_of(study.coordinator.pid) == []


def test_what_holds_secrets_leaves_no_core_and_cannot_be_traced(study: Tables) -> None:
    """Such a process belongs to root in /proc, no matter who started it, and its user cannot open its memory."""
    assert study.coordinator is not None
    for pid in (study.agents["north"].pid, study.coordinator.pid):
        (limit,) = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "core file size" in line]
        assert limit.split()[4:6] == ["0", "0"]
        assert Path(f"/proc/{pid}/mem").stat().st_uid == 0


def test_the_engine_gets_nothing_of_the_environment(study: Tables) -> None:
    assert study.coordinator is not None
    for process in (study.coordinator, study.agents["north"]):
        engine = carrier_of(process.pid)
        environment = Path(f"/proc/{engine}/environ").read_bytes()
        assert SECRET.encode() not in environment and b"TACITURN" not in environment
        names = {line.split(b"=")[0].decode() for line in environment.split(b"\0") if line}
        assert names <= {"HOME", "LANG", "PYTHONPATH", "TMPDIR", "PYTHONDONTWRITEBYTECODE"}
        own, theirs = Path(f"/proc/{process.pid}").stat().st_uid, Path(f"/proc/{engine}").stat().st_uid
        assert own != theirs or os.getuid()


def test_what_a_site_keeps_can_be_read_only_by_its_user(study: Tables) -> None:
    site = read_site(study.site("north"))
    for path in (site.state, site.state / "engine.log", site.identity, site.kit, *site.kit.iterdir(), study.identity):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_second_agent_of_a_site_does_not_start(study: Tables, tmp_path: Path) -> None:
    """On the same state, from the same folder and from a copy of file and kit."""
    copy = tmp_path / "copy"
    shutil.copytree(study.root / "north", copy, ignore=shutil.ignore_patterns("state"))
    text = (copy / "site.toml").read_text()
    (copy / "site.toml").write_text(
        text.replace("[budget]", f'[budget]\nstate = "{study.root / "north" / "state"}"').replace(
            '"patients.ledger"', f'"{study.root / "north" / "patients.ledger"}"'
        )
    )
    for place in (study.site("north"), copy / "site.toml"):
        words = [sys.executable, "-m", "taciturn", "federation", "site", "start", str(place), "--seeded", "7"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 2 and "is running in" in done.stderr, done.stderr
    goes_on(study)


def test_a_kit_that_is_renewed_during_a_study_replaces_the_old_one_at_once(study: Tables) -> None:
    """Without telling the coordinator: the hub is started again, and the study continues."""
    old = study.root / "old-mars"
    shutil.copytree(study.kits / "mars", old)
    provision(read_terms(study.terms), study.kits, ["mars"])
    until(lambda: "a kit was renewed" in said(study, "coordinator"), what="hearing of it")
    goes_on(study, 3)
    stolen = Client(study.address, old)
    stolen.send(hello("mars"))
    until(lambda: not stolen.open, 30.0, "the end of the connection")
    assert stolen.came == []
    stolen.close()
    with connected(study, site="mars") as (_, mars):
        assert mars.open and mars.name == "server"
