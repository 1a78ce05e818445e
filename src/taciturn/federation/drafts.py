"""Drafts of federation.toml and site.toml."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from taciturn.core.storage import make_folder, write_text
from taciturn.data import read_schema
from taciturn.errors import InputError, unknown_name
from taciturn.federation import PROTOCOL
from taciturn.federation.identity import PublicIdentity
from taciturn.federation.kits import check_address, read_kit
from taciturn.federation.policy import DRAFT as SITE_DRAFT
from taciturn.federation.terms import Terms, read_terms, schema_hash, text_hash
from taciturn.privacy.budget import BudgetLedger


def draft_terms(
    name: str,
    schema: str,
    data: str,
    sites: Mapping[str, int],
    total_records: int,
    epsilon: float,
    delta: float,
    host: str,
    port: int,
    identity: str,
    folder: Path = Path(),
) -> str:
    """TOML text with a remark on every key, for a file in this folder."""
    if schema:
        beside = os.path.relpath(schema, folder)
        what = f'schema = "{beside}"               # what the columns mean; every site gets a copy'
        hashed = schema_hash(read_schema(schema))
    else:
        what = f'data = "{data}"                   # a published data set, dealt out to the sites in order'
        hashed = text_hash(data)
    return DRAFT.format(
        protocol=PROTOCOL,
        name=name,
        host=host,
        port=port,
        identity=identity,
        sites="\n".join(f"{site} = {most}" for site, most in sites.items()),
        what=what,
        hashed=hashed,
        total_records=total_records,
        epsilon=epsilon,
        delta=delta,
        quorum=len(sites) // 2 + 1,
        features="fourier" if schema else "pixels",
    )


def with_identity(terms: Terms, site: str, identity: PublicIdentity) -> str:
    """The text of the terms with a site's identity in them, in the place of the one it had."""
    if site not in terms.sites:
        raise unknown_name("site", site, terms.sites)
    line = f'{site} = "{identity}"\n'
    text = terms.path.read_text(encoding="utf-8")
    head, found, rest = text.partition("[identities]")
    if not found:
        return f"{text.rstrip()}\n\n[identities]\n{line}"
    first, _, body = rest.partition("\n")
    end = re.search(r"^\[", body, re.MULTILINE)
    section, after = (body[: end.start()], body[end.start() :]) if end else (body, "")
    kept = [row for row in section.splitlines() if row.strip() and not re.match(rf"{re.escape(site)}\s*=", row)]
    return f"{head}[identities]{first}\n" + "".join(f"{row}\n" for row in kept) + line + (f"\n{after}" if after else "")


DRAFT = """\
# The terms of a federated study: every site gets a copy, reads it, and holds it against its own site.toml.
protocol = {protocol}
name = "{name}"

[server]
host = "{host}"        # the name by which the sites reach the coordinator's machine; only this port must be open there
port = {port}

[coordinator]
identity = "{identity}"  # signs every question and the model

[identities]           # made by each site ('taciturn federation site identity'), put here by 'taciturn federation enrol'

[sites]                # each with the most records it may bring: declared by the parties, not counted
{sites}

[study]                # what is trained, and what it may spend; 'taciturn federation terms' shows its plan
{what}
schema_sha256 = "{hashed}"
total_records = {total_records}      # of all sites together, a round number: a normaliser
total_epsilon = {epsilon:g}          # for every record, over the whole study
delta = {delta:g}
algorithm = "objp"       # one noisy local update a round; objpm takes several (local_updates)
# features = "{features}" # a public feature map, the same at every site ('taciturn data maps')
# rounds = 300           # what is left out (rounds, clip, rho, eta) is planned from public facts

[running]              # the coordinator's own affair
quorum = {quorum}             # sites that must answer for a round to count
answer_seconds = 30    # a site that takes longer for a round is left out until it is back
ready_seconds = 60     # time for a site to load its records when a study begins
# test = "test.csv"      # a public table to measure the model on while it is trained
# engine_user = "taciturn-hub"  # the program that talks to the network runs as this user: only root can start it so
"""


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
        BudgetLedger.create(books, Path(table).stem or read.data, *budget, read.settings.adjacency, column)
    text = SITE_DRAFT.format(
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
