"""Tables and schemas in memory, by name.

Settings hold names, never records: so nothing that is written or printed about a run can contain a data frame. The
names have a meaning within a `hold` block only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from taciturn.errors import InputError

if TYPE_CHECKING:
    from taciturn.data.table_io import TableFiles

PREFIX = "memory:"


class Held(NamedTuple):
    """What the names of a block mean."""

    tables: Mapping[str, TableFiles]
    schemas: Mapping[str, str]  # TOML text


_HELD: ContextVar[Held | None] = ContextVar("held", default=None)


@contextmanager
def hold(tables: Mapping[str, TableFiles], schemas: Mapping[str, str]) -> Iterator[None]:
    """Give tables and schemas, the latter as TOML text, a name for the duration of a block."""
    token = _HELD.set(Held(tables, schemas))
    try:
        yield
    finally:
        _HELD.reset(token)


def is_in_memory(name: object) -> bool:
    """Return whether a setting names something in memory, and not a file.

    Examples
    --------
    >>> is_in_memory("memory:frame"), is_in_memory("frame.csv")
    (True, False)
    """
    return str(name).startswith(PREFIX)


def held_table(name: object) -> TableFiles | None:
    """Return the table in memory of this name; None if the name is that of a file.

    Raises
    ------
    InputError
        If it is the name of a table in memory, and there is none here.
    """
    if not is_in_memory(name):
        return None
    held = _HELD.get()
    if held is None or str(name) not in held.tables:
        raise InputError(
            f"{name} stands for a data frame, which is in no file: give the same frame again from Python, "
            "as in taciturn.resume(run, data=frame)"
        )
    return held.tables[str(name)]


def held_schema(name: object) -> str | None:
    """Return the TOML text of the schema in memory of this name; None if the name is that of a file.

    Raises
    ------
    InputError
        If it is the name of a schema in memory, and there is none here.
    """
    if not is_in_memory(name):
        return None
    held = _HELD.get()
    if held is None or str(name) not in held.schemas:
        raise InputError(f"{name} stands for a schema that was given as an object: give it again, or the path of one")
    return held.schemas[str(name)]
