"""What an export is asked for, and the programs there are exports for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.registry import Registry
from tacit.results.folder import RunFolder


@dataclass(frozen=True)
class Request:
    """Which run to export, and where to."""

    folder: RunFolder
    out: Path | None = None  # None: in the run folder
    run: int | None = None  # None: all runs for metrics, the first for a model
    with_local: bool = False  # take along what is computed from private records without noise
    tracking_uri: str = ""  # mlflow
    experiment: str = ""  # mlflow

    def place(self, name: str, private: bool = False) -> Path:
        """Where to write: as asked for, else in the run folder, or in its local-only; it must not exist."""
        within = self.folder.local if private else self.folder.path
        path = self.out or within / name
        if path.exists():
            raise InputError(f"{path} exists: choose another --out, or remove it")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to put {path.name} into")
        return path


@dataclass(frozen=True, eq=False)
class Target:
    """A program to export for."""

    summary: str  # one line
    write: Callable[[Request], list[str]]  # does it, and says where it went and how to look at it
    takes: frozenset[str]  # the options it heeds, beside run and run_index


TARGETS: Registry[Target] = Registry("export", "tacit.export.targets")


def needed(module: str, extra: str) -> Any:
    """A module of an optional package."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error, extra) from None


def missing(error: ModuleNotFoundError, extra: str) -> InputError:
    """An optional package is not installed."""
    return InputError(f"this export needs {(error.name or extra).split('.')[0]}: pip install 'tacit[{extra}]'")
