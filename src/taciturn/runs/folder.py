"""The run folder: its files, and typed access to them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from taciturn.core.locks import is_locked, locked, run_lock
from taciturn.core.storage import (
    CHECKPOINT_FOLDER,
    LOCAL_FOLDER,
    add_lines,
    file_version,
    make_file,
    make_folder,
    read_arrays,
    to_json,
    write_text,
)
from taciturn.data.memory_names import is_in_memory
from taciturn.errors import CorruptFile, InputError, LedgerTampered, missing_file
from taciturn.privacy.hash_chain import HashChain, state_head_path
from taciturn.runs.ledger import RunLedger
from taciturn.runs.records import EvaluationRow, LedgerEntry, MetricsRow, RunSummary, StartRecord, StudyHeader
from taciturn.types import Array

PARTITION_KEY = "partition.key"  # in local-only: the key by which private records are partitioned
PATH_SETTINGS = ("data", "data_dir", "schema", "test", "ledger")
LOCAL_ONLY = """LOCAL ONLY. The files in this folder are computed from private records without noise, or without enough.
No privacy budget covers them. They are for the owner of the records and must not leave your organisation.
What the rest of the run folder reveals, and to whom, is stated in its report.html.
"""
logger = logging.getLogger(__name__)


def existing_folder(path: Path) -> InputError:
    """Return the error for an output folder that exists."""
    unfinished = (path / "config.toml").is_file() and not (path / "summary.json").is_file()
    advice = f", or continue it with 'taciturn resume {path}'" if unfinished else ""
    return InputError(f"{path} exists: choose another --out{advice}")


class StoredConfig(TypedDict):
    """The settings in config.toml that are read by name; it has all others too."""

    mode: str
    data: str
    noise: str
    algorithm: list[str]
    epsilon: list[float]
    total_epsilon: list[float]
    delta: float
    rounds: int
    eta: str | float
    features: str
    ledger: str
    plugins: list[str]
    test: str
    test_share: float
    partition_key: int | str
    seeds: NotRequired[int]  # hardened noise has none


def make_local_folder(path: Path) -> Path:
    """Create a folder for the owner of the records only, unless it exists, with a README that says so; return it."""
    if not path.is_dir():
        make_folder(path)
        write_text(path / "README.txt", LOCAL_ONLY)
    return path


@dataclass(frozen=True)
class RunFolder:
    """The folder of one study. Everything about the study is in it.

    Parameters
    ----------
    path : Path
        The folder. Use `create` or `open` unless it is known to exist.
    """

    path: Path

    @classmethod
    def create(
        cls, path: Path, files: Mapping[str, str], ledger: Sequence[LedgerEntry], local: Mapping[str, str]
    ) -> RunFolder:
        """Create a folder with what the run begins with.

        Parameters
        ----------
        path
            The new folder.
        files
            Text by file name, among them config.toml.
        ledger
            The first lines of the ledger.
        local
            Text by file name, for the owner of the records only; empty if there are no private records.

        Raises
        ------
        InputError
            If the path exists; it is not touched.
        """
        try:
            make_folder(path)
        except FileExistsError as error:
            raise existing_folder(path) from error
        folder = cls(path)
        try:
            make_folder(folder.checkpoints)
            make_file(folder.metrics)
            if local:
                make_local_folder(folder.local)
                make_file(folder.local_metrics)
            for name, text in local.items():
                write_text(folder.local / name, text)
            for name in files.keys() - {folder.config.name}:
                write_text(path / name, files[name])
            folder.chain.create()
            folder.chain.append(ledger)
            write_text(folder.config, files[folder.config.name])  # last: a folder without it is incomplete
        except BaseException:
            shutil.rmtree(path)
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return an existing folder.

        Raises
        ------
        InputError
            If there is no folder, or it has no config.toml.
        """
        if not path.exists():
            raise missing_file("run folder", path)
        if not (path / "config.toml").is_file():
            raise InputError(f"{path} is not a run folder: it has no config.toml")
        return cls(path)

    @property
    def config(self) -> Path:
        """Every setting, defaults included."""
        return self.path / "config.toml"

    @property
    def schema(self) -> Path:
        """The schema of a table, as it was when the run began."""
        return self.path / "schema.toml"

    @property
    def start(self) -> Path:
        """What the run began with (see `StartRecord`)."""
        return self.path / "start.json"

    @property
    def metrics(self) -> Path:
        """One line for each evaluated round and run (see `MetricsRow`)."""
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        """One line for each private evaluation and run (see `EvaluationRow`); there is no file before the first."""
        return self.path / "evaluations.jsonl"

    @property
    def line_files(self) -> tuple[Path, Path, Path]:
        """The files that grow by a line for each evaluated round: the metrics, their private part, the evaluations."""
        return self.metrics, self.local_metrics, self.evaluations

    @property
    def ledger(self) -> Path:
        """The study, the plan of every run, and the releases (see `RunLedger`)."""
        return self.path / "ledger.jsonl"

    @property
    def local(self) -> Path:
        """The subfolder for what certified mode computes from private records without noise."""
        return self.path / LOCAL_FOLDER

    @property
    def local_metrics(self) -> Path:
        """The private part of the metrics."""
        return self.local / "metrics.jsonl"

    @property
    def model(self) -> Path:
        """The trained parameters."""
        return self.path / "model.npz"

    @property
    def effects(self) -> Path:
        """The effect of every column, where the model is one of a table's bins (see `EffectsRecord`)."""
        return self.path / "effects.json"

    @property
    def averages(self) -> Path:
        """The theorems' averages, where they were asked for."""
        return self.path / "averages.npz"

    @property
    def summary(self) -> Path:
        """The result (see `RunSummary`); exists once the run has ended."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """The report as a web page."""
        return self.path / "report.html"

    @property
    def checkpoints(self) -> Path:
        """The subfolder with one checkpoint for each algorithm."""
        return self.path / CHECKPOINT_FOLDER

    @property
    def has_local(self) -> bool:
        """Whether there are private metrics that this user may read."""
        return _readable(self.local_metrics)

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.summary.is_file()

    @property
    def chain(self) -> HashChain:
        """The hash chain of the ledger; its head is also stored in ledger.head.

        The head of a run with fresh noise is stored in the user's state folder too. So two copies of the folder cannot
        both continue: their rounds would be releases that neither ledger charges.
        """
        identity = self.identity
        return HashChain(self.ledger, self.path / "ledger.head", state_head_path(identity) if identity else None)

    @property
    def identity(self) -> str | None:
        """The id of a run with fresh noise, which its copies share; None for other runs."""
        return _read_json(self.start).get("id") if self.start.is_file() else None

    @property
    def on_home_machine(self) -> bool:
        """Whether this machine knows the head of the ledger; always true for seeded noise."""
        elsewhere = self.chain.state_head
        return elsewhere is None or elsewhere.exists()

    def check_home_machine(self) -> None:
        """Raise if a run with fresh noise was begun on another machine, or its ledger is that of another run.

        Raises
        ------
        InputError
            If this machine does not know the head of the ledger.
        LedgerTampered
            If the ids in start.json and in the ledger differ.
        """
        if self.chain.read_unverified()[0].get("id") != self.identity:
            raise LedgerTampered(
                f"{self.start} and the first line of {self.ledger} name different runs: one was changed"
            )
        if not self.on_home_machine:
            raise InputError(
                f"{self.path} was started on another machine: it can be continued only there, where the head of its "
                "ledger is stored"
            )

    def read_key(self) -> int | None:
        """Return the key of the partition of private records; None if the records are public."""
        return read_key(self.local)

    def read_config(self) -> StoredConfig:
        """Return the settings as written.

        Raises
        ------
        CorruptFile
            If config.toml is not TOML.
        """
        return _parsed_config(self.config, file_version(self.config)).copy()

    @property
    def began_with_frame(self) -> bool:
        """Whether the records were a data frame, which is in no file: its name does not tell it from others."""
        return is_in_memory(self.read_config()["data"])

    def read_start(self, local: bool = True) -> StartRecord:
        """Return what the run began with; `local` includes what only the owner of the records may see."""
        return StartRecord.from_json(self._read_both(self.start, local), self.start)

    def read_metrics(self, local: bool = True) -> Sequence[MetricsRow]:
        """Return every row in its order; `local` includes what only the owner of the records may see."""
        files = (self.metrics, self.local_metrics) if local and self.has_local else (self.metrics,)
        return _parsed_metrics(files, tuple(map(file_version, files)))

    def read_evaluations(self) -> list[EvaluationRow]:
        """Return every private evaluation, in order."""
        if not self.evaluations.is_file():
            return []
        return [EvaluationRow.from_json(row, self.evaluations) for row in read_lines(self.evaluations)]

    def add_evaluations(self, rows: Sequence[EvaluationRow]) -> None:
        """Append private evaluations; the name of the file is on the disk before a checkpoint can know its size."""
        if rows and not self.evaluations.exists():
            make_file(self.evaluations)
        if rows:
            append_lines(self.evaluations, rows)

    def read_ledger(self) -> RunLedger:
        """Return the ledger, after its hash chain was verified.

        Raises
        ------
        LedgerTampered
            If the chain does not verify.
        CorruptFile
            If a line is not a ledger entry.
        """
        return RunLedger.from_rows(self.chain.read(), self.ledger)

    def read_header(self) -> StudyHeader:
        """Return the first line of the ledger without verifying the chain: to label results, not to prove them."""
        return StudyHeader.from_json(next(read_lines(self.ledger), None), self.ledger)

    def read_summary(self, local: bool = True) -> RunSummary:
        """Return the result of a finished run; `local` includes what only the owner of the records may see.

        Raises
        ------
        InputError
            If the run has not ended.
        """
        if not self.finished:
            raise InputError(f"{self.path} has not ended: continue it with 'taciturn resume {self.path}'")
        return RunSummary.from_json(self._read_both(self.summary, local), self.summary)

    def read_model(self) -> dict[str, Array]:
        """Return `w`, `classes`, `feature_names` and the labels of the runs, by name.

        Raises
        ------
        InputError
            If the run has not ended.
        """
        self.read_summary()
        return read_arrays(self.model)

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file of the folder.

        Raises
        ------
        CorruptFile
            If the file is missing or not JSON.
        """
        return _read_json(self.path / name)

    def stored_schema(self) -> Path:
        """Return the path of the schema; raise CorruptFile if it is missing."""
        if not self.schema.is_file():
            raise CorruptFile(f"{self.schema} is missing: without it the table's columns have no meaning")
        return self.schema

    def reset_file_times(self) -> None:
        """Set the times of all files to the start of the run: later times reveal how long its rounds took."""
        began = self.config.stat().st_mtime_ns
        for path in (*self.path.iterdir(), self.path):
            with suppress(PermissionError):  # a file of another user
                os.utime(path, ns=(began, began))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other processes and, with fresh noise, against work in its copies.

        The locks end with the process, also with one that is killed; a paused process keeps them.

        Raises
        ------
        InputError
            If another process has the lock.
        """
        make_folder(self.checkpoints, exist_ok=True)
        identity = self.identity
        with (
            locked(self._lock, f"{self.path} is being worked on by another process"),
            run_lock(identity, self.path) if identity else nullcontext(),
        ):
            for leftover in (*self.path.glob(".*"), *self.checkpoints.glob(".*")):  # of a process that was killed
                leftover.unlink()
            yield

    @property
    def busy(self) -> bool:
        """Whether a process is working in the folder."""
        return is_locked(self._lock)

    @property
    def _lock(self) -> Path:
        return self.checkpoints / "lock"

    def _read_both(self, path: Path, local: bool) -> Any:
        own = self.local / path.name
        return merged(_read_json(path), _read_json(own)) if local and _readable(own) else _read_json(path)


def merged(first: Any, second: Any) -> Any:
    """Return two JSON values of the same form as one; where both have a value, that of the second.

    >>> merged({"a": None, "b": [1, 2]}, {"a": 3, "b": [None, 4]})
    {'a': 3, 'b': [1, 4]}
    """
    if isinstance(first, dict) and isinstance(second, dict):
        return {key: merged(first.get(key), second.get(key)) for key in (first | second)}
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return [merged(a, b) for a, b in zip(first, second, strict=True)]
    return first if second is None else second


def read_key(local: Path) -> int | None:
    """Return the partition key that a local-only folder stores; None if it stores none.

    Raises
    ------
    CorruptFile
        If the file does not hold one whole number.
    """
    path = local / PARTITION_KEY
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not (text.isascii() and text.isdigit()):
        raise CorruptFile(f"{path} is damaged: it must hold one whole number")
    return int(text)


def append_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Append rows to a file of JSON lines."""
    add_lines(path, "".join(to_json(row) + "\n" for row in rows).encode())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of JSON lines; a last line that is still being written is left out.

    Raises
    ------
    CorruptFile
        If a line is not JSON.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise CorruptFile(f"line {number} of {path} is damaged") from error


