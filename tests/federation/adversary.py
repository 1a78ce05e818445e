"""Attackers that build their own messages: raw frames over gRPC with whatever certificate they have.

Nothing here uses NVFlare's cells. A frame is a prefix of 16 bytes, headers and a payload, as NVFlare 2.9 sends them.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import queue
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import msgpack
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from taciturn.federation import PROTOCOL
from taciturn.federation.drafts import IDENTITY_FILE
from taciturn.federation.identity import Identity
from taciturn.federation.kits import provision
from taciturn.federation.local_cluster import LocalFederation, find_free_port
from taciturn.federation.terms import Terms, read_terms
from tests.cli.helpers import PATIENCE
from tests.federation.helpers import make_federation

DATA, HELLO, READY, PING, PONG = 1, 4, 5, 6, 7
METHOD = "/streamer.Streamer/Stream"
PREFIX = struct.Struct(">IHBBHHHH")
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
TOPICS = [  # what NVFlare's clients and servers obey, and the cells beneath them
    *(("admin", f"sys.{name}") for name in ("shell", "info", "report_env", "report_version", "configure_site_log")),
    *(("admin", f"train.{name}") for name in (
        "start", "abort", "delete_run", "deploy", "shutdown", "restart", "check_status", "set_job_id", "start_job",
        "get_scopes", "notify_job_status", "configure_job_log",
    )),
    *(("admin", f"scheduler.{name}") for name in ("check_resource", "allocate_resource", "cancel_resource")),
    ("admin", "control.do_command"),
    ("aux_communication", "__do_task__"),
    ("aux_communication", "taciturn"),
    *(("task", name) for name in ("challenge", "register", "bye", "quit", "get_task", "submit_result", "heart_beat")),
    ("server_command", "handle_dead_job"),
    ("client_command", "abort"),
    ("client_sub_worker_command", "execute"),
    ("multi_process_executor", "execute_result"),
    ("return_only", "reply"),
    ("hci_channel", "session"),
    *(("cellnet.channel", name) for name in ("bulk", "bye")),
    ("credential_manager", "key_exchange"),
    *(("_net_manager", name) for name in (
        "peers", "cells", "route", "stop", "stop_cell", "conns", "echo", "stress", "change_root", "comm_config",
        "config_vars", "process_info",
    )),
    ("stream", "data"),
    ("taciturn", "other"),
    ("other", "sealed"),
]  # fmt: skip


def frame(kind: int, headers: Any = None, payload: bytes = b"", app: int = 1) -> bytes:
    """A frame as it goes over the wire."""
    head = msgpack.packb(headers) if headers else b""
    return PREFIX.pack(PREFIX.size + len(head) + len(payload), len(head), kind, 0, 0, app, 17, 1) + head + payload


def hello(name: str, kind: int = HELLO, **more: Any) -> bytes:
    """Who it claims to be."""
    return frame(kind, None, msgpack.packb({"endpoint_name": name, "timestamp": time.time(), **more}), app=0)


def message(origin: str, destination: str, payload: bytes, **more: Any) -> bytes:
    """A message of Taciturn's, or with other headers."""
    head = {"channel": "taciturn", "topic": "sealed", "origin": origin, "destination": destination} | more
    return frame(DATA, {f"cn__{name}": value for name, value in head.items()}, payload)


def giant(origin: str, destination: str, size: int) -> bytes:
    """A message of this many zeros, copied as seldom as possible."""
    empty = message(origin, destination, b"")
    return b"".join([(len(empty) + size).to_bytes(4, "big"), empty[4:], bytes(size)])


def wrapped(data: bytes) -> bytes:
    """The message of gRPC's that carries a frame: field 1 is a number, field 2 the bytes."""
    size, length = len(data), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"\x08\x01\x12" + bytes(length) + data


def unwrapped(data: bytes) -> bytes:
    """The frame in a message of gRPC's."""
    from nvflare.fuel.f3.drivers.grpc.streamer_pb2 import Frame

    return bytes(Frame.FromString(data).data)


