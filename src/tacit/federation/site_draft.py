"""A first site.toml from kit and terms, and the ledger of the site's records."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tacit.data import read_schema
from tacit.errors import InputError
from tacit.federation import PROTOCOL
from tacit.federation.kits import check_address, read_kit
from tacit.federation.policy import DRAFT
from tacit.federation.terms import Terms, read_terms
from tacit.results.account import Account
from tacit.results.files import make_folder, write_text

LEDGER, IDENTITY, TERMS = "records.ledger", "identity.key", "federation.toml"


def draft(folder: Path, kit: Path, terms: Path, table: str, budget: tuple[float, float], ledger: str) -> Path:
    """A first site.toml in a site's own folder, with its copy of the terms beside it.

    Parameters
    ----------
    folder
        The site's own: what it believes, promises and spends lies there, and nothing of it in the kit.
    kit
        The start-up kit; its certificate names the site.
    terms
        federation.toml as it came from the coordinator; it is copied, and its schema too.
    table
        The site's table; empty for a study of a published data set.
    budget
        Total epsilon and delta of a ledger that is begun where there is none.
    ledger
        The records' ledger; empty for one in the folder.
    """
    place = folder / "site.toml"
    if place.exists():
        raise InputError(f"{place} exists: it is the site's to change")
    read = read_terms(terms)
    found = read_kit(kit)
    check_address(found, read)
    name = found.owner
    if name not in read.sites:
        raise InputError(f"{kit} is the kit of {name}, which is no site of {terms}: there are {', '.join(read.sites)}")
    if bool(table) == bool(read.data):
        raise InputError("give --data, the site's table" if read.schema else f"the study is of {read.data}: no --data")
    if table and not Path(table).is_file():
        raise InputError(f"there is no table {table}")
    make_folder(folder, exist_ok=True, private=True)
    _copy_terms(read, folder)
    books = Path(ledger) if ledger else folder / LEDGER
    if not books.exists():
        unit = read_schema(read.schema).unit if read.schema else None
        column = unit.column if unit else "record"
        Account.create(books, Path(table).stem or read.data, *budget, read.settings.adjacency, column)
    text = DRAFT.format(
        protocol=PROTOCOL,
        site=name,
        kit=_relative(kit, folder),
        identity=IDENTITY,
        study=TERMS,
        data=_data(folder, table, read),
        schema_sha256=read.schema_sha256,
        total_records=read.settings.total_records,
        records_max=read.sites[name],
        ledger=_relative(books, folder),
        state="state",
        study_epsilon_max=budget[0],
        delta_max=budget[1],
        mechanism=read.settings.mechanism,
        adjacency=read.settings.adjacency,
        algorithm=read.settings.algorithm[0],
        rounds_max=10_000,
    )
    write_text(place, text)
    return place


def _copy_terms(terms: Terms, folder: Path) -> None:
    """The terms as a site keeps them: the schema lies beside them."""
    text = terms.path.read_text(encoding="utf-8")
    if terms.schema is not None:
        pattern = r"^schema\s*=\s*([\"']).*?\1"
        text = re.sub(pattern, f'schema = "{terms.schema.name}"', text, count=1, flags=re.MULTILINE)
        write_text(folder / terms.schema.name, terms.schema.read_text(encoding="utf-8"))
    write_text(folder / TERMS, text)


def _data(folder: Path, table: str, terms: Terms) -> str:
    if terms.schema is None:
        return f'published = "{terms.data}"  # this site has its share of it, by its place among the sites'
    return f'table = "{_relative(Path(table), folder)}"\nschema = "{terms.schema.name}"'


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path.resolve(), folder.resolve())
