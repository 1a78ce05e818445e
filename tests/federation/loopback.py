"""The bytes that processes on this machine really send each other over TCP, and what their journals hold meanwhile."""

from __future__ import annotations

import socket
import sqlite3
import struct
import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALL_PROTOCOLS, TO_THIS_HOST = 3, 0  # of Linux's packet sockets
BUFFER = 64 << 20
BUFFER_FORCED = 33  # the option SO_RCVBUFFORCE
TCP = 6
QUERIES = ("select secrets from sum_secrets", "select shares from sum_shares")


def can_record() -> bool:
    """Return whether this process may see the packets of the loopback device."""
    if not hasattr(socket, "AF_PACKET"):
        return False
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True


@dataclass
class Recorder:
    """Records the loopback device while a federation below a folder runs, and once what its journals keep secret."""

    root: Path
    elements: set[bytes] = field(default_factory=set)  # secrets and shares, 32 bytes each
    _streams: dict[tuple[int, int], dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    _done: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Recorder:
        if can_record():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PROTOCOLS))
            self._socket.bind(("lo", ALL_PROTOCOLS))
            self._socket.settimeout(0.1)
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, BUFFER_FORCED, BUFFER)
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        if can_record():
            self._thread.join()
            self._socket.close()

    def streams(self, port: int) -> list[bytes]:
        """Return what was sent to a port and from it, in each direction of each connection."""
        found = [parts for ports, parts in self._streams.items() if port in ports]
        return [b"".join(parts[number] for number in sorted(parts)) for parts in found]

    def _run(self) -> None:
        while not self._done.is_set():
            with suppress(TimeoutError):
                packet, (_, _, kind, *_) = self._socket.recvfrom(1 << 17)
                if kind == TO_THIS_HOST:
                    self._keep(packet)
            rounds = self.root / "run" / "rounds.jsonl"
            if not self.elements and rounds.exists() and rounds.stat().st_size:  # the first round is done
                self._read_journals()

    def _keep(self, packet: bytes) -> None:
        six = packet[0] >> 4 == 6
        start = 40 if six else 4 * (packet[0] & 15)
        if packet[6 if six else 9] != TCP:
            return
        source, target, number = struct.unpack_from(">HHI", packet, start)
        data = packet[start + 4 * (packet[start + 12] >> 4) :]
        if data:
            self._streams[source, target][number] = data

    def _read_journals(self) -> None:
        for path in self.root.glob("sites/*/state/journal.sqlite"):
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as journal:
                blobs = [row[0] for query in QUERIES for row in journal.execute(query).fetchall()]
            self.elements |= {blob[at : at + 32] for blob in blobs for at in range(0, len(blob), 32)}


def windows(data: bytes) -> NDArray[np.uint64]:
    """Return every eight bytes in a row."""
    parts = [np.frombuffer(data, "<u8", (len(data) - start) // 8, start) for start in range(min(8, len(data) - 7))]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def count_found(needles: Iterable[bytes], streams: Iterable[bytes]) -> int:
    """Return how many windows of the streams are windows of a needle; those that are mostly padding do not count."""
    wanted = np.unique(windows(b"".join(needles)))
    kinds = np.sort(wanted.view(np.uint8).reshape(-1, 8), axis=1)
    wanted = wanted[(np.diff(kinds, axis=1) != 0).sum(axis=1) >= 4]  # five different bytes or more
    mask = np.uint64((1 << 24) - 1)
    likely = np.zeros(1 << 24, bool)
    likely[wanted >> np.uint64(8) & mask] = True
    there = map(windows, streams)
    kept = np.concatenate([found[likely[found >> np.uint64(8) & mask]] for found in there])
    return int(np.isin(kept, wanted).sum())
