"""A process that has Taciturn and its libraries loaded and forks a child for every command.

Most of the time of a short command is imports, and the tests run hundreds of them. The child is a real process with its
own streams, folder, environment and exit code. `test_cold_start` covers what this hides: imports that fail. The workers
of a session share one forking process; one with more loaded, such as torch, is a child of it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

LIBRARIES = (
    "dp_accounting",
    "scipy.optimize",
    "scipy.stats",
    "rich.progress",
    "jinja2",
    "tomli_w",
    "pyarrow.parquet",
    "cryptography.hazmat.primitives.serialization",
    "matplotlib.backends.backend_svg",
    "matplotlib.backends.backend_agg",
)
PACKAGES = ("algorithms", "cli", "data", "objectives", "planning", "privacy", "reporting", "runs", "training")
PLACE = "TACITURN_TEST_PROCESSES"  # the variable with the folder of the forking processes' addresses
MESSAGE = 200_000  # bytes, at most
MOST_PRINTED = 1 << 26  # bytes, at most
NUMBER = struct.Struct("q")  # the process id of a child, then its exit code
ROOT = Path(__file__).parents[2]
PATIENCE = 300.0  # seconds that a process of a test may take: other work on the machine may keep it waiting


def run(
    words: Sequence[str],
    cwd: Path | None,
    env: Mapping[str, str],
    timeout: float = PATIENCE,
    pictures: bool = True,
    loaded: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS`, where the words are `-m taciturn ...` or `-c CODE`, as `subprocess.run` would.

    Without `pictures` reports have words in place of figures, which take most of the time of a small run. The modules
    `loaded` are loaded already.
    """
    process = Process(words, cwd, env, pictures, loaded)
    try:
        texts = process.communicate(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise AssertionError(f"{words} took more than {timeout:g} seconds") from None
    return subprocess.CompletedProcess(list(words), process.wait(), *texts)


class Process:
    """A child of the forking process, used as a `subprocess.Popen` whose output is text.

    `loaded` names modules that are loaded besides Taciturn and its libraries.
    """

    def __init__(
        self,
        words: Sequence[str],
        cwd: Path | None,
        env: Mapping[str, str],
        pictures: bool = True,
        loaded: tuple[str, ...] = (),
    ) -> None:
        self.returncode: int | None = None
        self._streams = [tempfile.TemporaryFile() for _ in ("stdout", "stderr")]  # noqa: SIM115
        asked = {"words": list(words), "cwd": str(cwd or Path.cwd()), "env": dict(env), "pictures": pictures}
        self._status = _ask(_nursery(loaded), asked, [stream.fileno() for stream in self._streams])
        self.pid = _number(self._status)

    def __del__(self) -> None:
        self._status.close()
        for stream in self._streams:
            stream.close()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                self.returncode = _number(self._status)
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0) from None
            self._status.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired, BlockingIOError):
            return self.wait(0.0)
        return None

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end and return what was printed."""
        self.wait(timeout)
        return self.printed()

    def printed(self) -> tuple[str, str]:
        """Return what was printed so far."""
        out, err = (os.pread(stream.fileno(), MOST_PRINTED, 0).decode() for stream in self._streams)
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _connected(address: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect(str(address))
    except OSError:
        found.close()
        raise
    return found


def _ask(address: Path, asked: Mapping[str, Any], handles: Sequence[int]) -> socket.socket:
    """Send a request with open files; the replies come on the connection that is returned."""
    place = _connected(address)
    message = json.dumps(asked).encode() + b"\n"
    sent = socket.send_fds(place, [message], handles)
    place.sendall(message[sent:])
    return place


def _number(place: socket.socket) -> int:
    (found,) = NUMBER.unpack(place.recv(NUMBER.size, socket.MSG_WAITALL))
    return int(found)


@cache
def _nursery(libraries: tuple[str, ...]) -> Path:
    """Return the address of the forking process with these libraries, started if it is not there.

    It ends when nobody is connected to it any more, and this process stays connected until its end.
    """
    address = Path(os.environ[PLACE]) / hashlib.sha256(" ".join(libraries).encode()).hexdigest()[:8]
    with address.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            held = _connected(address)
        except OSError:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(address))
                listener.listen(64)
                held = _connected(address)
                _start(listener, libraries)
    atexit.register(held.close)
    return address


def _start(listener: socket.socket, libraries: tuple[str, ...]) -> None:
    if libraries:
        with _ask(_nursery(()), {"load": libraries}, [listener.fileno()]) as place:
            _number(place)
        return
    command = [sys.executable, "-m", "tests.cli.warm", str(listener.fileno())]
    env = {**os.environ, "COLUMNS": "100"}  # rich measures the terminal when it is loaded
    process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)
    atexit.register(process.wait)


def serve(listener: socket.socket) -> None:
    """Fork a child for every request; send its process id, then its exit code. Returns in the child."""
    ended, told = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(told, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    silent: set[socket.socket] = set()  # connections on which no request has come
    children: dict[int, socket.socket] = {}
    begun = False
    while True:
        if begun and not silent and not children and not _comes(listener, silent):
            os._exit(0)
        waiting: list[Any] = [listener, ended, *silent]
        ready, _, _ = select.select(waiting, [], [])
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(ended, 4096)
            _tell_ends(children)
        if listener in ready:
            silent.add(listener.accept()[0])
            begun = True
        for place in silent.intersection(ready):
            silent.remove(place)
            message, handles = _request(place)
            if not message:
                place.close()
                continue
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (listener, place, *silent, *children.values()):
                    other.close()
                os.close(ended)
                os.close(told)
                asked = json.loads(message)
                if "load" in asked:
                    load(asked["load"])
                    serve(socket.socket(fileno=handles[0]))
                else:
                    become(asked, handles)
                return
            for handle in handles:
                os.close(handle)
            children[child] = place
            place.send(NUMBER.pack(child))


def _tell_ends(children: dict[int, socket.socket]) -> None:
    for child in list(children):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            with children.pop(child) as asker, contextlib.suppress(OSError):
                asker.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _comes(listener: socket.socket, silent: set[socket.socket]) -> bool:
    """Give up the address, and return whether somebody connected before; others will start another process."""
    Path(listener.getsockname()).unlink(missing_ok=True)
    while select.select([listener], [], [], 0)[0]:
        silent.add(listener.accept()[0])
    return bool(silent)


def _request(place: socket.socket) -> tuple[bytes, list[int]]:
    """Return a request and the files that came with it; none when the connection has ended."""
    message, handles, _, _ = socket.recv_fds(place, MESSAGE, 2)
    while message and not message.endswith(b"\n"):
        more = place.recv(MESSAGE)
        message = message + more if more else b""
    return message, handles


def load(names: Sequence[str]) -> None:
    """Load modules, which stay: to search for garbage among them takes longer than some commands."""
    gc.disable()
    for name in names:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


def modules() -> list[str]:
    """Return the modules that commands load: of what is registered by name, and of the command line."""
    import taciturn

    folders = [f"{place}/{package}" for place in taciturn.__path__ for package in PACKAGES]
    return [
        name
        for package, folder in zip(PACKAGES, folders, strict=True)
        for _, name, _ in pkgutil.walk_packages([folder], f"taciturn.{package}.")
    ]


def become(asked: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Take over the streams, the folder and the environment of the request."""
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(str(asked["cwd"]))
    os.environ.clear()
    os.environ.update(asked["env"])
    if not asked["pictures"]:
        report: Any = importlib.import_module("taciturn.reporting.report")
        report._picture = in_words
    sys.argv = ["-m", *asked["words"]]
    sys.path[:1] = [str(asked["cwd"]), *filter(None, asked["env"].get("PYTHONPATH", "").split(os.pathsep))]


def in_words(draw: object, title: str, words: str) -> str:
    """Return the text that a report has in place of a figure."""
    return f"{title}. {words}"


def obey(kind: str, what: str, *rest: str) -> int:
    """Run a module or code as Python does, and return the exit code."""
    sys.argv = [kind, *rest]
    try:
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def leave(code: int) -> None:
    """Exit as Python does, without the slow destruction of all modules."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    load((*LIBRARIES, *modules()))
    serve(socket.socket(fileno=int(sys.argv[1])))
    leave(obey(*sys.argv[1:]))
