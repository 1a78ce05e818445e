"""Export targets: the request for an export, and the model it is about."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taciturn.core.registry import Registry
from taciturn.core.storage import require_folder
from taciturn.errors import InputError
from taciturn.reporting.statements import PAPER_HEADLINE, headline
from taciturn.runs.folder import RunFolder
from taciturn.runs.model import Model, read_model


@dataclass(frozen=True)
class ExportRequest:
    """Which run to export, and where to.

    Parameters
    ----------
    folder : RunFolder
        The run folder.
    out : Path or None
        File or folder to write; None: a new one in the run folder.
    run : int or None
        Index of a run of the folder; None: all runs for metrics, the first for a model.
    with_local : bool
        Include what is computed from private records without noise.
    tracking_uri, experiment : str
        For MLflow only; empty: MLflow's own default, and "taciturn".
    """

    folder: RunFolder
    out: Path | None = None
    run: int | None = None
    with_local: bool = False
    tracking_uri: str = ""
    experiment: str = ""

    def output_path(self, name: str, private: bool = False) -> Path:
        """Return where to write: `out`, or `name` in the run folder or, if private, in its local-only folder.

        Raises
        ------
        InputError
            If the path exists, or the folder that is to contain it does not.
        """
        path = self.out or (self.folder.local if private else self.folder.path) / name
        if path.exists():
            raise InputError(f"{path} exists: choose another --out, or remove it")
        require_folder(path)
        return path


@dataclass(frozen=True, eq=False)
class ExportTarget:
    """A program or format to export to."""

    write: Callable[[ExportRequest], list[str]]  # writes, and returns messages: what is where, and how to open it
    takes: frozenset[str]  # names of the options it uses, besides `folder` and `run`


TARGETS: Registry[ExportTarget] = Registry("export", "taciturn.export")


def import_optional(module: str, extra: str) -> Any:
    """Import a module of an optional package.

    Parameters
    ----------
    module : str
        Its name.
    extra : str
        The extra of taciturn that installs the package.

    Raises
    ------
    InputError
        If the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_package(error, extra) from error


def missing_package(error: ModuleNotFoundError, extra: str) -> InputError:
    """Return the error that says how to install a missing package."""
    return InputError(f"this export needs {(error.name or extra).split('.')[0]}: pip install 'taciturn[{extra}]'")


def requested_model(request: ExportRequest) -> tuple[Model, list[str]]:
    """Return the requested model, or the first, and a message that names it if the folder has several."""
    count = len(request.folder.read_summary().runs)
    index = request.run or 0
    model = read_model(request.folder, index)
    return model, [f"using run {index} of {count}: {model.label} (--run-index chooses another)"] if count > 1 else []


def privacy_sentence(folder: RunFolder) -> str:
    """Return the guarantee of a run in one sentence."""
    summary = folder.read_summary(local=False)
    return PAPER_HEADLINE if summary.mode == "paper" else headline(summary.privacy)
