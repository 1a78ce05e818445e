"""The engine's program: it carries sealed bytes between the link it was started with and its peers on the network.

Under the hub's name it listens, and its peers are the sites; under a site's name it connects to the hub. It runs
confined and needs three files of its kit, the network, and the link.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from taciturn.federation.link import BrokenLink, Frame, Kind, Link
from taciturn.federation.nvflare.cell import HUB, SealedCell, configure

WAITING = 8  # frames queued for the link; a peer that sends more is slowed down
BEAT = 1.0  # seconds between two heartbeats
LISTEN_SECONDS = 20.0


def main() -> None:
    """Parse the command line and carry messages until the link ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="descriptor of the link")
    parser.add_argument("--kit", type=Path, required=True, help="folder of the kit")
    parser.add_argument("--address", required=True, help="host:port of the hub")
    parser.add_argument("--limit", type=int, required=True, help="maximum bytes of a message")
    parser.add_argument("--name", required=True, help="name of this party")
    parser.add_argument("--peers", required=True, help="names of the peers, separated by commas; at a hub name=SHA-256")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    link = Link(socket.socket(fileno=given.fd), given.limit)
    with contextlib.suppress(BrokenLink):
        peers = dict(peer.partition("=")[::2] for peer in given.peers.split(","))
        carry(link, given.kit, given.address, given.name, peers)
    os._exit(0)  # NVFlare's threads would linger


def carry(link: Link, kit: Path, address: str, name: str, peers: Mapping[str, str]) -> None:
    """Carry frames both ways until the link breaks.

    Parameters
    ----------
    link
        The link to this party's own process.
    kit
        The folder of the kit.
    address
        host:port of the hub.
    name
        `HUB`, or the site's name.
    peers
        The names of the peers; at a hub, each with the SHA-256 of its certificate.

    Raises
    ------
    BrokenLink
        When the link breaks, or if a hub cannot listen.
    """
    configure(link.limit, peers)
    inward: queue.Queue[Frame] = queue.Queue(WAITING)
    cell = SealedCell(
        name,
        f"grpcs://{address}",
        kit,
        frozenset(peers),
        on_message=lambda peer, data: inward.put(Frame(Kind.MESSAGE, peer, data)),
        on_change=lambda peer, up: inward.put(Frame(Kind.UP if up else Kind.DOWN, peer)),
    )
    cell.start()
    threading.Thread(target=_deliver, args=(link, inward), daemon=True).start()
    if name == HUB:
        _wait_for_listener(address)
        inward.put(Frame(Kind.LISTENING, ""))
    while True:
        frame = link.receive(3600.0)
        if frame is not None and frame.kind is Kind.MESSAGE and frame.peer in peers:
            cell.post(frame.peer, frame.data)


def _deliver(link: Link, inward: queue.Queue[Frame]) -> None:
    """Send frames from the network into the link, and heartbeats while there are none."""
    with contextlib.suppress(BrokenLink):
        while True:
            try:
                frame = inward.get(timeout=BEAT)
            except queue.Empty:
                frame = Frame(Kind.BEAT, "")
            link.send(frame)
    os._exit(0)


def _wait_for_listener(address: str) -> None:
    """Connect to the port until it answers: NVFlare does not report that it cannot listen."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + LISTEN_SECONDS
    while time.monotonic() <= end:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
            return
        time.sleep(0.05)
    raise BrokenLink(f"nothing listens on {address}")


if __name__ == "__main__":
    main()
