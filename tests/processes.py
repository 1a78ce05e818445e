"""Runs the tests in several processes, `--processes N`, which are forked when all tests are collected.

To import all tests, and the libraries that they need, takes as long as hundreds of tests, so it is done once. The
processes take file after file from one queue, in the order of the collection.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import pickle
import selectors
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

import pytest

NUMBER = struct.Struct("H")  # of a file, in the queue
LENGTH = struct.Struct("Q")  # of a message, before it
FOLDER = "worker-"  # and the number of the process: its folder for temporary files


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="run the tests in this many processes (default 1)")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all files in the processes, and report as if they had run here."""
    count = session.config.getoption("processes")
    if count == 1 or session.config.option.collectonly or session.testsfailed:
        return None
    files = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
    queue, begin = os.pipe()
    os.write(begin, b"".join(NUMBER.pack(number) for number in range(len(files))))
    os.close(begin)
    config: Any = session.config
    base = config._tmp_path_factory.getbasetemp()
    config.pluginmanager.getplugin("terminalreporter").showfspath = False
    workers: list[Worker] = []
    try:
        for number in range(min(count, len(files))):
            worker = Worker(session, files, queue, base / f"{FOLDER}{number}")
            workers.append(worker)
        os.close(queue)
        _hear(session, workers)
    finally:
        for worker in workers:
            worker.end()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    return True


def _hear(session: pytest.Session, workers: Sequence[Worker]) -> None:
    """Pass on what the processes report until all have ended, or there are as many failures as are wanted."""
    config, hook = session.config, session.config.hook
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.reports, selectors.EVENT_READ, worker)
        while selector.get_map() and not session.shouldfail:
            for key, _ in selector.select():
                kind, content = key.data.read()
                match kind:
                    case "start":
                        key.data.running = content
                    case "report":
                        report = hook.pytest_report_from_serializable(config=config, data=content)
                        hook.pytest_runtest_logreport(report=report)
                    case "finish":
                        hook.pytest_runtest_logfinish(nodeid=content[0], location=content[1])
                    case "warning":
                        hook.pytest_warning_recorded.call_historic(kwargs=content)
                    case "end":
                        selector.unregister(key.data.reports)
                        if content:
                            hook.pytest_runtest_logreport(report=key.data.failed(content))


class Worker:
    """A process that runs tests, as the first process sees it."""

    def __init__(self, session: pytest.Session, files: Sequence[Sequence[pytest.Item]], queue: int, base: Path) -> None:
        self.running: tuple[str, tuple[str, int | None, str]] = (base.name, (base.name, None, base.name))
        self.ended = False
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read)
            _work(session, files, queue, base, write)
        os.close(write)
        self.reports = os.fdopen(read, "rb", buffering=0)

    def read(self) -> tuple[str, Any]:
        """Return the next thing that the process says; if it ends without a word, that it did."""
        (length,) = LENGTH.unpack(self._bytes(LENGTH.size) or bytes(LENGTH.size))
        content = self._bytes(length) if length else b""
        kind, said = pickle.loads(content) if content else ("end", "the process that ran this test ended")
        self.ended = kind == "end"
        return kind, said

    def _bytes(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.reports.read(size - len(found))
            if not more:
                return b""
            found += more
        return found

    def failed(self, words: str) -> pytest.TestReport:
        """Return a report of a process that ended too early, which ran no more of the file that it was at."""
        nodeid, location = self.running
        return pytest.TestReport(nodeid, location, {}, "failed", words, "teardown")

    def end(self) -> None:
        """Wait for its end; if it is at work, ask it to stop first, as Ctrl-C does."""
        if not self.ended:
            os.kill(self.pid, signal.SIGINT)
        self.reports.close()
        os.waitpid(self.pid, 0)


class Teller:
    """Tells the first process what happens in this one."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self.config, self.pipe = config, pipe

    def say(self, kind: str, content: object) -> None:
        message = pickle.dumps((kind, content))
        message = LENGTH.pack(len(message)) + message
        while message:
            message = message[os.write(self.pipe, message) :]

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.say("start", (nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self.config.hook
        self.say("report", hook.pytest_report_to_serializable(config=self.config, report=report))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.say("finish", (nodeid, location))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        warning_message.source = None  # an object of this process
        found = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self.say("warning", found)


def _work(
    session: pytest.Session, files: Sequence[Sequence[pytest.Item]], queue: int, base: Path, pipe: int
) -> NoReturn:
    """Run files until the queue is empty."""
    config: Any = session.config
    teller, words = Teller(config, pipe), ""
    try:
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # its files are the first process's
        capture.start_global_capturing()
        capture.suspend_global_capture()
        config.pluginmanager.getplugin("terminalreporter")._tw._file = open(os.devnull, "w")  # noqa: SIM115, PTH123
        base.mkdir()
        config._tmp_path_factory._basetemp = base
        config.pluginmanager.register(teller)
        try:
            while taken := os.read(queue, NUMBER.size):
                (number,) = NUMBER.unpack(taken)
                for item, following in zip(files[number], [*files[number][1:], session], strict=True):
                    config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        finally:
            session._setupstate.teardown_exact(None)
        gc.collect()  # it warns of files that were left open
        config._ensure_unconfigure()
    except BaseException:
        words = traceback.format_exc()
    finally:
        with contextlib.suppress(OSError):  # nobody listens if the first process has ended
            teller.say("end", words)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        os._exit(0)