def with_private_part(
    rows: Iterable[dict[str, object]], private: Iterable[dict[str, object]]
) -> Iterator[dict[str, object]]:
    """Yield rows of the metrics, each with what the private row of the same run and round has."""
    own = {(row["run"], row["round"]): row for row in private}
    return (row | own.get((row["run"], row["round"]), {}) for row in rows)


def public_config(config: Mapping[str, object]) -> dict[str, object]:
    """Return the settings with the last part of paths only: the others reveal something of the machine.

    >>> public_config({"data": "/home/me/records.csv", "rounds": 3})
    {'data': 'records.csv', 'rounds': 3}
    """
    return {key: _without_folder(key, value) for key, value in config.items()}


def _without_folder(key: str, value: object) -> object:
    if key == "plugins" and isinstance(value, list):
        return [Path(path).name for path in value]
    return Path(str(value)).name if key in PATH_SETTINGS and value else value


@lru_cache(maxsize=16)
def _parsed_config(path: Path, version: object) -> StoredConfig:
    try:
        return cast(StoredConfig, tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CorruptFile(f"{path} is damaged: {error}") from error


@lru_cache(maxsize=4)
def _parsed_metrics(files: Sequence[Path], version: object) -> tuple[MetricsRow, ...]:
    """Return the rows of the metrics; with the private part of each, if a second file is given."""
    logger.debug("reading %s", files[0])
    rows: Iterable[dict[str, Any]] = read_lines(files[0])
    if len(files) > 1:
        rows = with_private_part(rows, read_lines(files[1]))
    return tuple(MetricsRow.from_json(row, files[0]) for row in rows)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CorruptFile(f"{path} is damaged: {error}") from error
    except FileNotFoundError as error:
        raise CorruptFile(f"{path} is missing: the run folder is incomplete") from error
    return found


def _readable(path: Path) -> bool:
    """Return whether a file exists and this user may see it: local-only belongs to its owner."""
    try:
        return path.is_file()
    except PermissionError:
        return False
