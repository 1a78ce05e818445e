"""Components of the user's own: Python files that register them, loaded before anything is named."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from tacit.errors import InputError, absent


def load_plugins(paths: Iterable[str]) -> None:
    """Run each file once in this process; what it registers can be named from then on."""
    for given in paths:
        path = Path(given).expanduser().resolve()
        name = f"tacit_plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
        if name not in sys.modules:
            _run(path, name)


def _run(path: Path, name: str) -> None:
    if not path.is_file():
        raise absent("plugin", path, "plugins names Python files")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file: plugins names files that end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pickles look for it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"the plugin {path} cannot be loaded: {type(error).__name__}: {error}") from None


def digests(paths: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each file, by its name."""
    return {Path(given).name: hashlib.sha256(Path(given).expanduser().read_bytes()).hexdigest() for given in paths}
