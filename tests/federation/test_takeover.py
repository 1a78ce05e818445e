"""The engine taken over completely: another program in its place, as the same user and inside the same confinement.

It does what it likes. The vault and the coordinator beside it keep everything, answer nothing that was not signed, and
live on.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from taciturn.errors import InputError
from taciturn.federation import engine, vault
from taciturn.federation import messages as wire
from taciturn.federation.agreement import StudyLoader
from taciturn.federation.confinement import Barrier, Confined, Trial
from taciturn.federation.confinement import launch as launch_confined
from taciturn.federation.coordinator import STOPPED
from taciturn.federation.coordinator_process import run_coordinator
from taciturn.federation.exchange import SealedExchange
from taciturn.federation.identity import Identity
from taciturn.federation.kits import provision
from taciturn.federation.link import BrokenLink, Frame, Kind, Link
from taciturn.federation.local_cluster import find_free_port
from taciturn.federation.logs import logged
from taciturn.federation.messages import Answer, Invitation, Question, Ready, Refusal, Reply
from taciturn.federation.policy import read_site
from taciturn.federation.seal import HANDSHAKE, QUESTION, Header, open_answer, reply_header, seal_question
from taciturn.runs.folder import read_lines
from tests.cli.helpers import PATIENCE
from tests.federation.helpers import EXPERIMENT, LIMIT, SITES, Federation, make_federation, question

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are confined on Linux")

ROGUE = r"""
import ctypes, json, os, random, signal, socket, struct, sys, time
fd, given = int(sys.argv[1]), json.loads(sys.argv[2])
end, head = socket.socket(fileno=fd), struct.Struct(">BBI")
def frame(kind, peer, data=b""):
    return head.pack(kind, len(peer), len(data)) + peer.encode() + data
def attempt(what, action):
    try:
        action()
    except BaseException as error:
        print(json.dumps({"what": what, "failed": type(error).__name__}), flush=True)
    else:
        print(json.dumps({"what": what, "through": True}), flush=True)
def change(path):
    with open(path, "ab") as file:
        file.write(b"x")
def check(call, *arguments):
    if call(*arguments) != 0:
        raise OSError
def spy():
    libc = ctypes.CDLL(None, use_errno=True)
    attempt("read its own key", lambda: open(given["own"]).read())
    for path in given["secrets"]:
        attempt("read " + path, lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))
        if path.startswith(given["place"]):  # where it would succeed, it must not harm this machine
            attempt("change " + path, lambda: change(path))
            attempt("remove " + path, lambda: os.unlink(path))
    attempt("memory", lambda: open("/proc/%d/mem" % given["vault"], "rb"))
    attempt("descriptors", lambda: os.listdir("/proc/%d/fd" % given["vault"]))
    attempt("environment", lambda: open("/proc/%d/environ" % given["vault"], "rb").read(1))
    attempt("trace", lambda: check(libc.ptrace, 16, given["vault"], 0, 0))
    attempt("signal", lambda: os.kill(given["vault"], 0))
    attempt("signal all", lambda: os.kill(-1, 0) if os.getpid() > 9 else os.kill(given["vault"], 0))
    attempt("shell", lambda: os.execv("/bin/sh", ["sh", "-c", "exit"]))
    attempt("another port", lambda: socket.create_connection(("127.0.0.1", given["port"]), 2.0))
    attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)))
    attempt("4 GB", lambda: bytearray(b"x") * (4 << 30))
def answers(seconds, most=1000):
    found, buffer, deadline = [], b"", time.monotonic() + seconds
    end.settimeout(0.05)
    while time.monotonic() < deadline and len(found) < most:
        try:
            data = end.recv(1 << 16)
        except TimeoutError:
            continue
        if not data:
            break
        buffer += data
        while len(buffer) >= 6:
            kind, named, size = head.unpack_from(buffer)
            if len(buffer) < 6 + named + size:
                break
            found.append(buffer[6 + named : 6 + named + size])
            buffer = buffer[6 + named + size :]
    end.settimeout(None)
    return found
