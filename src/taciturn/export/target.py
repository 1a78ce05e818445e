"""Export targets: what an export is asked for, and the model it is about."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taciturn.core.registry import Registry
from taciturn.errors import InputError
from taciturn.reporting.statements import PAPER_HEADLINE, headline
from taciturn.runs.folder import RunFolder
from taciturn.runs.model import Model, read_model


@dataclass(frozen=True)
class ExportRequest:
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
    write: Callable[[ExportRequest], list[str]]  # does it, and says where it went and how to look at it
    takes: frozenset[str]  # the options it heeds, beside run and run_index


TARGETS: Registry[Target] = Registry("export", "taciturn.export")


def needed(module: str, extra: str) -> Any:
    """A module of an optional package."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error, extra) from None


def missing(error: ModuleNotFoundError, extra: str) -> InputError:
    """An optional package is not installed."""
    return InputError(f"this export needs {(error.name or extra).split('.')[0]}: pip install 'taciturn[{extra}]'")


def chosen_model(request: ExportRequest) -> tuple[Model, list[str]]:
    """The run asked for, else the first, with a word on which one it is where the folder has several."""
    count = len(request.folder.read_summary()["runs"])
    index = request.run or 0
    model = read_model(request.folder, index)
    said = [f"using run {index} of {count}: {model.label} (--run-index chooses)"] if count > 1 else []
    return model, said


def privacy_sentence(folder: RunFolder) -> str:
    """What the run promises, in one line."""
    summary = folder.read_summary(local=False)
    return PAPER_HEADLINE if summary["mode"] == "paper" else headline(summary["privacy"])
