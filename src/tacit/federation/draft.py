"""A first federation.toml, for the coordinator to go through."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tacit.data import read_schema
from tacit.errors import no_such
from tacit.federation import PROTOCOL
from tacit.federation.identity import PublicIdentity
from tacit.federation.terms import Terms, schema_hash, text_hash


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
        raise no_such("site", site, terms.sites)
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

[identities]           # made by each site ('tacit federation site identity'), put here by 'tacit federation enrol'

[sites]                # each with the most records it may bring: declared by the parties, not counted
{sites}

[study]                # what is trained, and what it may spend; 'tacit federation terms' shows its plan
{what}
schema_sha256 = "{hashed}"
total_records = {total_records}      # of all sites together, a round number: a normaliser
total_epsilon = {epsilon:g}          # for every record, over the whole study
delta = {delta:g}
algorithm = "objp"       # one noisy local update a round; objpm takes several (local_updates)
# features = "{features}" # a public feature map, the same at every site ('tacit data maps')
# rounds = 300           # what is left out (rounds, clip, rho, eta) is planned from public facts

[running]              # the coordinator's own affair
quorum = {quorum}             # sites that must answer for a round to count
answer_seconds = 30    # a site that takes longer for a round is left out until it is back
ready_seconds = 60     # time for a site to load its records when a study begins
# test = "test.csv"      # a public table to measure the model on while it is trained
# engine_user = "tacit-hub"  # the program that talks to the network runs as this user: only root can start it so
"""
