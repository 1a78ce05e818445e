"""The run folder and its files."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taciturn.core.locks import is_locked, locked, run_lock
from taciturn.core.storage import (
    CHECKPOINT_FOLDER,
    LOCAL_FOLDER,
    add_lines,
    make_file,
    make_folder,
    read_arrays,
    to_json,
    write_text,
)
from taciturn.errors import InputError, missing_file
from taciturn.privacy.hash_chain import HashChain, head_elsewhere
from taciturn.runs.ledger import RunLedger
from taciturn.runs.records import MetricsRow, RunSummary, StartRecord, StudyHeader
from taciturn.types import Array

PARTITION_KEY = "partition.key"  # in local-only: of who holds which private record


def taken(path: Path) -> InputError:
    """A run has this folder already."""
    return InputError(f"{path} exists: choose another --out, or continue it with 'taciturn resume {path}'")


@dataclass(frozen=True)
class RunFolder:
    """A run on the disk; everything about it is in this folder and nowhere else."""

    path: Path

    @classmethod
    def create(
        cls, path: Path, files: Mapping[str, str], ledger: Sequence[Mapping[str, Any]], local: Mapping[str, str]
    ) -> RunFolder:
        """A new folder with what the run begins with; one that exists is never touched.

        `ledger` are the first lines of the ledger, `local` the files for the owner of the records alone.
        """
        try:
            make_folder(path)
        except FileExistsError:
            raise taken(path) from None
        folder = cls(path)
        try:
            make_folder(folder.checkpoints)
            make_file(folder.metrics)
            if local:
                make_folder(folder.local)
                make_file(folder.local_metrics)
                write_text(folder.local / "README.txt", LOCAL_ONLY)
            for name, text in local.items():
                write_text(folder.local / name, text)
            for name in files.keys() - {folder.config.name}:
                write_text(path / name, files[name])
            folder.chain.create()
            folder.chain.append(ledger)
            write_text(folder.config, files[folder.config.name])  # last: a folder without it is half of one
        except BaseException:
            shutil.rmtree(path)
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing folder."""
        if not path.exists():
            raise missing_file("run folder", path)
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
        """The study, the plan of every run, and one line for each run, agent, event and count at every checkpoint."""
        return self.path / "ledger.jsonl"

    @property
    def chain(self) -> HashChain:
        """The ledger as a hash chain; its head is kept a second time in ledger.head.

        A run with fresh noise has an identity, under which the head is kept in the user's state folder too: two copies
        of the folder cannot both go on, for their rounds would be releases that neither ledger charges.
        """
        identity = self.identity
        return HashChain(self.ledger, self.path / "ledger.head", state_head_path(identity) if identity else None)

    @property
    def identity(self) -> str | None:
        """The name of a run with fresh noise, which its copies share; other runs have none."""
        return _read_json(self.start).get("id") if self.start.is_file() else None

    @property
    def at_home(self) -> bool:
        """Whether this machine knows the ledger's head; of a run whose noise can be drawn again, none need."""
        state_head = self.chain.state_head
        return state_head is None or state_head.exists()

    def check_at_home(self) -> None:
        """Refuse to go on with a run of fresh noise whose ledger this machine does not know, or which is another's."""
        if self.chain.read_unverified()[0].get("id") != self.identity:
            raise InputError(f"{self.start} and the first line of {self.ledger} name different runs: one was changed")
        if not self.at_home:
            raise InputError(
                f"{self.path} was begun on another machine: it can go on only there, where its ledger's head is"
            )

    @property
    def local(self) -> Path:
        """What certified mode computes from private records without noise: for the owner's eyes alone."""
        return self.path / LOCAL_FOLDER

    @property
    def local_metrics(self) -> Path:
        """The local-only part of the metrics."""
        return self.local / "metrics.jsonl"

    @property
    def has_local(self) -> bool:
        """Whether there are local-only metrics that this user may read."""
        return _readable(self.local_metrics)

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
        return self.path / CHECKPOINT_FOLDER

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.summary.is_file()

    def read_key(self) -> int | None:
        """The key of who holds which private record; None where the records are public."""
        return read_key(self.local)

    def read_config(self) -> dict[str, Any]:
        """The settings as written."""
        try:
            return tomllib.loads(self.config.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.config} is damaged: {error}") from None

    def read_start(self, local: bool = True) -> StartRecord:
        """Return what the run began with; `local` includes what only the owner of the records may see."""
        return StartRecord.from_json(self._read_both(self.start, local), self.start)

    def read_json(self, name: str) -> dict[str, Any]:
        """A file of the folder that holds one JSON object."""
        return _read_json(self.path / name)

    def _read_both(self, path: Path, local: bool = True) -> dict[str, Any]:
        kept = self.local / path.name
        return merged(_read_json(path), _read_json(kept)) if local and _readable(kept) else _read_json(path)

    def kept_schema(self) -> Path:
        """The schema of a run on a table, which must be there."""
        if not self.schema.is_file():
            raise InputError(f"{self.schema} is gone: without it the table's columns mean nothing")
        return self.schema

    def read_metrics(self, local: bool = True) -> list[MetricsRow]:
        """Return every row in its order; `local` includes what only the owner of the records may see."""
        rows = read_lines(self.metrics)
        if local and self.has_local:
            kept = {(row["run"], row["round"]): row for row in read_lines(self.local_metrics)}
            rows = (row | kept.get((row["run"], row["round"]), {}) for row in rows)
        return [MetricsRow.from_json(row, self.metrics) for row in rows]

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
        """`w`, `classes`, `feature_names` and the index of the runs."""
        self.read_summary()
        return read_arrays(self.model)

    def hide_times(self) -> None:
        """Give all files the time the run began at: when they were last written tells how long its rounds took."""
        began = self.config.stat().st_mtime_ns
        for path in (*self.path.iterdir(), self.path):
            with suppress(PermissionError):  # of a file that another user put there
                os.utime(path, ns=(began, began))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process works in a folder, and at a run with fresh noise only one in all copies of its folder.

        The locks go with the process, however it ends; one that is paused holds them still.
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
        """Whether a process is working in it now; asking leaves no trace."""
        return is_locked(self._lock)

    @property
    def _lock(self) -> Path:
        return self.checkpoints / "lock"