def parsed(data: bytes) -> tuple[int, Any, bytes]:
    """Kind, headers and payload of a frame."""
    _, head, kind, *_ = PREFIX.unpack_from(data)
    end = PREFIX.size + head
    return kind, msgpack.unpackb(data[PREFIX.size : end]) if head else None, data[end:]


class Stream:
    """One end of a stream: what is sent, and what has come."""

    def __init__(self) -> None:
        self.out: queue.Queue[bytes | None] = queue.Queue(1000)
        self.came: list[bytes] = []
        self.name = ""
        self.open = True

    def send(self, *frames: bytes) -> None:
        """As long as the stream is open; what is not read in time is lost."""
        for each in frames:
            if self.open:
                with contextlib.suppress(queue.Full):
                    self.out.put(wrapped(each), timeout=0.2)

    def messages(self) -> list[bytes]:
        """The payloads of the messages that have come."""
        return [payload for kind, _, payload in map(parsed, list(self.came)) if kind == DATA]

    def sending(self) -> Iterator[bytes]:
        while (data := self.out.get()) is not None:
            yield data

    def take(self, incoming: Iterator[bytes]) -> None:
        with contextlib.suppress(grpc.RpcError, Exception):
            for data in incoming:
                self.came.append(unwrapped(data))
                kind, _, payload = parsed(self.came[-1])
                if kind in (HELLO, READY):
                    self.name = msgpack.unpackb(payload)["endpoint_name"]
        self.open = False
        self.end()

    def end(self) -> None:
        """Nothing more is sent."""
        with contextlib.suppress(queue.Full):
            self.out.put_nowait(None)


