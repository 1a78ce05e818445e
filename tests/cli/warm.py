"""A process that has Taciturn and its libraries loaded and forks a child for every command.

Most of the time of a short command is imports, and the tests run hundreds of them. The child is a real process with its
own streams, folder, environment and exit code. `test_cold_start` covers what this hides: imports that fail.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
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
)
DRAWING = (
    "matplotlib.backends.backend_svg",
    "matplotlib.backends.backend_agg",
    "taciturn.reporting.figures.run_figure",
    "taciturn.reporting.figures.calibration_figure",
)
MESSAGE = 200_000  # bytes, at most
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
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._streams = [tempfile.TemporaryFile() for _ in ("stdout", "stderr")]  # noqa: SIM115
        asked = {"words": list(words), "cwd": str(cwd or Path.cwd()), "env": dict(env), "pictures": pictures}
        with theirs:
            handles = [*(stream.fileno() for stream in self._streams), theirs.fileno()]
            socket.send_fds(_nursery(loaded), [json.dumps(asked).encode()], handles)
        self.pid = int(self._status.recv(64))

    def __del__(self) -> None:
        self._status.close()
        for stream in self._streams:
            stream.close()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                self.returncode = int(self._status.recv(64))
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
        out, err = ((stream.seek(0), stream.read().decode())[1] for stream in self._streams)
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


@cache
def _nursery(libraries: tuple[str, ...]) -> socket.socket:
    """Return a socket to the forking process, which ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.cli.warm", str(theirs.fileno()), *libraries]
    env = {**os.environ, "COLUMNS": "100"}  # rich measures the terminal when it is loaded
    process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(place: socket.socket, libraries: Sequence[str]) -> None:
    """Fork a child for every request; send its process id, then its exit code. Returns in the child."""
    for name in (*LIBRARIES, *DRAWING, *libraries, "taciturn.cli"):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.freeze()
    ended, told = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(told, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    children: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([place.fileno(), ended], [], [])
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(ended, 4096)
            for child in list(children):
                found, status = os.waitpid(child, os.WNOHANG)
                if found:
                    with children.pop(child) as asker, contextlib.suppress(OSError):
                        asker.send(str(os.waitstatus_to_exitcode(status)).encode())
        if place.fileno() in ready:
            message, handles, _, _ = socket.recv_fds(place, MESSAGE, 3)
            if not message:
                os._exit(0)
            *streams, status_to = handles
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (place, *children.values()):
                    other.close()
                for handle in (status_to, ended, told):
                    os.close(handle)
                become(json.loads(message), streams)
                return
            for stream in streams:
                os.close(stream)
            children[child] = socket.socket(fileno=status_to)
            children[child].send(str(child).encode())


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
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    leave(obey(*sys.argv[1:]))
