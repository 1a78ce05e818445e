"""A first federation.toml, for the coordinator to go through."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tacit.data import read_schema
from tacit.federation import PROTOCOL
from tacit.federation.terms import schema_hash, text_hash


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
    folder: Path = Path(),
) -> str:
    """TOML text with a remark on every key, for a file in this folder."""
    if schema:
        beside = os.path.relpath(schema, folder)
        what = f'schema = "{beside}"               # what the columns mean; it goes into every kit'
        hashed = schema_hash(read_schema(schema))
    else:
        what = f'data = "{data}"                   # a published data set, dealt out to the sites in order'
        hashed = text_hash(data)
    return DRAFT.format(
        protocol=PROTOCOL,
        name=name,
        host=host,
        port=port,
        sites="\n".join(f"{site} = {most}" for site, most in sites.items()),
        what=what,
        hashed=hashed,
        total_records=total_records,
        epsilon=epsilon,
        delta=delta,
        quorum=len(sites) // 2 + 1,
        features="fourier" if schema else "pixels",
    )


DRAFT = """\
# The terms of a federated study: every site gets a copy, reads it, and holds it against its own site.toml.
protocol = {protocol}
name = "{name}"

[server]
host = "{host}"        # the name by which the sites reach the coordinator's machine; only this port must be open there
port = {port}

[sites]                # each with the most records it may bring: declared by the parties, not counted
{sites}

[study]                # what is trained, and what the coordinator proposes to spend; 'tacit plan' shows what it buys
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
"""