def tell(what, found):
    print(json.dumps({"what": what, "answers": [data.hex() for data in found]}), flush=True)
mode = given["mode"]
if mode == "garbage":
    end.sendall(os.urandom(5000))
elif mode == "giant":
    end.sendall(head.pack(3, 0, 0xFFFFFFFF))
    for _ in range(100):
        end.sendall(bytes(1 << 20))
elif mode == "impossible":
    end.sendall(frame(3, "../../x", b"y"))
elif mode == "site":
    spy()
    for each in given["forged"]:
        end.sendall(frame(3, "server", bytes.fromhex(each)))
    for _ in range(500):
        end.sendall(b"".join(frame(kind, "north") for kind in range(1, 6)))
    tell("forged", answers(1.5))
    for each in given["genuine"]:
        end.sendall(frame(3, "server", bytes.fromhex(each)))
        tell("genuine", answers(200.0, 1))
    for each in given["again"]:
        end.sendall(frame(3, "server", bytes.fromhex(each)))
    tell("again", answers(200.0, len(given["again"])))
elif mode == "hub":
    spy()
    end.sendall(frame(4, ""))
    asked, until = [], time.monotonic() + 200.0
    while time.monotonic() < until:
        for site in given["sites"]:
            end.sendall(frame(1, site))
            if not asked:
                asked += answers(0.3)
            for data in asked[:3]:
                end.sendall(frame(3, site, data) + frame(3, site, data[:120] + os.urandom(300)))
            end.sendall(frame(2, site) + frame(1, site) + frame(1, "venus") + 4000 * frame(5, ""))
