"""An NVFlare cell that exchanges messages of one topic and limited size between hub and sites, and drops all else."""

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
HUB = "server"  # NVFlare's name for the cell that others connect to
ENVELOPE = 4096  # maximum bytes that cells add to a payload
HANDSHAKE_SECONDS = 10  # for TLS; gRPC's default is 120
KEEPALIVE_SECONDS = 10
IDLE_SECONDS = 10  # for a connection without a stream
LONGEST_WAIT = 2  # seconds between two attempts to connect; NVFlare's default is up to 10
STREAM_SECONDS = 0.5  # minimum between two streams of one site
PING_SECONDS = 1.0  # minimum between two pings; NVFlare's are 60 apart
MAX_QUESTIONS = 2  # questions that a site may have to answer at once
UNASKED_SECONDS = 0.05  # delay for a site that sends what was not asked for

log = logging.getLogger(__name__)


def configure(limit: int, certificates: Mapping[str, str]) -> None:
    """Apply the settings that NVFlare would read from its workspace; call this before creating a cell.

    Parameters
    ----------
    limit
        Maximum bytes of a payload. gRPC rejects a longer message before reading it.
    certificates
        The sites that a hub accepts, each with the SHA-256 of its certificate.
    """
    longest = limit + ENVELOPE
    options = {
        "max_send_message_length": longest,
        "max_receive_message_length": longest,
        "max_concurrent_streams": 1,
        "server_handshake_timeout_ms": 1000 * HANDSHAKE_SECONDS,
        "max_connection_idle_ms": 1000 * IDLE_SECONDS,
        "keepalive_time_ms": 1000 * KEEPALIVE_SECONDS,
        "keepalive_timeout_ms": 1000 * KEEPALIVE_SECONDS,
        "http2.max_pings_without_data": 0,
        "http2.min_ping_interval_without_data_ms": 500 * KEEPALIVE_SECONDS,
        "so_reuseport": 0,
        "enable_http_proxy": 1,
    }
    grpc = {
        "max_workers": 4 + 2 * len(certificates),
        "options": [(f"grpc.{name}", value) for name, value in options.items()],
    }
    settings = {"max_message_size": longest, "allow_adhoc_conns": False, "grpc": grpc}
    comm_config.CommConfigurator._configuration = settings
    comm_config.CommConfigurator._config_loaded = True
    conn_manager.MAX_WAIT = LONGEST_WAIT
    conn_manager.FRAME_THREAD_POOL_SIZE = 1  # unused: frames are handled where they are read
    conn_manager.ConnManager.process_frame = process_frame
    OneStreamServicer.certificates = certificates
    grpc_driver.Servicer = OneStreamServicer


def credentials(kit: Path, server: bool) -> dict[str, str]:
    """Return the paths of the kit's certificate, key and authority under NVFlare's names."""
    certificate = DriverParams.SERVER_CERT if server else DriverParams.CLIENT_CERT
    key = DriverParams.SERVER_KEY if server else DriverParams.CLIENT_KEY
    files = {DriverParams.CA_CERT: "ca.crt", certificate: "own.crt", key: "own.key"}
    return {name.value: str(kit / file) for name, file in files.items()}


def process_frame(manager: conn_manager.ConnManager, connection: SfmConnection, frame: bytes) -> None:
    """Handle the frames that are needed, in order; any other frame closes its connection.

    Otherwise a site could claim the names of any number of child cells, each of which uses memory, or send pings and
    never read the answers.
    """
    if _is_needed(manager, connection, frame):
        manager.process_frame_task(connection, frame)
    else:
        log.warning("closed a connection because of an unexpected frame")
        _close(connection)


def _is_needed(manager: conn_manager.ConnManager, connection: SfmConnection, frame: bytes) -> bool:
    if len(frame) < PREFIX_LEN:
        return False
    prefix, connected = Prefix.from_bytes(frame), connection.sfm_endpoint is not None
    listens = connection.conn.connector.mode == Mode.PASSIVE
    if prefix.type == (Types.HELLO if listens else Types.READY) and not connected:
        name = _claimed_name(prefix, frame)
        wanted = connection.conn.get_conn_properties().get(DriverParams.PEER_CN.value) if listens else HUB
        if name is None or name != wanted:
            return False
        _close_earlier(manager, name)
        return True
    if prefix.type in (Types.PING, Types.PONG) and connected:
        before, connection.last_ping = getattr(connection, "last_ping", -PING_SECONDS), time.monotonic()
        return bool(connection.last_ping - before >= PING_SECONDS)
    return bool(prefix.type == Types.DATA and connected)


