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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taciturn.runs.folder import RunFolder

LIBRARIES = ("dp_accounting", "scipy.optimize", "rich.progress", "jinja2", "tomli_w", "pyarrow.parquet")
DRAWING = (
    "matplotlib.backends.backend_svg",
    "matplotlib.backends.backend_agg",
    "taciturn.reporting.figures.run_figure",
)
MESSAGE = 200_000  # bytes, at most
ROOT = Path(__file__).parents[2]
PATIENCE = 300.0  # seconds that a process of a test may take: other work on the machine may keep it waiting


def run(
    words: Sequence[str], cwd: Path | None, env: Mapping[str, str], timeout: float = PATIENCE, pictures: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS`, where the words are `-m taciturn ...` or `-c CODE`, as `subprocess.run` would.

    Without `pictures` reports have words in place of figures, which take most of the time of a small run.
    """
    place = _nursery()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        asked = {"words": list(words), "cwd": str(cwd or Path.cwd()), "env": dict(env), "pictures": pictures}
        socket.send_fds(place, [json.dumps(asked).encode()], [out.fileno(), err.fileno()])
        child = int(place.recv(64))
        place.settimeout(timeout)
        try:
            code = int(place.recv(64))
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            place.recv(64)
            raise AssertionError(f"{words} took more than {timeout:g} seconds") from None
        finally:
            place.settimeout(None)
        texts = [(stream.seek(0), stream.read().decode())[1] for stream in (out, err)]
    return subprocess.CompletedProcess(list(words), code, *texts)


@cache
def _nursery() -> socket.socket:
    """Return a socket to the forking process, which ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.cli.warm", str(theirs.fileno())]
    env = {**os.environ, "COLUMNS": "100"}  # rich measures the terminal when it is loaded
    process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(place: socket.socket) -> None:
    """Fork a child for every request and send its process id, then its exit code; returns in the child."""
    for name in (*LIBRARIES, *DRAWING, "taciturn.cli"):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.freeze()
    while True:
        message, streams, _, _ = socket.recv_fds(place, MESSAGE, 2)
        if not message:
            os._exit(0)
        child = os.fork()
        if child == 0:
            place.close()
            become(json.loads(message), streams)
            return
        for stream in streams:
            os.close(stream)
        place.send(str(child).encode())
        place.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


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


def in_words(folder: RunFolder, local: bool) -> str:
    """Return the text that a report has in place of its figure."""
    from taciturn.reporting.figures import run_figure as plots

    return plots.in_words([folder], local)


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
    serve(socket.socket(fileno=int(sys.argv[1])))
    leave(obey(*sys.argv[1:]))
