"""The run folder and the files in it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.results.files import read_arrays, to_json, write_text
from tacit.types import Array


@dataclass(frozen=True)
class RunFolder:
    """A run on the disk; everything about it is in this folder and nowhere else."""

    path: Path

    @classmethod
    def create(cls, path: Path, files: Mapping[str, str]) -> RunFolder:
        """A new folder with what the run begins with; one that exists is never touched."""
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise InputError(
                f"{path} exists: choose another --out, or continue it with 'tacit resume {path}'"
            ) from None
        folder = cls(path)
        try:
            folder.checkpoints.mkdir()
            folder.metrics.touch()
            folder.ledger.touch()
            for name, text in files.items():
                write_text(path / name, text)
        except BaseException:
            shutil.rmtree(path)
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing folder."""
        if not (path / "config.toml").is_file():
            raise InputError(f"{path} is not a run folder: it has no config.toml")
        return cls(path)

    @property
    def config(self) -> Path:
        """Every setting, defaults spelled out."""
        return self.path / "config.toml"

    @property
    def schema(self) -> Path:
        """A table's schema, as it was when the run began."""
        return self.path / "schema.toml"

    @property
    def start(self) -> Path:
        """What the run began with: the data in numbers, and digests of records and configuration."""
        return self.path / "start.json"

    @property
    def metrics(self) -> Path:
        """One line for each evaluated round and run."""
        return self.path / "metrics.jsonl"

    @property
    def ledger(self) -> Path:
        """One line for each run, agent, event and count at every checkpoint."""
        return self.path / "ledger.jsonl"

    @property
    def model(self) -> Path:
        """The trained parameters."""
        return self.path / "model.npz"

    @property
    def averages(self) -> Path:
        """The theorems' averaged outputs."""
        return self.path / "averages.npz"

    @property
    def summary(self) -> Path:
        """The result; present when the run has ended."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.path / "report.html"

    @property
    def checkpoints(self) -> Path:
        """The state a run goes on from, one file for each algorithm."""
        return self.path / "checkpoint"

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.summary.is_file()

    def read_config(self) -> dict[str, Any]:
        """The settings as written."""
        try:
            return tomllib.loads(self.config.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.config} is damaged: {error}") from None

    def read_start(self) -> dict[str, Any]:
        """What the run began with."""
        return _read_json(self.start)

    def kept_schema(self) -> Path:
        """The schema of a run on a table, which must be there."""
        if not self.schema.is_file():
            raise InputError(f"{self.schema} is gone: without it the table's columns mean nothing")
        return self.schema

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every row, in order."""
        return list(read_lines(self.metrics))

    def read_ledger(self) -> list[dict[str, Any]]:
        """Every entry, in order."""
        return list(read_lines(self.ledger))

    def read_summary(self) -> dict[str, Any]:
        """The result of an ended run."""
        if not self.finished:
            raise InputError(f"{self.path} has not ended: continue it with 'tacit resume {self.path}'")
        return _read_json(self.summary)

    def read_model(self) -> dict[str, Array]:
        """`w`, `classes`, `feature_names` and the index of the runs."""
        self.read_summary()
        return read_arrays(self.model)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process works in a folder; the lock goes with the process, however it ends."""
        with self._lock() as mine:
            if not mine:
                raise InputError(f"{self.path} is being worked on by another process")
            for leftover in (*self.path.glob(".*"), *self.checkpoints.glob(".*")):  # of a process that was killed
                leftover.unlink()
            yield

    @property
    def busy(self) -> bool:
        """Whether a process is working in it now."""
        with self._lock() as mine:
            return not mine

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        self.checkpoints.mkdir(exist_ok=True)
        with (self.checkpoints / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    except FileNotFoundError:
        raise InputError(f"{path} is gone: the run folder is not complete") from None
    return found


def append_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a file of JSON lines."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(to_json(row) + "\n" for row in rows)


def flushed_size(path: Path) -> int:
    """The size of a file once everything in it is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of JSON lines; a last line that is still being written is left out."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                raise InputError(f"line {number} of {path} is damaged") from None
