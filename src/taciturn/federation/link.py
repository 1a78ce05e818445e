"""The wire between a party's own process and the engine that carries its messages: length-limited frames.

Whatever an engine does wrong, a vault or a coordinator takes from it nothing but these frames. A frame has a kind, the
name of a peer, and bytes. The standard library is all it needs, because the engines' confined programs use it too.
"""

from __future__ import annotations

import enum
import re
import select
import socket
import struct
import time
from typing import NamedTuple

HEAD = struct.Struct(">BBI")  # kind, length of the name, length of the payload
PEER = re.compile(rb"[a-z0-9][a-z0-9-]{0,40}")
CHUNK = 1 << 16


class Kind(enum.IntEnum):
    """What a frame says."""

    UP = 1  # an engine: the peer is connected
    DOWN = 2  # an engine: it no longer is
    MESSAGE = 3  # both ways: bytes from the peer, or for it
    LISTENING = 4  # a hub: sites can connect now
    BEAT = 5  # an engine: it is alive


class Frame(NamedTuple):
    """One frame."""

    kind: Kind
    peer: str
    data: bytes = b""


class BrokenLink(Exception):
    """The other end is gone, or speaks something else."""


class Link:
    """One end of a socket pair.

    Parameters
    ----------
    end
        A connected stream socket; the link owns it.
    limit
        The longest payload that is taken. A longer one breaks the link before memory is set aside for it.
    """

    def __init__(self, end: socket.socket, limit: int) -> None:
        self._end, self.limit = end, limit
        self._buffer = bytearray()
        self._end.setblocking(False)

    def fileno(self) -> int:
        """For `select`."""
        return self._end.fileno()

    def close(self) -> None:
        """Hang up."""
        self._end.close()

    def send(self, frame: Frame, patience: float = 30.0) -> None:
        """Send a frame whole; an end that does not read for `patience` seconds breaks the link."""
        name = frame.peer.encode()
        left = memoryview(HEAD.pack(frame.kind, len(name), len(frame.data)) + name + frame.data)
        deadline = time.monotonic() + patience
        while left:
            try:
                left = left[self._end.send(left) :]
            except BlockingIOError:
                _, writable, _ = select.select([], [self._end], [], max(0.0, deadline - time.monotonic()))
                if not writable:
                    raise BrokenLink("the other end does not read") from None
            except OSError as error:
                raise BrokenLink(str(error)) from None

    def receive(self, seconds: float) -> Frame | None:
        """The next frame, or None where none comes in time."""
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
                raise BrokenLink(str(error)) from None
            if not data:
                raise BrokenLink("the other end has hung up")
            self._buffer += data

    def _next(self) -> Frame | None:
        """The first whole frame that was read."""
        if len(self._buffer) < HEAD.size:
            return None
        kind, named, size = HEAD.unpack_from(self._buffer)
        if size > self.limit:
            raise BrokenLink(f"a frame of {size} bytes is longer than the {self.limit} it may have")
        end = HEAD.size + named + size
        if len(self._buffer) < end:
            return None
        name = bytes(self._buffer[HEAD.size : HEAD.size + named])
        data = bytes(self._buffer[HEAD.size + named : end])
        del self._buffer[:end]
        if kind not in Kind.__members__.values() or (name and not PEER.fullmatch(name)):
            raise BrokenLink("a frame of an unknown kind, or of a peer with an impossible name")
        return Frame(Kind(kind), name.decode(), data)


def pair(limit: int) -> tuple[Link, socket.socket]:
    """A link, and the other end of it for a child process."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Link(mine, limit), theirs
