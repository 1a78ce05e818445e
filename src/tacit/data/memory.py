"""How much memory records may take: a size in words, and what the machine has."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tacit.errors import InputError

UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]B)", re.IGNORECASE)
CONTAINER = Path("/sys/fs/cgroup/memory.max")  # what a container may take, on Linux


def check_memory(name: str, given: Any) -> str:
    """A size as it was given, where it is one."""
    if given != "auto":
        _bytes(name, given)
    return str(given)


def memory_limit(given: str) -> int:
    """The bytes a size stands for; auto: half of the machine's memory, shared by the ranks torchrun started on it."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return machine_memory() // (2 * ranks) if given == "auto" else _bytes("memory", given)


def machine_memory() -> int:
    """The bytes of memory that the machine has, or the container it runs in; 2^63 where the system does not say."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        physical = 2**63
    try:
        return min(physical, int(CONTAINER.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit: "max"
        return physical


def size_text(size: float) -> str:
    """Bytes for a person.

    >>> size_text(8_240_000_000)
    '8.24 GB'
    """
    unit = next((unit for unit in reversed(UNITS) if size >= UNITS[unit]), "kB")
    return f"{size / UNITS[unit]:.3g} {unit}"


def _bytes(name: str, given: Any) -> int:
    found = SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    scale = {unit.lower(): factor for unit, factor in UNITS.items()}
    size = 0 if found is None else round(float(found[1]) * scale[found[2].lower()])
    if size < 1:
        raise InputError(
            f"{name} is {given!r}: it must be auto, or a size above 0 in {', '.join(UNITS)}, as 500MB or 2GB"
        )
    return size
