"""One file over http, resumed where an earlier try stopped."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO, cast

from tacit.data.base import Progress

TIMEOUT = 10.0  # seconds to connect, and to wait for each piece
FILE_SECONDS = 600.0
PIECE = 1 << 16


class DownloadError(Exception):
    """Why a file did not arrive, in a few words."""


def download(url: str, part: Path, progress: Progress, good: Callable[[Path], bool]) -> None:
    """Bring `part` up to the whole content of the URL; what it already holds is not asked for again."""
    name = part.name.removesuffix(".part")
    resumed = _held(part) > 0
    if resumed and good(part):
        return
    _append(url, part, name, progress)
    if resumed and not good(part):
        part.unlink()  # the beginning was of another file: once more from nothing
        _append(url, part, name, progress)
    if not good(part):
        part.unlink()
        raise DownloadError(f"{name} came with the wrong MD5")


def _append(url: str, part: Path, name: str, progress: Progress) -> None:
    try:
        with _open(url, _held(part)) as response:
            done = _held(part) if response.status == 206 else 0
            total = _total(response, done)
            with part.open("ab" if done else "wb") as out:
                done = _copy(response, out, done, lambda bytes_: progress(name, bytes_, total))
    except urllib.error.HTTPError as error:
        with error:
            raise DownloadError(f"{name}: HTTP {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise DownloadError(f"{name}: {getattr(error, 'reason', None) or error}") from None
    if total is not None and done != total:
        raise DownloadError(f"{name}: {done} of {total} bytes came")


def _open(url: str, held: int) -> HTTPResponse:
    headers = {"Range": f"bytes={held}-"} if held else {}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not held:
            raise
        error.close()
        response = urllib.request.urlopen(url, timeout=TIMEOUT)  # nothing after what we hold: ask for all of it
    return cast(HTTPResponse, response)


def _copy(response: HTTPResponse, out: BinaryIO, done: int, tell: Callable[[int], None]) -> int:
    deadline = time.monotonic() + FILE_SECONDS
    tell(done)
    while piece := response.read(PIECE):
        out.write(piece)
        done += len(piece)
        tell(done)
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {FILE_SECONDS:g} seconds")
    return done


def _total(response: HTTPResponse, done: int) -> int | None:
    length = response.headers.get("Content-Length")
    return done + int(length) if length else None


def _held(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
