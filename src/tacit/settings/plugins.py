"""Components of the user's own: Python files that register them, loaded before anything is named.

A run folder names the plugins it was made with, and may come from somebody else. So a file is run only if its user has
named it once on this machine, as it is now: `allow` remembers its SHA-256, `load_plugins` asks.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from tacit.errors import InputError, absent
from tacit.state import state_folder

_LOADED: dict[Path, str] = {}  # SHA-256 of what this process runs


def allow(paths: Iterable[str]) -> None:
    """Remember that the user named these files."""
    for path in _files(paths):
        known = _known(_digest(path))
        state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        known.parent.mkdir(mode=0o700, exist_ok=True)
        known.touch(mode=0o600)
        known.write_text(f"{path}\n", encoding="utf-8")


def load_plugins(paths: Iterable[str]) -> None:
    """Run each file once in this process; what it registers can be named from then on."""
    for path in _files(paths):
        digest = _digest(path)
        if _LOADED.get(path, digest) != digest:
            raise InputError(f"the plugin {path} changed since this process loaded it: start Python anew")
        if not _known(digest).is_file():
            raise InputError(
                f"the run was made with the plugin {path}, which was never used here as it is now: look at it, for it "
                f"is a program; 'tacit algorithms --plugins {path}' allows it"
            )
        if path not in _LOADED:
            _run(path)
            _LOADED[path] = digest


def digests(paths: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each file that was loaded, by its name."""
    return {path.name: _LOADED[path] for path in _files(paths)}


def _files(paths: Iterable[str]) -> list[Path]:
    files = [Path(given).expanduser().resolve() for given in paths]
    for path in files:
        if not path.is_file():
            raise absent("plugin", path, "plugins names Python files")
        if path.suffix != ".py":
            raise InputError(f"{path} is not a Python file: plugins names files that end in .py")
        if [other.name for other in files].count(path.name) > 1:
            raise InputError(f"two plugins are named {path.name}: the ledger knows them by name, so rename one")
    return files


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _known(digest: str) -> Path:
    return state_folder() / "plugins" / digest


def _run(path: Path) -> None:
    name = f"tacit_plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pickles look for it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"the plugin {path} cannot be loaded: {type(error).__name__}: {error}") from None
