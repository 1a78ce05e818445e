"""A cell with one door: messages of one topic between hub and sites, of a bounded size. All else is dropped."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgpack
from nvflare.fuel.f3 import comm_config
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers import grpc_driver
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.endpoint import Endpoint, EndpointState
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.sfm import conn_manager
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection

CHANNEL, TOPIC = "taciturn", "sealed"
HUB = "server"  # what NVFlare calls the cell that others connect to
ENVELOPE = 4096  # bytes that cells add to a payload, at most
HANDSHAKE_SECONDS = 10  # for TLS; NVFlare leaves gRPC's 120
KEEPALIVE_SECONDS = 10
IDLE_SECONDS = 10  # for a connection without a stream
LONGEST_WAIT = 2  # seconds between two tries to connect; NVFlare's are up to 10
STREAM_SECONDS = 0.5  # between two streams of one site
PING_SECONDS = 1.0  # between two signs of life; NVFlare's come every 60
MOST_ASKED = 2  # questions that a site may have to answer at once
UNASKED_SECONDS = 0.05  # that a site waits which sends what nobody asked for

log = logging.getLogger(__name__)


def configure(limit: int, certificates: Mapping[str, str]) -> None:
    """Settings that NVFlare reads from a file in its workspace; there is none here. Before the first cell.

    Parameters
    ----------
    limit
        The longest payload. gRPC refuses a longer message before it reads it.
    certificates
        The sites that a hub takes, each with the SHA-256 of its certificate.
    """
    longest = limit + ENVELOPE
    options = [
        ("grpc.max_send_message_length", longest),
        ("grpc.max_receive_message_length", longest),
        ("grpc.max_concurrent_streams", 1),
        ("grpc.server_handshake_timeout_ms", 1000 * HANDSHAKE_SECONDS),
        ("grpc.max_connection_idle_ms", 1000 * IDLE_SECONDS),
        ("grpc.keepalive_time_ms", 1000 * KEEPALIVE_SECONDS),
        ("grpc.keepalive_timeout_ms", 1000 * KEEPALIVE_SECONDS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 500 * KEEPALIVE_SECONDS),
        ("grpc.so_reuseport", 0),
        ("grpc.enable_http_proxy", 1),
    ]
    comm_config.CommConfigurator._configuration = {
        "max_message_size": longest,
        "allow_adhoc_conns": False,
        "grpc": {"max_workers": 4 + 2 * len(certificates), "options": options},
    }
    comm_config.CommConfigurator._config_loaded = True
    conn_manager.MAX_WAIT = LONGEST_WAIT
    conn_manager.FRAME_THREAD_POOL_SIZE = 1  # unused: frames are handled where they are read
    conn_manager.ConnManager.process_frame = process_frame
    OneStream.certificates = certificates
    grpc_driver.Servicer = OneStream


def credentials(kit: Path, server: bool) -> dict[str, str]:
    """The kit's certificate, key and authority, as NVFlare names them."""
    role = (
        (DriverParams.SERVER_CERT, DriverParams.SERVER_KEY)
        if server
        else (DriverParams.CLIENT_CERT, DriverParams.CLIENT_KEY)
    )
    files = dict(zip((DriverParams.CA_CERT, *role), ("ca.crt", "own.crt", "own.key"), strict=True))
    return {name.value: str(kit / file) for name, file in files.items()}


def process_frame(manager: conn_manager.ConnManager, connection: SfmConnection, frame: bytes) -> None:
    """Handle the frames that are needed, in their order; any other ends its connection.

    Without this a site could claim names of child cells without end, each of which costs memory, or have every sign of
    life answered and not read the answers.
    """
    if not _needed(manager, connection, frame):
        log.warning("ended a connection for a frame of no use")
        _end(connection)
        return
    manager.process_frame_task(connection, frame)


def _needed(manager: conn_manager.ConnManager, connection: SfmConnection, frame: bytes) -> bool:
    if len(frame) < PREFIX_LEN:
        return False
    prefix, connected = Prefix.from_bytes(frame), connection.sfm_endpoint is not None
    listens = connection.conn.connector.mode == Mode.PASSIVE
    if prefix.type == (Types.HELLO if listens else Types.READY) and not connected:
        name = _claimed(prefix, frame)
        wanted = connection.conn.get_conn_properties().get(DriverParams.PEER_CN.value) if listens else HUB
        if name is None or name != wanted:
            return False
        _leave_before(manager, name)
        return True
    if prefix.type in (Types.PING, Types.PONG) and connected:
        before, connection.heard_of = getattr(connection, "heard_of", -PING_SECONDS), time.monotonic()
        return bool(connection.heard_of - before >= PING_SECONDS)
    return bool(prefix.type == Types.DATA and connected)


