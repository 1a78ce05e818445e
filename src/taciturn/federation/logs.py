"""Logs of the long-running commands: messages for people in rotated files, and audit records for syslog."""

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
SIZE, FILES = 10_000_000, 10  # bytes of a log file, and the number of files
SYSLOG, DEVICE = "syslog", "/dev/log"
SECONDS = 1.0  # for which a syslog that does not read can delay its writer
BURST, PER_MINUTE = 20.0, 1.0  # records of a RateLimit


class AuditLog(Protocol):
    """A function that writes one audit record."""

    def __call__(self, event: str, /, **facts: object) -> None:
        """Write the time, the party, the event and its facts as one line."""
        ...


@dataclass
class RateLimit:
    """A limit for records that others can cause at will: 20 at once, then one a minute.

    >>> limit = RateLimit()
    >>> sum(limit.allows() for _ in range(100))
    20
    """

    left: float = BURST
    at: float = field(default_factory=time.monotonic)

    def allows(self) -> bool:
        """Return whether one more record may be written, and count it."""
        moment = time.monotonic()
        self.left = min(BURST, self.left + PER_MINUTE * (moment - self.at) / 60.0)
        self.at = moment
        allowed = self.left >= 1.0
        self.left -= allowed
        return allowed


def is_noted(count: int) -> bool:
    """Return whether a message that others can send at will is noted when it is the 1st, 2nd, 4th, 8th... of its kind.

    >>> [count for count in range(1, 20) if is_noted(count)]
    [1, 2, 4, 8, 16]
    """
    return count & (count - 1) == 0


def no_audit(event: str, /, **facts: object) -> None:
    """Write nothing; the `AuditLog` of a party without an audit."""


@contextmanager
def logged(file: Path | None, show: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Send what `LOG` gets to a file or to a person within the block, and yield the function that logs a message.

    Messages are records of the logger `taciturn.federation`, so a program that runs a site may handle them itself.

    Parameters
    ----------
    file
        The log file, which is private and rotated: ten files of 10 MB at most. None for no file.
    show
        Called with every message if there is no file.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    handler: logging.Handler = _ShowHandler(show) if file is None else _file_handler(file)
    with _handling(LOG, handler):
        yield LOG.info


@contextmanager
def audited(where: str, who: str) -> Iterator[AuditLog]:
    """Yield a function that writes audit records, each one JSON object.

    Parameters
    ----------
    where
        Empty for nowhere, `syslog` for `/dev/log`, or `syslog:PATH` for another Unix datagram socket.
    who
        The site, or `coordinator`.

    Raises
    ------
    InputError
        If there is no such socket. A network address is not a choice: the process that holds records opens no network
        connection, and a local syslog can forward records.
    """
    if not where:
        yield no_audit
        return

    def write(event: str, /, **facts: object) -> None:
        AUDIT.info("%s", json.dumps({"time": timestamp(), "party": who, "event": event, **facts}))

    with _handling(AUDIT, _syslog_handler(where)):
        yield write


def check_audit(name: str, given: object) -> str:
    """Return the destination of audit records if it is valid.

    Raises
    ------
    InputError
        If it is not empty, `syslog` or `syslog:` with an absolute path.
    """
    if not isinstance(given, str) or (given not in ("", SYSLOG) and not given.startswith(f"{SYSLOG}:/")):
        raise InputError(
            f"{name} is {given!r:.80}: it must be '{SYSLOG}', or '{SYSLOG}:' and the path of a Unix datagram socket; "
            "this process opens no network connection, but a local syslog can forward records"
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
        with suppress(OSError):  # from a full disk
            handler.close()


class _ShowHandler(logging.Handler):
    """Show messages to a person."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())


class _LossyHandler(logging.Handler):
    """A handler that may lose records, if a disk is full or syslog is gone; it reports the first loss only."""

    reported = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        if not self.reported:
            self.reported = True
            error = sys.exc_info()[1]
            sys.stderr.write(f"a line of the {record.name} log is lost ({error}); later ones may be lost too\n")


class _RotatedHandler(_LossyHandler, RotatingFileHandler):
    def _open(self) -> IO[str]:  # type: ignore[override]
        return open(self.baseFilename, self.mode, encoding="utf-8", opener=_open_private)


class _SyslogHandler(_LossyHandler, SysLogHandler):
    def _connect_unixsocket(self, address: str) -> None:
        super()._connect_unixsocket(address)  # type: ignore[misc]
        self.socket.settimeout(SECONDS)  # type: ignore[attr-defined]


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _file_handler(file: Path) -> logging.Handler:
    try:
        handler = _RotatedHandler(file, maxBytes=SIZE, backupCount=FILES - 1)
    except OSError as error:
        raise InputError(f"cannot write the log {file}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    return handler


def _syslog_handler(where: str) -> logging.Handler:
    path = check_audit("audit", where).partition(":")[2] or DEVICE
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
            trial.connect(path)
        handler = _SyslogHandler(path, socktype=socket.SOCK_DGRAM)
    except OSError as error:
        raise InputError(f"an audit was requested, but no syslog listens at {path}: {error.strerror}") from error
    handler.ident = "taciturn: "
    handler.append_nul = False
    return handler
