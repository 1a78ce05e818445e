"""Drafts of federation.toml and site.toml, and enrolment of a site's identity in the terms."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from taciturn.core.storage import make_folder, text_hash, write_text
from taciturn.data import read_schema
from taciturn.errors import InputError, unknown_name
from taciturn.federation import PROTOCOL
from taciturn.federation.identity import PublicIdentity
from taciturn.federation.kits import check_address, read_kit
from taciturn.federation.terms import (
    PLANNED_RESERVE,
    SUM_FROM_SITES,
    Terms,
    default_trust,
    read_terms,
    schema_hash,
)
from taciturn.planning.integer_sums import check_participation
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.secure_sum.parameters import default_missing
from taciturn.settings.checks import COLLUDERS

LEDGER_FILE, IDENTITY_FILE, TERMS_FILE = "records.ledger", "identity.key", "federation.toml"
TABLE_METHOD = """\
algorithm = "additive"   # noisy counts of every column first, then one noisy gradient per round
features = "bins"        # the model has one curve per column, with levels from the schema alone"""
PUBLISHED_METHOD = """\
algorithm = "objp"       # one noisy local update per round; objpm takes several (local_updates)
# features = "pixels"    # a public feature map, the same at every site ('taciturn data maps')"""
SUMMED_METHOD = """\
algorithm = "dpgd"       # one noisy gradient per round, at the common model
# features = "pixels"    # a public feature map, the same at every site ('taciturn data maps')"""
SUM_KEYS = """\
trust = "secure-sum"     # sites mask what they send: only sums can be read, so each adds only a share of the noise
colluders = {colluders}            # sites that may tell the coordinator what they know; the others add enough noise
missing = {missing}              # sites that may be missing from a sum; if more are, that sum is lost
# reserve = {reserve}            # uploads beyond the rounds, in place of lost sums; by default 1/50 of the rounds"""
AGENTS_KEYS = """\
trust = "agents"         # every site adds all of the noise itself
"""
MANY_SITES = """\
# trust = "secure-sum"   # only sums of what sites send could be read: 1/{times:.2g} of the noise would be enough"""
FEW_SITES = """\
# trust = "secure-sum"   # default from {default} sites on; with {sites}: 1/{times:.2g} of the noise, no site missing"""
TOO_FEW_SITES = "# a secure sum, with less noise, needs at least 3 sites; from {default} on it is the default"


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
    trust: str = "",
    colluders: int = COLLUDERS,
    missing: int | None = None,
) -> str:
    """Return the text of a commented federation.toml.

    Parameters
    ----------
    name : str
        Name of the study.
    schema, data : str
        The schema file of the sites' tables, or else a published data set.
    sites : Mapping[str, int]
        The maximum number of records of each site.
    total_records : int
        Declared number of records of all sites.
    epsilon, delta : float
        The study's budget.
    host, port
        The coordinator's address.
    identity : str
        The coordinator's public identity.
    folder : Path
        The folder of the new file, to which `schema` is made relative.
    trust : str
        "agents" or "secure-sum"; empty for the default of this number of sites.
    colluders, missing
        Of a secure sum. None: the default of this number of sites.

    Raises
    ------
    InputError
        If the sites cannot have such a secure sum, or these are given without one.
    """
    chosen = _choose_trust(len(sites), trust, colluders, missing)
    if schema:
        relative = os.path.relpath(schema, folder)
        what = f'schema = "{relative}"               # the meaning of the columns; every site gets a copy'
    else:
        what = f'data = "{data}"                   # a published data set, partitioned among the sites in order'
    return _template("federation.toml").format(
        protocol=PROTOCOL,
        name=name,
        host=host,
        port=port,
        identity=identity,
        sites="\n".join(f"{site} = {most}" for site, most in sites.items()),
        what=what,
        schema_sha256=schema_hash(read_schema(schema)) if schema else text_hash(data),
        total_records=total_records,
        epsilon=epsilon,
        delta=delta,
        method=TABLE_METHOD if schema else SUMMED_METHOD if chosen.summed else PUBLISHED_METHOD,
        trust=chosen.keys,
        quorum=chosen.quorum,
    )


class _TrustDraft(NamedTuple):
    """What a draft says about the trust model."""

    summed: bool
    keys: str  # lines of [study]
    quorum: str  # line of [running]


