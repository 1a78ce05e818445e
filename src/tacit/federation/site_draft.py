"""A first site.toml from a kit, and the ledger of the site's records."""

from __future__ import annotations

import os
from pathlib import Path

from tacit.data import read_schema
from tacit.errors import InputError
from tacit.federation import PROTOCOL
from tacit.federation.policy import DRAFT
from tacit.federation.terms import Terms, read_terms
from tacit.results.account import Account

LEDGER = "records.ledger"


def draft(kit: Path, table: str, budget: tuple[float, float], ledger: str) -> str:
    """The text; a ledger that is not there yet is begun with this budget."""
    if not (kit / "federation.toml").is_file():
        raise InputError(f"{kit} is not the kit of a site: it has no federation.toml")
    terms = read_terms(kit / "federation.toml")
    name = kit.resolve().name
    if name not in terms.sites:
        raise InputError(f"{kit} is not a kit of this federation: its name must be a site's, {', '.join(terms.sites)}")
    if bool(table) == bool(terms.data):
        raise InputError(
            "give --data, the site's table" if terms.schema else f"the study is of {terms.data}: no --data"
        )
    if table and not Path(table).is_file():
        raise InputError(f"there is no table {table}")
    place = Path(ledger) if ledger else kit / LEDGER
    if not place.exists():
        unit = read_schema(terms.schema).unit if terms.schema else None
        column = unit.column if unit else "record"
        Account.create(place, Path(table).stem or terms.data, *budget, terms.settings.adjacency, column)
    return DRAFT.format(
        protocol=PROTOCOL,
        site=name,
        kit=".",
        study="federation.toml",
        data=_data(kit, table, terms),
        schema_sha256=terms.schema_sha256,
        total_records=terms.settings.total_records,
        records_max=terms.sites[name],
        ledger=_relative(place, kit),
        state="state",
        study_epsilon_max=budget[0],
        delta_max=budget[1],
        mechanism=terms.settings.mechanism,
        adjacency=terms.settings.adjacency,
        algorithm=terms.settings.algorithm[0],
        rounds_max=10_000,
    )


def _data(kit: Path, table: str, terms: Terms) -> str:
    if terms.schema is None:
        return f'published = "{terms.data}"  # this site has its share of it, by its place among the sites'
    return f'table = "{_relative(Path(table), kit)}"\nschema = "{terms.schema.name}"'


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path.resolve(), folder.resolve())