class Client(Stream):
    """Somebody with a certificate who connects to a hub."""

    def __init__(self, address: str, kit: Path, compression: grpc.Compression | None = None) -> None:
        super().__init__()
        ca, certificate, key = ((kit / name).read_bytes() for name in ("ca.crt", "own.crt", "own.key"))
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        self.channel = grpc.secure_channel(address, credentials, [*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)])
        self.call = self.channel.stream_stream(METHOD)(self.sending(), compression=compression)
        self.thread = threading.Thread(target=self.take, args=(self.call,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.end()
        self.call.cancel()
        self.channel.close()
        self.thread.join(5.0)


class Server(grpc.GenericRpcHandler):
    """Somebody with a certificate to whom sites connect; it does what it likes."""

    def __init__(self, address: str, kit: Path) -> None:
        self.streams: list[Stream] = []
        self.greeting: Callable[[Stream], list[bytes]] = lambda stream: [hello("server", READY)]
        self.server = grpc.server(ThreadPoolExecutor(16), [self], options=UNLIMITED)
        ca, certificate, key = ((kit / name).read_bytes() for name in ("ca.crt", "own.crt", "own.key"))
        credentials = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
        self.server.add_secure_port(address, credentials)
        self.server.start()

    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._stream)

    def _stream(self, incoming: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        stream = Stream()
        self.streams.append(stream)
        stream.send(*self.greeting(stream))
        threading.Thread(target=stream.take, args=(incoming,), daemon=True).start()
        yield from stream.sending()

    def of(self, site: str) -> Stream | None:
        """The stream that a site has open."""
        return next((each for each in reversed(self.streams) if each.open and each.name == site), None)

    def stop(self) -> None:
        for stream in self.streams:
            stream.end()
        self.server.stop(0.2).wait(5.0)


SLOW = """
import sys, time
from taciturn.__main__ import main
from taciturn.federation.agent import SiteAgent
answer = SiteAgent.answer
SiteAgent.answer = lambda *given: (time.sleep(0.05), answer(*given))[1]
main()
"""


class Tables(LocalFederation):
    """A federation of real processes whose sites have tables."""

    def site(self, name: str) -> Path:
        return self.root / name / "site.toml"

    def prepare(self) -> Terms:
        identities = {name: self.root / name / IDENTITY_FILE for name in self.sites}
        self.root.mkdir(exist_ok=True)
        own = Identity.create(self.identity).public
        held = {name: Identity.create(self.root / f"{name}.made") for name in self.sites}
        changes = {
            "protocol": PROTOCOL,
            "server": {"host": "localhost", "port": find_free_port()},
            "sites": dict(self.sites),
            "coordinator": {"identity": str(own)},
            "identities": {name: str(identity.public) for name, identity in held.items()},
            "study": dict(self.study),
            "running": dict(self.running),
        }
        accept = {"rounds_max": 100_000, "study_epsilon_max": 10.0}
        made = make_federation(self.root, changes, accept, 10.0, tuple(self.sites))
        for name, place in identities.items():
            (self.root / f"{name}.made").rename(place)
            made.change(name, {"kit": str(self.kits / name), "accept": accept})
        terms = read_terms(self.terms)
        provision(terms, self.kits)
        return terms

    def start_slow_agent(self, name: str, **variables: str) -> None:
        """As an agent with a slow disk: a study that lasts as long as its tests leaves the machine to them."""
        words = ("federation", "site", "start", str(self.site(name)), "--seeded", str(self.seed))
        self.agents[name] = self._start(name, [sys.executable, "-c", SLOW, *words], variables)

    def _start(self, name: str, command: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | variables
        with (self.root / f"{name}.txt").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)

    def start_coordinator(self, **variables: str) -> None:
        """With at most 1,024 files, as most systems give a process."""
        words = ("federation", "run", str(self.terms), "--kits", str(self.kits), "--out", str(self.run), "--json")
        command = ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh", sys.executable, "-m", "taciturn", *words]
        self.coordinator = self._start("coordinator", command, variables)

    @property
    def address(self) -> str:
        terms = read_terms(self.terms)
        return f"{terms.host}:{terms.port}"


def until(true: Callable[[], Any], seconds: float = PATIENCE, what: str = "it") -> Any:
    """Wait for something to be true."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, f"{what} took more than {seconds:g} s"
        time.sleep(0.02)
    return found


def descendants(pid: int) -> list[int]:
    """A process and all that it started."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, task.read_text().split())
    return found


def carrier_of(pid: int) -> int:
    """The engine's program among a process's descendants."""
    found = [
        each for each in descendants(pid) if "nvflare.carrier" in _command(each) and "import sys" not in _command(each)
    ]
    return found[-1]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def peak_memory(pid: int) -> int:
    """The most memory that a process had so far, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def sockets_of(pid: int) -> list[tuple[str, str, str]]:
    """The internet sockets of a process: protocol, local address, state."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(entry.readlink()))
    found = []
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{protocol}").read_text().splitlines()[1:]:
            words = line.split()
            if f"socket:[{words[9]}]" in inodes:
                found.append((protocol, words[1], words[3]))
    return found


def half_open(address: str, count: int) -> list[socket.socket]:
    """Connections that say three bytes of a handshake and no more."""
    host, _, port = address.rpartition(":")
    found = [socket.socket() for _ in range(count)]
    for each in found:
        each.setblocking(False)
        each.connect_ex((socket.gethostbyname(host), int(port)))
    time.sleep(0.5)
    for each in found:
        with contextlib.suppress(OSError):
            each.send(b"\x16\x03\x01")
    return found


def forged_kit(place: Path, model: Path, name: str, signer: Path | None, days: int = 90) -> Path:
    """A copy of a kit with another certificate: of this name, signed by anyone with a certificate, or by itself."""
    shutil.copytree(model, place)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    issuer, issuer_key = subject, key
    if signer is not None:
        own, secret = sorted(signer.glob("*.crt"))[-1], next(signer.glob("*.key"))
        issuer = x509.load_pem_x509_certificate(own.read_bytes()).subject
        issuer_key = serialization.load_pem_private_key(secret.read_bytes(), None)  # type: ignore[assignment]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + datetime.timedelta(days=days))
        .sign(issuer_key, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = made.public_bytes(serialization.Encoding.PEM)
    if signer is not None and signer.name != "authority":
        chain += (signer / "own.crt").read_bytes()
    (place / "own.crt").write_bytes(chain)
    (place / "own.key").write_bytes(key.private_bytes(*form))
    return place