def _choose_trust(sites: int, trust: str, colluders: int, missing: int | None) -> _TrustDraft:
    """Return the lines about the trust model, the given one or the default."""
    gone = default_missing(sites) if missing is None else missing
    if (trust or default_trust(sites)) == SECURE_SUM:
        check_participation(sites, colluders, gone)
        keys = SUM_KEYS.format(colluders=colluders, missing=gone, reserve=PLANNED_RESERVE)
        quorum = f"# quorum: {sites - gone} of {sites} sites must be in a sum, because missing is {gone}"
        return _TrustDraft(True, keys, quorum)
    if missing is not None or colluders != COLLUDERS:
        given = f"missing is {missing}" if missing is not None else f"colluders is {colluders}"
        raise InputError(
            f"{given}, but the trust model of {sites} sites is {AGENTS}, in which every site adds all of the noise "
            f"itself; add --trust {SECURE_SUM}"
        )
    facts = {"sites": sites, "default": SUM_FROM_SITES, "times": math.sqrt(max(1, sites - COLLUDERS - gone))}
    note = TOO_FEW_SITES if sites < 3 else MANY_SITES if sites >= SUM_FROM_SITES else FEW_SITES
    keys = (AGENTS_KEYS if trust else "") + note.format(**facts)
    quorum = f"quorum = {sites // 2 + 1}             # number of sites that must answer for a round to count"
    return _TrustDraft(False, keys, quorum)


def insert_identity(terms: Terms, site: str, identity: PublicIdentity) -> str:
    """Return the text of the terms with a site's identity inserted or replaced.

    Raises
    ------
    InputError
        If the terms have no such site.
    """
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


def write_site_draft(
    folder: Path, kit: Path, terms: Path, table: str, budget: tuple[float, float], ledger: str
) -> Path:
    """Write a first site.toml into a site's own folder, with a copy of the terms, and return its path.

    Parameters
    ----------
    folder : Path
        The site's own folder, for its policy, ledger and state. The kit contains nothing of that.
    kit : Path
        The start-up kit; its certificate names the site.
    terms : Path
        federation.toml from the coordinator; it is copied together with its schema.
    table : str
        The site's table; empty for a study of a published data set.
    budget : tuple of float
        Total epsilon and delta of a new ledger.
    ledger : str
        The records' ledger; empty for one in the folder. It is created if it does not exist.

    Raises
    ------
    InputError
        If site.toml exists, or kit, terms and table do not match.
    """
    place = folder / "site.toml"
    if place.exists():
        raise InputError(f"{place} exists and is not overwritten")
    study, found = read_terms(terms), read_kit(kit)
    check_address(found, study)
    name = found.owner
    if name not in study.sites:
        raise InputError(f"{kit} is the kit of {name}, which is not a site of {terms}: {', '.join(study.sites)}")
    if bool(table) == bool(study.data):
        raise InputError(
            "give --data, the site's table" if study.schema else f"the study uses {study.data}; remove --data"
        )
    if table and not Path(table).is_file():
        raise InputError(f"there is no table {table}")
    make_folder(folder, exist_ok=True, private=True)
    _copy_terms(study, folder)
    ledger_path = Path(ledger) if ledger else folder / LEDGER_FILE
    if not ledger_path.exists():
        unit = read_schema(study.schema).unit if study.schema else None
        column = unit.column if unit else "record"
        BudgetLedger.create(ledger_path, Path(table).stem or study.data, *budget, study.settings.adjacency, column)
    if study.schema is None:
        data = f'published = "{study.data}"  # this site has the share at its position among the sites'
    else:
        data = f'table = "{_relative(Path(table), folder)}"\nschema = "{study.schema.name}"'
    text = _template("site.toml").format(
        protocol=PROTOCOL,
        site=name,
        kit=_relative(kit, folder),
        identity=IDENTITY_FILE,
        study=TERMS_FILE,
        data=data,
        schema_sha256=study.schema_sha256,
        total_records=study.settings.total_records,
        records_max=study.sites[name],
        ledger=_relative(ledger_path, folder),
        state="state",
        study_epsilon_max=budget[0],
        delta_max=budget[1],
        mechanism=study.settings.mechanism,
        adjacency=study.settings.adjacency,
        algorithm=study.settings.algorithm[0],
        trust=", ".join(f'"{model}"' for model in dict.fromkeys((AGENTS, study.settings.trust))),
        rounds_max=10_000,
    )
    write_text(place, text)
    return place


def _template(name: str) -> str:
    return (files("taciturn.federation") / "templates" / name).read_text(encoding="utf-8")


def _copy_terms(terms: Terms, folder: Path) -> None:
    """Copy the terms, with the schema next to them."""
    text = terms.path.read_text(encoding="utf-8")
    if terms.schema is not None:
        pattern = r"^schema\s*=\s*([\"']).*?\1"
        text = re.sub(pattern, f'schema = "{terms.schema.name}"', text, count=1, flags=re.MULTILINE)
        write_text(folder / terms.schema.name, terms.schema.read_text(encoding="utf-8"))
    write_text(folder / TERMS_FILE, text)


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path.resolve(), folder.resolve())
