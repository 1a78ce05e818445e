"""The engine as a program: it carries sealed bytes between the link it was started with and its peers on the network.

With the name of the hub it listens, and its peers are the sites; with a site's name it connects to the hub. It runs
confined, and needs its kit's three files, the network, and the link.
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
from taciturn.federation.nvflare.door import HUB, Door, configure

WAITING = 8  # frames on their way to the link; a peer that sends more is slowed down
BEAT = 1.0  # seconds between two signs of life
LISTEN_SECONDS = 20.0


def main() -> None:
    """Carry until the link ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the link")
    parser.add_argument("--kit", type=Path, required=True)
    parser.add_argument("--address", required=True, help="host:port of the hub")
    parser.add_argument("--limit", type=int, required=True, help="the longest message, in bytes")
    parser.add_argument("--name", required=True, help="its own name")
    parser.add_argument("--peers", required=True, help="whom it talks to, with commas; a hub's peers as name=SHA-256")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    link = Link(socket.socket(fileno=given.fd), given.limit)
    with contextlib.suppress(BrokenLink):
        peers = dict(peer.partition("=")[::2] for peer in given.peers.split(","))
        carry(link, given.kit, given.address, given.name, peers)
    os._exit(0)  # NVFlare's threads would linger


def carry(link: Link, kit: Path, address: str, name: str, peers: Mapping[str, str]) -> None:
    """Frames both ways, until the link breaks."""
    configure(link.limit, peers)
    inward: queue.Queue[Frame] = queue.Queue(WAITING)
    door = Door(
        name,
        f"grpcs://{address}",
        kit,
        frozenset(peers),
        took=lambda peer, data: inward.put(Frame(Kind.MESSAGE, peer, data)),
        changed=lambda peer, up: inward.put(Frame(Kind.UP if up else Kind.DOWN, peer)),
    )
    door.start()
    threading.Thread(target=_deliver, args=(link, inward), daemon=True).start()
    if name == HUB:
        _wait_for_listener(address)
        inward.put(Frame(Kind.LISTENING, ""))
    while True:
        frame = link.receive(3600.0)
        if frame is not None and frame.kind is Kind.MESSAGE and frame.peer in peers:
            door.post(frame.peer, frame.data)


def _deliver(link: Link, inward: queue.Queue[Frame]) -> None:
    """What came from the network, into the link; and a sign of life where nothing comes."""
    with contextlib.suppress(BrokenLink):
        while True:
            try:
                frame = inward.get(timeout=BEAT)
            except queue.Empty:
                frame = Frame(Kind.BEAT, "")
            link.send(frame)
    os._exit(0)


def _wait_for_listener(address: str) -> None:
    """NVFlare says nothing where it cannot listen: try the port."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + LISTEN_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
            return
        if time.monotonic() > end:
            raise BrokenLink(f"nothing listens on {address}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
