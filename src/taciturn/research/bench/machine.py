"""The machine that a benchmark ran on, and how busy other processes kept it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from taciturn.kernels.library import LEVELS, level
from taciturn.kernels.threads import cores

STAT = Path("/proc/stat")
BUSY = 0.1  # of the machine's time, spent on others
PACKAGES = ("numpy", "torch", "scikit-learn", "flwr", "appfl")


class MachineFacts(TypedDict):
    """The JSON of a machine."""

    cores: int
    cpu: str
    kernels: str
    python: str
    versions: dict[str, str]
    load_average_before: float
    share_used_by_others: float | None


@dataclass
class Machine:
    """Observations of the machine during a benchmark."""

    load: float = field(default_factory=lambda: os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0)
    others: float | None = None  # share of all cores that other processes used; None if unknown

    def facts(self) -> MachineFacts:
        """Return the observations for JSON."""
        return {
            "cores": cores(),
            "cpu": _cpu(),
            "kernels": f"compiled, {LEVELS[level()]}" if level() else "not built: numpy",
            "python": platform.python_version(),
            "versions": versions(PACKAGES),
            "load_average_before": round(self.load, 2),
            "share_used_by_others": None if self.others is None else round(self.others, 3),
        }

    def warning(self) -> str:
        """A sentence if other processes were working; otherwise empty."""
        if self.others is not None:
            percent = f"{100 * self.others:.0f} %"
            return f"the machine was busy: others used {percent} of its cores" if self.others > BUSY else ""
        busy = self.load > 0.5 * cores()
        return f"the machine was busy: load {self.load:.1f} on {cores()} cores before the start" if busy else ""


@contextmanager
def observed() -> Iterator[Machine]:
    """Observe the machine during the block."""
    machine, began = Machine(), (time.monotonic(), _busy(), _own())
    yield machine
    now = (time.monotonic(), _busy(), _own())
    elapsed, used, own = (b - a if a is not None and b is not None else None for a, b in zip(began, now, strict=True))
    if elapsed and used is not None and own is not None:
        machine.others = max(0.0, used - own) / (elapsed * (os.cpu_count() or 1))


def _busy() -> float | None:
    """Return the seconds that all cores together have worked: user, nice, system, irq, softirq and steal."""
    try:
        user, nice, system, _, _, *rest = map(int, STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def _own() -> float | None:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
