"""Which records belong to which budget ledger: noted on this machine, by a keyed digest of the records.

The digest is a sum of keyed hashes of single records, so their order does not matter. It catches mistakes, not
attacks: editing, adding or removing one record changes the digest, and so does another file format.
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
from taciturn.data.memory_names import held_table
from taciturn.data.table_io import TableFiles, open_table, table_files
from taciturn.errors import InputError, LedgerWarning
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.signatures import records_key

HASH_BYTES = 16
CHUNK = 2**16  # records whose hashes are added up at once


class LedgerLink(NamedTuple):
    """The budget ledger of some records."""

    ledger: str  # its id
    data: str  # the name of the data, as the ledger says
    path: str  # where it was when it was last used


def table_digest(path: str | Path) -> str:
    """Return the digest of a table's records: of the lines of CSV files, and of the cells of Parquet files and frames.

    A frame and its Parquet file have the same digest.
    """
    key = records_key()
    if (held := held_table(path)) is not None:
        return _digest(_cell_hashes(held, key))
    return _digest(line for file in table_files(path) for line in _record_hashes(file, key))


def array_digest(x: NDArray[Any], labels: NDArray[Any]) -> str:
    """Return the digest of records in memory, x [n, J] and labels [n]."""
    key, rows = records_key(), np.ascontiguousarray(x, dtype=np.float64)
    named = labels.astype(str)
    return _digest(_hash(row.tobytes() + str(label).encode(), key) for row, label in zip(rows, named, strict=True))


def linked_ledger(digest: str) -> LedgerLink | None:
    """Return the budget ledger of the records with this digest, if this machine knows one."""
    path = _folder() / f"{digest}.json"
    return LedgerLink(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def check_link(digest: str, budget: BudgetLedger) -> None:
    """Raise InputError if the records belong to another budget ledger, unless this one was made with --further."""
    known = linked_ledger(digest)
    if known is None or known.ledger == budget.identity or budget.state().further:
        return
    raise InputError(
        f"these records already have a budget ledger, {known.data} ({known.path}), and {budget.path} is another one. "
        "The budgets of two ledgers add up, and neither counts what the other allows. Use the first, or create one "
        "with 'taciturn ledger init --further' if you mean to add a budget"
    )


def link_ledger(digest: str, budget: BudgetLedger) -> None:
    """Note that these records belong to this budget ledger; a further ledger does not replace the first."""
    check_link(digest, budget)
    known = linked_ledger(digest)
    if known is None or known.ledger == budget.identity:
        make_folder(_folder(), exist_ok=True)
        link = LedgerLink(budget.identity, budget.state().data, str(budget.path.resolve()))
        write_text(_folder() / f"{digest}.json", json.dumps(link._asdict()) + "\n")


def warn_without_ledger(digest: Callable[[], str]) -> None:
    """Warn if the records have a budget ledger; `digest` is called only if this machine knows any."""
    known = linked_ledger(digest()) if _folder().is_dir() and any(_folder().iterdir()) else None
    if known is not None:
        warnings.warn(
            f"this run is not charged to the ledger {known.data} of these records ({known.path}), but its cost adds to "
            f"theirs; --ledger {known.path} charges it",
            LedgerWarning,
            stacklevel=2,
        )


def _folder() -> Path:
    return state_folder() / "records"


def _record_hashes(file: Path, key: bytes) -> Iterator[bytes]:
    if file.suffix.lower() == ".csv":
        with file.open("rb") as lines:
            next(lines, None)  # the header
            yield from (_hash(stripped, key) for line in lines if (stripped := line.strip()))
        return
    yield from _cell_hashes(open_table(file), key)


def _cell_hashes(table: TableFiles, key: bytes) -> Iterator[bytes]:
    for chunk in table.chunks(table.columns, CHUNK):
        cells = [[_spelled(text) for text in chunk.texts(name)] for name in sorted(table.columns)]
        yield from (_hash(repr(row).encode(), key) for row in zip(*cells, strict=True))


def _spelled(text: str | None) -> str | None:
    """Return true and false in lower case: a frame's booleans are spelled as its schema spells them."""
    return text.lower() if text is not None and text.lower() in ("true", "false") else text


def _hash(record: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=HASH_BYTES, key=key).digest()


def _digest(hashes: Iterable[bytes]) -> str:
    """Return the keyed hash of the number of hashes and their sum modulo 2^128."""
    total, count, chunk = 0, 0, bytearray()
    for one in hashes:
        chunk += one
        count += 1
        if len(chunk) == HASH_BYTES * CHUNK:
            total, chunk = total + _sum(chunk), bytearray()
    total = (total + _sum(chunk)) % 2 ** (8 * HASH_BYTES)
    return _hash(f"{count} {total}".encode(), records_key()).hex()


def _sum(chunk: bytearray) -> int:
    """Return the exact sum of 16-byte numbers by their 32-bit words: the sum of 2^16 of them fits into 64 bits."""
    words = np.frombuffer(bytes(chunk), dtype="<u4").reshape(-1, HASH_BYTES // 4).sum(axis=0, dtype=np.uint64)
    return sum(int(word) << (32 * i) for i, word in enumerate(words))