def _claimed_name(prefix: Prefix, frame: bytes) -> str | None:
    """Return the name in a handshake."""
    if prefix.header_len or len(frame) > ENVELOPE:
        return None
    try:
        name = msgpack.unpackb(frame[PREFIX_LEN:])[HandshakeKeys.ENDPOINT_NAME]
    except Exception:  # msgpack raises many kinds
        return None
    return name if isinstance(name, str) else None


def _close_earlier(manager: conn_manager.ConnManager, name: str) -> None:
    """Close earlier connections of a peer that connects again: NVFlare would not report that it had left."""
    known = manager.sfm_endpoints.get(name)
    for old in list(known.connections) if known else ():
        manager.close_connection(old.conn)
        _close(old)


def _close(connection: SfmConnection) -> None:
    """Close a connection at once; NVFlare itself would wait for one more frame from the other end."""
    context = connection.conn.context
    connection.conn.close()
    if context is not None:
        context.cancel()


class SealedCell(CoreCell):
    """A cell that delivers messages of one topic from known peers.

    Parameters
    ----------
    name
        Its name: `HUB`, or a site's.
    url
        The address on which the hub listens.
    kit
        The folder of the kit.
    peers
        The cells it talks to. Messages from others, or in the name of others, are dropped.
    on_message
        Called with the peer's name and the bytes of every message.
    on_change
        Called with a peer's name and whether it is now connected.
    """

    def __init__(
        self,
        name: str,
        url: str,
        kit: Path,
        peers: frozenset[str],
        on_message: Callable[[str, bytes], None],
        on_change: Callable[[str, bool], None],
    ) -> None:
        self._peers, self._on_message, self._on_change = peers, on_message, on_change
        self._questions: Counter[str] = Counter()  # that a site has not answered
        self._questions_lock = threading.Lock()
        super().__init__(name, url, True, credentials(kit, name == HUB))

    def process_message(self, endpoint: Endpoint, connection: Connection, app_id: int, message: Message) -> None:
        """Deliver a message. NVFlare's own handling (forwarding, replies, bulk, certificates) is never reached."""
        peer = endpoint.name
        if peer not in self._peers or message.headers != _headers(peer, self.get_fqcn()) or not self._may_answer(peer):
            time.sleep(UNASKED_SECONDS)  # in the thread that reads from this peer, so only that peer is slowed down
            return
        self._on_message(peer, bytes(message.payload or b""))

    def _may_answer(self, peer: str) -> bool:
        """Return whether a site was asked, and count its answer; the hub's messages to a site are questions."""
        if self.get_fqcn() != HUB:
            return True
        with self._questions_lock:
            asked = self._questions[peer] > 0
            self._questions[peer] -= asked
        return asked

    def state_change(self, endpoint: Endpoint) -> None:
        """Report that a peer has connected or disconnected."""
        super().state_change(endpoint)
        if endpoint.name in self._peers:
            self._on_change(endpoint.name, endpoint.state == EndpointState.READY)

    def post(self, peer: str, data: bytes) -> None:
        """Send bytes to a peer; if it is not connected they are lost."""
        agent = self.agents.get(peer)
        if agent is not None:
            with self._questions_lock:
                self._questions[peer] = min(self._questions[peer] + 1, MAX_QUESTIONS)
            with contextlib.suppress(CommError):
                self.communicator.send(agent.endpoint, self.APP_ID, Message(_headers(self.get_fqcn(), peer), data))


def _headers(origin: str, destination: str) -> dict[str, str]:
    """Return all headers of a message; a message with any others is dropped."""
    return {
        MessageHeaderKey.CHANNEL: CHANNEL,
        MessageHeaderKey.TOPIC: TOPIC,
        MessageHeaderKey.ORIGIN: origin,
        MessageHeaderKey.DESTINATION: destination,
    }


class OneStreamServicer(grpc_driver.Servicer):
    """A gRPC servicer that allows one stream per site: a second one ends the first.

    A certificate that is not a site's current one is rejected.
    """

    certificates: ClassVar[Mapping[str, str]] = {}
    _open: ClassVar[dict[str, Any]] = {}
    _began: ClassVar[dict[str, float]] = {}
    _lock = threading.Lock()

    def Stream(self, request_iterator: Any, context: Any) -> Iterator[Any]:  # noqa: N802  gRPC's name
        """Serve one connection of a site."""
        found = context.auth_context()
        site = (found.get("x509_common_name") or [b""])[0].decode("utf-8", "replace")
        pem = (found.get("x509_pem_cert") or [b""])[0].decode("ascii", "replace")
        if not pem or self.certificates.get(site) != hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest():
            log.warning("rejected a certificate of %r", site)
            context.cancel()
            return
        with self._lock:
            now = time.monotonic()
            too_soon = now - self._began.get(site, -STREAM_SECONDS) < STREAM_SECONDS
            if not too_soon:
                self._began[site] = now
                before, self._open[site] = self._open.get(site), context
        if too_soon:
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
