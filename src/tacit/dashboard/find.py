"""Run folders under a folder, found cheaply."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tacit.dashboard.wire import shown
from tacit.errors import InputError

MARKS = frozenset({"config.toml", "start.json", "ledger.jsonl", "metrics.jsonl"})  # of a run folder, whole or not
DEEPEST = 6  # folders within folders: sweeps of sweeps end before


class Found(NamedTuple):
    """A run folder and what it is called on the page; the page knows it by its identity alone, never by its path."""

    identity: str
    name: str
    path: Path


def find(root: Path) -> list[Found]:
    """Every run folder: `root` itself, or those below it, in the order of their names."""
    if not root.is_dir():
        raise InputError(f"there is no folder {root}: give one that holds runs, or a run folder")
    paths = sorted(_walk(root, 0))
    return [_found(root, path) for path in paths]


def _found(root: Path, path: Path) -> Found:
    name = path.resolve().name if path == root else path.relative_to(root).as_posix()
    return Found(hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:12], shown(name), path)


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            inside = list(entries)
    except OSError:
        return  # what may not be read, or has gone meanwhile, has nothing to show
    if any(entry.name in MARKS for entry in inside):
        yield folder
    elif depth < DEEPEST:
        for entry in inside:
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), depth + 1)
