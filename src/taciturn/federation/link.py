"""The link between a party's own process and the engine that carries its messages: frames of limited length.

Whatever an engine does wrong, a vault or a coordinator accepts nothing from it except these frames. A frame has a kind,
the name of a peer, and bytes. The module uses only the standard library, because confined programs import it too.
"""

from __future__ import annotations

import enum
import re
import select
import socket
import struct
import time
from typing import NamedTuple

HEAD = struct.Struct(">BBI")  # kind, length of the peer's name, length of the payload
PEER = re.compile(rb"[a-z0-9][a-z0-9-]{0,40}")
CHUNK = 1 << 16


class Kind(enum.IntEnum):
    """The kind of a frame."""

    UP = 1  # from an engine: the peer is connected
    DOWN = 2  # from an engine: it is no longer connected
    MESSAGE = 3  # both ways: bytes from the peer, or for it
    LISTENING = 4  # from a hub: sites can connect now
    BEAT = 5  # from an engine: it is alive


class Frame(NamedTuple):
    """One frame."""

    kind: Kind
    peer: str
    data: bytes = b""


class BrokenLink(Exception):
    """The other end is gone, or does not follow the protocol."""


class Link:
    """One end of a socket pair.

    Parameters
    ----------
    end
        A connected stream socket, which the link owns.
    limit
        Maximum bytes of a payload. A longer one breaks the link before memory is allocated for it.
    """

    def __init__(self, end: socket.socket, limit: int) -> None:
        self._end, self.limit = end, limit
        self._buffer = bytearray()
        self._end.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._end.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._end.close()

    def send(self, frame: Frame, patience: float = 30.0) -> None:
        """Send a whole frame.

        Raises
        ------
        BrokenLink
            If the other end is gone or does not read for `patience` seconds.
        """
        name = frame.peer.encode()
        left = memoryview(HEAD.pack(frame.kind, len(name), len(frame.data)) + name + frame.data)
        deadline = time.monotonic() + patience
        while left:
            try:
                left = left[self._end.send(left) :]
            except BlockingIOError as error:
                _, writable, _ = select.select([], [self._end], [], max(0.0, deadline - time.monotonic()))
                if not writable:
                    raise BrokenLink("the other end does not read") from error
            except OSError as error:
                raise BrokenLink(str(error)) from error

    def receive(self, seconds: float) -> Frame | None:
        """Return the next frame, or None if none arrives within `seconds`.

        Raises
        ------
        BrokenLink
            If the other end is gone or sends something other than a frame.
        """
        deadline = time.monotonic() + seconds
        while True:
            frame = self._next()
            if frame is not None:
                return frame
            try:
                readable, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
                if not readable:
                    return None
                data = self._end.recv(CHUNK)
            except BlockingIOError:
                continue
            except (OSError, ValueError) as error:
                raise BrokenLink(str(error)) from error
            if not data:
                raise BrokenLink("the other end has closed the link")
            self._buffer += data

    def _next(self) -> Frame | None:
        """Return the first complete frame in the buffer."""
        if len(self._buffer) < HEAD.size:
            return None
        kind, named, size = HEAD.unpack_from(self._buffer)
        if size > self.limit:
            raise BrokenLink(f"a frame has {size} bytes, and at most {self.limit} are allowed")
        start, end = HEAD.size + named, HEAD.size + named + size
        if len(self._buffer) < end:
            return None
        name, data = bytes(self._buffer[HEAD.size : start]), bytes(self._buffer[start:end])
        del self._buffer[:end]
        if kind not in Kind.__members__.values() or (name and not PEER.fullmatch(name)):
            raise BrokenLink("a frame has an unknown kind or an invalid peer name")
        return Frame(Kind(kind), name.decode(), data)


def pair(limit: int) -> tuple[Link, socket.socket]:
    """Return a link and its other end, for a child process."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Link(mine, limit), theirs