LOCAL_ONLY = """LOCAL ONLY. The files in this folder are computed from private records without noise, or without enough.
No privacy budget covers them. They are for the owner of the records and must not leave your organisation.
What the rest of the run folder tells, and to whom, is said in its report.html.
"""


def merged(first: Any, second: Any) -> Any:
    """Two JSON values of the same form, the second one's where both have something to say."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {key: merged(first.get(key), second.get(key)) for key in (first | second)}
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return [merged(a, b) for a, b in zip(first, second, strict=True)]
    return first if second is None else second


def read_key(local: Path) -> int | None:
    """The partition's key that a folder for the owner alone keeps; None where it keeps none."""
    path = local / PARTITION_KEY
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"{path} is damaged: it must hold one whole number")
    return int(text)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    except FileNotFoundError:
        raise InputError(f"{path} is gone: the run folder is not complete") from None
    return found


def _readable(path: Path) -> bool:
    """Whether this user may read a file that is there: what is local-only is its owner's."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def append_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a file of JSON lines."""
    add_lines(path, "".join(to_json(row) + "\n" for row in rows).encode())


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


PATHS = ("data", "data_dir", "schema", "test", "ledger")


def public_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings; of paths only the last part, for the others tell of a house's machines."""
    names = {key: Path(config[key]).name for key in PATHS if config.get(key)}
    plugins = {"plugins": [Path(path).name for path in config["plugins"]]} if config.get("plugins") else {}
    return {**config, **names, **plugins}