def _claimed(prefix: Prefix, frame: bytes) -> str | None:
    """The name in a handshake."""
    if prefix.header_len or len(frame) > ENVELOPE:
        return None
    try:
        name = msgpack.unpackb(frame[PREFIX_LEN:])[HandshakeKeys.ENDPOINT_NAME]
    except Exception:  # msgpack's are of many kinds
        return None
    return name if isinstance(name, str) else None


def _leave_before(manager: conn_manager.ConnManager, name: str) -> None:
    """A peer that connects again has left before: NVFlare would tell nobody, and what was on its way is lost."""
    known = manager.sfm_endpoints.get(name)
    for old in list(known.connections) if known else ():
        manager.close_connection(old.conn)
        _end(old)


def _end(connection: SfmConnection) -> None:
    """Close a connection at once; NVFlare's own way waits for one more frame from the other end."""
    context = connection.conn.context
    connection.conn.close()
    if context is not None:
        context.cancel()


class Door(CoreCell):
    """A cell that hands over messages of its one topic from the peers it knows.

    Parameters
    ----------
    name
        Its own name: `HUB`, or a site's.
    url
        Where the hub listens.
    peers
        The cells it talks to. What comes from others, or in the name of others, is dropped.
    took
        Called with the peer's name and the bytes of every message.
    changed
        Called with a peer's name and whether it is connected now.
    """

    def __init__(
        self,
        name: str,
        url: str,
        kit: Path,
        peers: frozenset[str],
        took: Callable[[str, bytes], None],
        changed: Callable[[str, bool], None],
    ) -> None:
        self._peers, self._took, self._changed = peers, took, changed
        self._asked: Counter[str] = Counter()  # questions that a site has not answered
        self._asked_lock = threading.Lock()
        super().__init__(name, url, True, credentials(kit, name == HUB))

    def process_message(self, endpoint: Endpoint, connection: Connection, app_id: int, message: Message) -> None:
        """The only way in. NVFlare's own handling (forwarding, replies, bulk, certificates) is never reached."""
        peer = endpoint.name
        if peer not in self._peers or message.headers != _head(peer, self.get_fqcn()) or not self._may_answer(peer):
            time.sleep(UNASKED_SECONDS)  # in the thread that reads from this peer: it alone is slowed down
            return
        self._took(peer, bytes(message.payload or b""))

    def _may_answer(self, peer: str) -> bool:
        """Whether a site was asked; the hub's messages to a site are questions."""
        if self.get_fqcn() != HUB:
            return True
        with self._asked_lock:
            asked = self._asked[peer] > 0
            self._asked[peer] -= asked
        return asked

    def state_change(self, endpoint: Endpoint) -> None:
        """A peer has come or gone."""
        super().state_change(endpoint)
        if endpoint.name in self._peers:
            self._changed(endpoint.name, endpoint.state == EndpointState.READY)

    def post(self, peer: str, data: bytes) -> None:
        """Send bytes to a peer; where it is not connected they are lost, as on any network."""
        agent = self.agents.get(peer)
        if agent is not None:
            with self._asked_lock:
                self._asked[peer] = min(self._asked[peer] + 1, MOST_ASKED)
            with contextlib.suppress(CommError):
                self.communicator.send(agent.endpoint, self.APP_ID, Message(_head(self.get_fqcn(), peer), data))


def _head(origin: str, destination: str) -> dict[str, str]:
    """All the headers a message has: with others it is dropped."""
    return {
        MessageHeaderKey.CHANNEL: CHANNEL,
        MessageHeaderKey.TOPIC: TOPIC,
        MessageHeaderKey.ORIGIN: origin,
        MessageHeaderKey.DESTINATION: destination,
    }


class OneStream(grpc_driver.Servicer):
    """A site has one stream: a second one ends the first. A certificate that is not a site's present one gets none."""

    certificates: ClassVar[Mapping[str, str]] = {}
    _open: ClassVar[dict[str, Any]] = {}
    _began: ClassVar[dict[str, float]] = {}
    _lock = threading.Lock()

    def Stream(self, request_iterator: Any, context: Any) -> Iterator[Any]:  # noqa: N802  gRPC's name
        """One connection of a site."""
        found = context.auth_context()
        site = (found.get("x509_common_name") or [b""])[0].decode("utf-8", "replace")
        pem = (found.get("x509_pem_cert") or [b""])[0].decode("ascii", "replace")
        if not pem or self.certificates.get(site) != hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest():
            log.warning("turned a certificate of %r away", site)
            context.cancel()
            return
        with self._lock:
            now = time.monotonic()
            soon = now - self._began.get(site, -STREAM_SECONDS) < STREAM_SECONDS
            if not soon:
                self._began[site] = now
                before, self._open[site] = self._open.get(site), context
        if soon:
            context.cancel()
            return
        if before is not None:
            before.cancel()
        try:
            yield from super().Stream(request_iterator, context)
        finally:
            with self._lock:
                if self._open.get(site) is context:
                    del self._open[site]
