"""A cell with one door: messages of one topic between hub and sites, of a bounded size. All else is dropped."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from nvflare.fuel.f3 import comm_config
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers import grpc_driver
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.endpoint import Endpoint, EndpointState
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.sfm import conn_manager

CHANNEL, TOPIC = "tacit", "sealed"
HUB = "server"  # what NVFlare calls the cell that others connect to
ENVELOPE = 4096  # bytes that cells add to a payload, at most
HANDSHAKE_SECONDS = 10  # for TLS; NVFlare leaves gRPC's 120
KEEPALIVE_SECONDS = 10
LONGEST_WAIT = 2  # seconds between two tries to connect; NVFlare's are up to 10

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
    conn_manager.ConnManager.process_frame = conn_manager.ConnManager.process_frame_task
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
        super().__init__(name, url, True, credentials(kit, name == HUB))

    def process_message(self, endpoint: Endpoint, connection: Connection, app_id: int, message: Message) -> None:
        """The only way in. NVFlare's own handling (forwarding, replies, bulk, certificates) is never reached."""
        if endpoint.name in self._peers and message.headers == _head(endpoint.name, self.get_fqcn()):
            self._took(endpoint.name, bytes(message.payload or b""))

    def state_change(self, endpoint: Endpoint) -> None:
        """A peer has come or gone."""
        super().state_change(endpoint)
        if endpoint.name in self._peers:
            self._changed(endpoint.name, endpoint.state == EndpointState.READY)

    def post(self, peer: str, data: bytes) -> None:
        """Send bytes to a peer; where it is not connected they are lost, as on any network."""
        agent = self.agents.get(peer)
        if agent is not None:
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
            before, self._open[site] = self._open.get(site), context
        if before is not None:
            before.cancel()
        try:
            yield from super().Stream(request_iterator, context)
        finally:
            with self._lock:
                if self._open.get(site) is context:
                    del self._open[site]
