"""What the commands that stay up write: lines for people, in files that are rotated, and an audit for syslog."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler, SysLogHandler
from pathlib import Path
from typing import IO, Protocol

from taciturn.errors import InputError
from taciturn.federation.journal import timestamp

LOG, AUDIT = logging.getLogger("taciturn.federation"), logging.getLogger("taciturn.audit")
SIZE, FILES = 10_000_000, 10  # bytes of a log, and how many there are
SYSLOG, DEVICE = "syslog", "/dev/log"
SECONDS = 1.0  # that a syslog which does not read can hold up its writer

Say = Callable[[str], None]


class AuditLog(Protocol):
    """Take note of something that happened."""

    def __call__(self, event: str, /, **facts: object) -> None:
        """Write one line: when, who, what, and the facts of it."""
        ...


@dataclass
class Seldom:
    """Whether to write of what others can cause as often as they like: 20 times at once, then once a minute."""

    left: float = 20.0
    at: float = field(default_factory=time.monotonic)

    def __call__(self) -> bool:
        """Whether there is room for one line more."""
        now = time.monotonic()
        self.left, self.at = min(20.0, self.left + (now - self.at) / 60.0), now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


def no_audit(event: str, /, **facts: object) -> None:
    """Nobody asked for an audit."""


@contextmanager
def logged(file: Path | None, show: Say) -> Iterator[Say]:
    """Where sentences go: to a private file, ten of 10 MB at most, or where there is none to `show`.

    They are records of the logger `taciturn.federation`, so that a program which runs a site may handle them itself.
    """
    handler: logging.Handler = _Shown(show) if file is None else _private_file(file)
    with _handling(LOG, handler):
        yield lambda sentence: LOG.info("%s", sentence)


@contextmanager
def audited(where: str, who: str) -> Iterator[AuditLog]:
    """Where audit lines go, one JSON object each.

    Parameters
    ----------
    where
        Empty for nowhere, `syslog` for `/dev/log`, or `syslog:PATH` for another Unix datagram socket.
    who
        The site, or `coordinator`.

    Raises
    ------
    InputError
        If there is no such socket. A network address is no choice: the process that holds records opens none, and a
        local syslog can pass lines on.
    """
    if not where:
        yield no_audit
        return
    with _handling(AUDIT, _syslog(where)):
        yield lambda event, /, **facts: AUDIT.info(
            "%s", json.dumps({"time": timestamp(), "party": who, "event": event, **facts})
        )


def check_audit(name: str, given: object) -> str:
    """The rule for where audit lines go."""
    if not isinstance(given, str) or (given not in ("", SYSLOG) and not given.startswith(f"{SYSLOG}:/")):
        raise InputError(
            f"{name} is {given!r:.80}: it must be '{SYSLOG}', or '{SYSLOG}:' and the path of a Unix datagram socket; "
            "this process opens no network connection, and a local syslog can pass lines on"
        )
    return given


@contextmanager
def _handling(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
        with suppress(OSError):  # of a full disk
            handler.close()


class _Shown(logging.Handler):
    """To a person, as a sentence."""

    def __init__(self, show: Say) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())


class _Lossy(logging.Handler):
    """A handler that may fail, of a full disk or a syslog that is gone: work goes on, and it is said once."""

    told = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging calls it so
        """Say the first loss."""
        if not self.told:
            self.told = True
            error = sys.exc_info()[1]
            sys.stderr.write(f"a line of the {record.name} log is lost ({error}); later ones may be, too\n")


class _Rotated(_Lossy, RotatingFileHandler):
    def _open(self) -> IO[str]:  # type: ignore[override]
        return open(self.baseFilename, self.mode, encoding="utf-8", opener=_private)


class _System(_Lossy, SysLogHandler):
    def _connect_unixsocket(self, address: str) -> None:
        super()._connect_unixsocket(address)  # type: ignore[misc]
        self.socket.settimeout(SECONDS)  # type: ignore[attr-defined]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _private_file(file: Path) -> logging.Handler:
    try:
        handler = _Rotated(file, maxBytes=SIZE, backupCount=FILES - 1)
    except OSError as error:
        raise InputError(f"cannot write the log {file}: {error.strerror}") from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    return handler


def _syslog(where: str) -> logging.Handler:
    path = check_audit("audit", where).partition(":")[2] or DEVICE
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
            trial.connect(path)
        handler = _System(path, socktype=socket.SOCK_DGRAM)
    except OSError as error:
        raise InputError(f"audit lines were asked for, and no syslog takes them at {path}: {error.strerror}") from None
    handler.ident = "taciturn: "
    handler.append_nul = False
    return handler
