"""Which records have which ledger over studies: known on this machine alone, by a keyed digest of the records.

The digest is a sum of keyed hashes of single records, so that sorting them changes nothing. It is there for mistakes:
one edited, added or removed record makes another digest, and so does another format of the file.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.core.storage import make_folder, state_folder, write_text
from taciturn.data.table_io import open_table, table_files
from taciturn.errors import InputError, LedgerWarning
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.signatures import records_key

SIZE = 16  # bytes of a record's hash
BATCH = 2**16  # records whose hashes are added up at once


class Tie(NamedTuple):
    """The ledger that records have."""

    ledger: str  # its id
    data: str  # what it says it is of
    path: str  # where it was when it was last used


def table_digest(path: str | Path) -> str:
    """The digest of a table's records: of the lines of CSV files, and of the cells of Parquet files."""
    key = records_key()
    return _digest(line for file in table_files(path) for line in _records(file, key))


def array_digest(x: NDArray[Any], labels: NDArray[Any]) -> str:
    """The digest of records in memory, [n, J] and [n]."""
    key, rows = records_key(), np.ascontiguousarray(x, dtype=np.float64)
    named = labels.astype(str)
    return _digest(_hash(row.tobytes() + str(label).encode(), key) for row, label in zip(rows, named, strict=True))


def tie_of(digest: str) -> Tie | None:
    """The ledger that the records with this digest have, where this machine has noted one."""
    place = _folder() / f"{digest}.json"
    return Tie(**json.loads(place.read_text(encoding="utf-8"))) if place.is_file() else None


def check_tie(digest: str, account: BudgetLedger) -> None:
    """Refuse a second ledger for the same records, unless it was begun as one."""
    known = tie_of(digest)
    if known is None or known.ledger == account.identity or account.state().further:
        return
    raise InputError(
        f"these records have a ledger already, {known.data} ({known.path}), and {account.path} is another one: budgets "
        "of two ledgers add up, and neither counts what the other allows; use the first, or begin one with 'taciturn "
        "ledger init --further' if a budget beside it is meant"
    )


def tie(digest: str, account: BudgetLedger) -> None:
    """Note that these records have this ledger; the first they had stays theirs beside a further one."""
    check_tie(digest, account)
    known = tie_of(digest)
    if known is None or known.ledger == account.identity:
        make_folder(_folder(), exist_ok=True)
        found = Tie(account.identity, account.state().data, str(account.path.resolve()))
        write_text(_folder() / f"{digest}.json", json.dumps(found._asdict()) + "\n")


def warn_without_ledger(digest: Callable[[], str]) -> None:
    """Say so where records that have a ledger are trained on without it; where none have, nothing is computed."""
    known = tie_of(digest()) if _folder().is_dir() and any(_folder().iterdir()) else None
    if known is not None:
        warnings.warn(
            f"these records have a ledger over studies, {known.data} ({known.path}), and this run does not name it: "
            "what it spends is not written there, and comes on top",
            LedgerWarning,
            stacklevel=2,
        )


def _folder() -> Path:
    return state_folder() / "records"


def _records(file: Path, key: bytes) -> Iterator[bytes]:
    """The hash of each record of a file."""
    if file.suffix.lower() == ".csv":
        with file.open("rb") as lines:
            next(lines, None)  # the header
            yield from (_hash(stripped, key) for line in lines if (stripped := line.strip()))
        return
    table = open_table(file)
    for chunk in table.chunks(table.columns, BATCH):
        cells = [chunk.texts(name) for name in sorted(table.columns)]
        yield from (_hash(repr(row).encode(), key) for row in zip(*cells, strict=True))


def _hash(record: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=SIZE, key=key).digest()


def _digest(hashes: Iterable[bytes]) -> str:
    """The sum of the hashes modulo 2^128, and how many there are, under one more hash."""
    total, count, batch = 0, 0, bytearray()
    for one in hashes:
        batch += one
        count += 1
        if len(batch) == SIZE * BATCH:
            total, batch = total + _sum(batch), bytearray()
    total = (total + _sum(batch)) % 2 ** (8 * SIZE)
    return _hash(f"{count} {total}".encode(), records_key()).hex()


def _sum(batch: bytearray) -> int:
    """The sum of 16-byte numbers, exactly: by their 32-bit words, of which 2^16 fit into 64 bits."""
    words = np.frombuffer(bytes(batch), dtype="<u4").reshape(-1, SIZE // 4).sum(axis=0, dtype=np.uint64)
    return sum(int(word) << (32 * i) for i, word in enumerate(words))