print(json.dumps({"what": "end"}), flush=True)
time.sleep(600.0)
"""


@dataclass
class Taken:
    """What is started in the place of the engine: one mode after the other, the last of them again and again."""

    modes: Sequence[str]
    given: dict[str, Any]
    started: list[str] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = launch_confined

        def launch(command: Sequence[str], **options: Any) -> Confined:
            mode = self.modes[min(len(self.started), len(self.modes) - 1)]
            self.started.append(mode)
            given = json.dumps({"mode": mode, **self.given})
            fd = command[command.index("--fd") + 1]
            return real([sys.executable, "-I", "-S", "-c", ROGUE, fd, given], **options)

        monkeypatch.setattr(engine, "launch", launch)
        monkeypatch.setattr(engine, "STOP_SECONDS", 0.3)  # it does not end by itself


def lines(log: Path) -> list[dict[str, Any]]:
    text = log.read_text() if log.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def ended(log: Path) -> bool:
    """Whether the last mode has done what it wanted."""
    found = lines(log)
    return bool(found) and found[-1]["what"] == "end" and any("answers" in each for each in found)


def check_spied(log: Path) -> None:
    """It ran, for it read its own key; everything else failed."""
    attempts = [each for each in lines(log) if "through" in each or "failed" in each]
    assert [each["what"] for each in attempts if "through" in each] == ["read its own key"], attempts
    assert len(attempts) > 20


@pytest.fixture
def listener() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found.getsockname()[1]


@dataclass
class Party:
    federation: Federation
    coordinator: Identity
    sites: dict[str, Identity]

    def seal(self, message: Question, site: str = "north", by: Identity | None = None) -> bytes:
        terms = self.federation.terms
        version = HANDSHAKE if isinstance(message, Invitation) else 1
        header = Header(version, QUESTION, bytes.fromhex(terms.digest), bytes.fromhex(message.experiment), site)
        return seal_question(wire.encode(message), header, by or self.coordinator, terms.identities[site])


@pytest.fixture
def party(tmp_path: Path) -> Party:
    made = {name: Identity.create(tmp_path / f"{name}.identity") for name in ("coordinator", *SITES)}
    public = {name: str(identity.public) for name, identity in made.items()}
    changes = {
        "coordinator": {"identity": public.pop("coordinator")},
        "identities": public,
        "server": {"host": "localhost", "port": find_free_port()},
        "running": {"quorum": 2, "answer_seconds": 1, "ready_seconds": 1},
    }
    federation = make_federation(tmp_path / "federation", changes)
    kits = provision(federation.terms, tmp_path / "kits")
    for site in SITES:
        federation.change(site, {"kit": str(kits[site]), "identity": str(tmp_path / f"{site}.identity")})
    return Party(federation, made.pop("coordinator"), made)


def test_a_site_whose_engine_was_taken_over_keeps_everything_and_lives_on(
    party: Party, monkeypatch: pytest.MonkeyPatch, listener: int
) -> None:
    federation, rng = party.federation, random.Random(1)
    site = read_site(federation.file("north"))
    rounds = [question(federation, t) for t in (1, 2, 3, 4)]
    asked: list[Question] = [Invitation(EXPERIMENT, federation.terms.digest), *rounds]
    genuine = [party.seal(each) for each in asked]
    forged = [
        *(party.seal(rounds[0], by=party.sites[name]) for name in SITES),
        party.seal(rounds[0], "south"),
        wire.encode(rounds[0]),
        *(bytes([*genuine[1][:at], genuine[1][at] ^ 1, *genuine[1][at + 1 :]]) for at in range(0, 300, 7)),
        *(rng.randbytes(rng.randrange(600)) for _ in range(50)),
    ]
    again = rng.choices(genuine[1:], k=60)
    secrets = [str(path) for paths in vault.engine_secrets(site).values() for path in paths]
    given = {
        "secrets": [*secrets, str(site.state / "journal.sqlite"), "/etc/shadow", str(Path.home())],
        "own": str(site.kit.resolve() / "own.key"),
        "vault": os.getpid(),
        "port": listener,
        "place": str(federation.root.parent),
        **{
            name: [each.hex() for each in found]
            for name, found in {"forged": forged, "genuine": genuine, "again": again}.items()
        },
    }
    taken = Taken(["garbage", "giant", "impossible", "site"], given)
    taken.install(monkeypatch)
    monkeypatch.setattr(vault, "LONGEST_WAIT", 0.1)  # seconds between two engines
    said: list[str] = []
    log, stop = site.state / "engine.log", threading.Event()
    running = threading.Thread(target=vault.run_vault, args=(site, StudyLoader(), 7, stop.is_set))
    with logged(None, said.append):
        running.start()
        try:
            _wait(lambda: ended(log) or not running.is_alive(), PATIENCE)
            assert running.is_alive(), said
        finally:
            stop.set()
            running.join(PATIENCE)
    assert taken.started == ["garbage", "giant", "impossible", "site"]
    assert sum("restarting the engine" in line for line in said) == 3 and len(said) < 100
    assert any("a frame has 4294967295 bytes" in line for line in said)
    check_spied(log)
    heard = {
        what: [each["answers"] for each in lines(log) if each["what"] == what and "answers" in each]
        for what in ("forged", "genuine", "again")
    }
    assert heard["forged"] == [[]]
    first = [_opened(party, sealed, *answers) for sealed, answers in zip(genuine, heard["genuine"], strict=True)]
    assert isinstance(first[0], Ready) and all(isinstance(each, Answer) for each in first[1:])
    assert len(federation.released("north")) == 4  # each round once, and the plan has four
    replayed = [_opened(party, sealed, answer) for sealed, answer in zip(again, heard["again"][0], strict=True)]
    for each in replayed:
        assert isinstance(each, Refusal) or each.round < 4 or each.z.tobytes() == first[4].z.tobytes()  # type: ignore


def _opened(party: Party, sealed: bytes, answer: str) -> Reply:
    sender = party.federation.terms.identities["north"]
    opened = open_answer(bytes.fromhex(answer), party.coordinator, sender, LIMIT, reply_header(sealed))
    return wire.decode_reply(opened.body, LIMIT)


def _wait(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_coordinator_whose_engine_was_taken_over_believes_nothing_and_can_be_stopped(
    party: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: int
) -> None:
    terms, out = party.federation.terms, tmp_path / "run"
    kits, identity = tmp_path / "kits", party.coordinator.path
    given = {
        "secrets": [
            *map(str, (out, identity, terms.path, kits / "authority" / "ca.key", kits / "north", "/etc/shadow")),
            str(party.federation.root / "north" / "table.csv"),
        ],
        "own": str((kits / "server" / "own.key").resolve()),
        "vault": os.getpid(),
        "port": listener,
        "place": str(tmp_path),
        "sites": list(SITES),
    }
    taken = Taken(["garbage", "giant", "hub"], given)
    taken.install(monkeypatch)
    monkeypatch.setattr("taciturn.federation.coordinator_process.time.sleep", lambda seconds: None)
    said: list[str] = []
    began: list[float] = []

    def stop() -> bool:
        if any("dropped 64 " in line for line in said) and not began:
            began.append(time.monotonic())
        return bool(began) and time.monotonic() - began[0] > 1.0

    end = threading.Timer(PATIENCE, lambda: began.append(0.0))
    end.start()
    with logged(None, said.append):
        folder, outcome = run_coordinator(terms, kits, identity, out, stop, lambda line: None)
    end.cancel()
    assert outcome == STOPPED and began[0] > 0.0
    assert taken.started == ["garbage", "giant", "hub"]
    check_spied(out / "engine.log")
    assert not (folder.path / "rounds.jsonl").exists() or not list(read_lines(folder.path / "rounds.jsonl"))
    assert not any("takes part" in line for line in said)
    assert sum(path.stat().st_size for path in folder.path.rglob("*") if path.name != "engine.log") < 200_000


@pytest.mark.parametrize("role", ["site", "coordinator"])
def test_no_engine_starts_that_could_reach_more(
    party: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """Where the trial finds an open way to the journal, nothing is started."""
    taken = Taken(["garbage"], {})
    taken.install(monkeypatch)
    way = Barrier("journal", "open the journal", False, 1, ("read it: x",))
    monkeypatch.setattr(engine, "try_confinement", lambda secrets, **options: Trial((way,), {}, ("journal",)))
    with pytest.raises(InputError, match="could open the journal"):
        if role == "site":
            vault.run_vault(read_site(party.federation.file("north")), StudyLoader(), 7, lambda: False)
        else:
            terms, place = party.federation.terms, party.coordinator.path
            run_coordinator(terms, tmp_path / "kits", place, tmp_path / "run", lambda: False, lambda line: None)
    assert taken.started == []


FLOOD = r"""
import socket, sys
end = socket.socket(fileno=int(sys.argv[1]))
end.sendall(b"\x01\x05\x00\x00\x00\x00north")
while True:
    end.sendall(10000 * b"\x05\x00\x00\x00\x00\x00")
"""


def test_an_engine_that_never_stops_talking_does_not_stop_the_clock(party: Party) -> None:
    mine, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-I", "-S", "-c", FLOOD, str(theirs.fileno())]
        flood = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    exchange = SealedExchange(Link(mine, LIMIT), party.federation.terms, party.coordinator, EXPERIMENT, LIMIT)
    answers: list[Any] = []

    def ask() -> None:
        with contextlib.suppress(BrokenLink):
            while "north" not in exchange.connected():
                pass
            answers.append(exchange.request({"north": b"a question"}, 0.2))

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(PATIENCE)
    flood.kill()
    flood.wait()
    asking.join()
    exchange.link.close()
    assert answers == [{}]


def test_a_link_sets_no_memory_aside_for_what_is_announced() -> None:
    mine, theirs = socket.socketpair()
    link = Link(mine, 1000)
    with theirs:
        theirs.send(bytes([3, 0, 0, 0, 3, 232]) + bytes(1000))
        assert link.receive(1.0) == Frame(Kind.MESSAGE, "", bytes(1000))
        theirs.send(b"\x03\x00\xff\xff\xff\xff")
        with pytest.raises(Exception, match="at most 1000"):
            link.receive(1.0)
        assert len(link._buffer) < 100
    link.close()
