"""Benchmark of the first minutes: the first page of the command line, a dry run, and a run without arguments."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from taciturn.research.bench.benchmark import BENCHMARKS, Benchmark, Report
from taciturn.research.bench.timing import Options, Timing, time_interleaved

NAME = "start-up"
BARE, HELP, DRY = "python -c pass", "taciturn --help", "taciturn run --dry-run"
FIRST, SECOND = "taciturn run, the first time", "taciturn run, the second time"
COMMAND = (sys.executable, "-m", "taciturn")
WAIT = """import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))"""
"""Starts a command from a small process: the memory of the one that starts it would count as the command's."""


class Finished(NamedTuple):
    """What a process took."""

    seconds: float
    peak_bytes: int


def run(options: Options) -> Report:
    """Time the commands a new user types, each in a process of its own."""
    help_page, dry = (partial(finished, (*COMMAND, *words)) for words in (("--help",), ("run", "--dry-run")))
    bare = partial(finished, (sys.executable, "-c", "pass"))
    short: dict[str, Callable[[], object]] = {HELP: help_page, BARE: bare, DRY: dry}
    timings = time_interleaved(short, options, burst=1)
    first, second = first_runs(options)
    timings |= {name: Timing(one.seconds, one.seconds, 1) for name, one in ((FIRST, first), (SECOND, second))}
    figures = {
        "help_over_bare_python": timings[HELP].best / timings[BARE].best,
        "seconds_of_first_run": first.seconds,
        "seconds_of_second_run": second.seconds,
        "gigabytes_of_first_run": first.peak_bytes / 1e9,
    }
    notes = (
        "the first run computes the features of the digits; the second one finds them in the user's cache folder",
        "a run without arguments: mnist14, ten agents, total epsilon 1, the planner's rounds, with its report",
    )
    return Report(NAME, "The first minutes: commands from key press to result", figures, timings, notes=notes)


def first_runs(options: Options) -> tuple[Finished, Finished]:
    """Run `taciturn run` twice with an empty cache, from the start of the process to its end."""
    words = ("--rounds", "2", "--features", "none") if options.small else ()
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"XDG_CACHE_HOME": folder, "XDG_STATE_HOME": folder}
        options.watch("the first run")
        first = _measured((*COMMAND, "run", *words, "--out", str(Path(folder, "first"))), environment)
        options.watch("the second run")
        return first, _measured((*COMMAND, "run", *words, "--out", str(Path(folder, "second"))), environment)


def _measured(words: Sequence[str], environment: dict[str, str]) -> Finished:
    """Run a command of many seconds, with its memory."""
    seconds, printed = finished((sys.executable, "-c", WAIT, *words), environment)
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return Finished(seconds, int(printed) * unit)


def finished(words: Sequence[str], environment: dict[str, str] | None = None) -> tuple[float, str]:
    """Run a process to its end; return its seconds and its output.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    began = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with exit code {done.returncode}")
    return seconds, done.stdout


BENCHMARKS.register(NAME)(
    Benchmark(
        "the first page, a dry run and a first run, compared with a bare interpreter",
        "a minute",
        run,
        alone=False,
        goals={"help_over_bare_python": 5.0, "gigabytes_of_first_run": 1.0},
    )
)
