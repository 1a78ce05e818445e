"""`site.toml`: a site's records, its budget over all studies, and what it lets a study ask for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from taciturn.algorithms import ALGORITHMS
from taciturn.federation.logs import check_audit
from taciturn.federation.toml_sections import Key, check_sections, names, parse_toml, read_file, read_section
from taciturn.privacy.mechanisms import MECHANISMS
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.settings.rules import integer, path, real, text

ADVICE = "'taciturn federation site init' writes one"
LAYOUT: dict[str, dict[str, Key]] = {
    "": {
        "protocol": Key(integer(1)),
        "site": Key(text),
        "kit": Key(path, "kit"),
        "identity": Key(path, "identity.key"),
        "study": Key(path, "federation.toml"),
    },
    "data": {
        "table": Key(path, ""),
        "published": Key(text, ""),
        "schema": Key(path, ""),
        "schema_sha256": Key(text),
        "total_records": Key(integer(1)),
        "records_max": Key(integer(1)),
    },
    "budget": {"ledger": Key(path), "state": Key(path, "state")},
    "accept": {
        "study_epsilon_max": Key(real(0.0)),
        "delta_max": Key(real(0.0, 1.0)),
        "mechanisms": Key(names(lambda: MECHANISMS), tuple(MECHANISMS)),
        "adjacency": Key(names(lambda: ADJACENCIES)),
        "algorithms": Key(names(lambda: ALGORITHMS)),
        "rounds_max": Key(integer(1), 10_000),
        "open_studies_max": Key(integer(1), 1),
    },
    "engine": {"user": Key(text, "")},
    "logging": {"audit": Key(check_audit, "")},
}
OPTIONAL = ("engine", "logging")


@dataclass(frozen=True)
class Accepts:
    """What a study may ask of this site; anything else is refused."""

    study_epsilon_max: float  # of one study
    delta_max: float
    mechanisms: tuple[str, ...]
    adjacency: tuple[str, ...]
    algorithms: tuple[str, ...]
    rounds_max: int
    open_studies_max: int  # of the same terms, at one time


@dataclass(frozen=True)
class Site:
    """A site's own file: it decides."""

    path: Path
    protocol: int
    name: str
    kit: Path  # the start-up kit
    identity: Path  # this site's own, which signs and opens messages
    study: Path  # this site's own copy of federation.toml
    table: str
    published: str
    schema: str
    schema_sha256: str
    total_records: int
    records_max: int
    ledger: Path  # of these records, over all studies
    state: Path  # journal and study folders: private
    accepts: Accepts
    audit: str  # where a line goes for everything that leaves: nowhere, or to syslog
    engine_user: str  # system user of the program that talks to the network; empty: this one, or nobody for root


def read_site(where: Path) -> Site:
    """The site in a file; paths in it are relative to its folder."""
    return _parsed(where, where.resolve().parent, read_file(where, ADVICE))


@lru_cache(maxsize=4)  # it is read for every message
def _parsed(where: Path, here: Path, content: bytes) -> Site:
    document = parse_toml(where, content)
    check_sections(where, document, tuple(name for name in LAYOUT if name))
    found = {name: read_section(where, document, name, layout, name in OPTIONAL) for name, layout in LAYOUT.items()}
    top, data, budget = found[""], found["data"], found["budget"]

    def place(given: str) -> str:
        return str(here / given) if given else ""

    return Site(
        path=where,
        protocol=top["protocol"],
        name=top["site"],
        kit=here / top["kit"],
        identity=here / top["identity"],
        study=here / top["study"],
        table=place(data["table"]),
        published=data["published"],
        schema=place(data["schema"]),
        schema_sha256=data["schema_sha256"],
        total_records=data["total_records"],
        records_max=data["records_max"],
        ledger=here / budget["ledger"],
        state=here / budget["state"],
        accepts=Accepts(**found["accept"]),
        audit=found["logging"]["audit"],
        engine_user=found["engine"]["user"],
    )


DRAFT = """\
# What {site} brings to the federation, and what it lets a study ask for. Only this file decides: whatever a
# coordinator proposes beyond it is refused, and nothing leaves. Paths are relative to this file.
protocol = {protocol}
site = "{site}"
kit = "{kit}"                # the start-up kit, with this site's certificate: keep it private
identity = "{identity}"      # signs what this site says and opens what it is asked: never give it away
study = "{study}"            # your own copy of the study's terms; read it before you accept it

[data]
{data}
schema_sha256 = "{schema_sha256}"  # of the schema you agreed on
total_records = {total_records}           # declared by the parties together, a normaliser
records_max = {records_max}             # declared: this site brings no more; not counted

[budget]
ledger = "{ledger}"          # what all studies on these records may spend; never restore it from a backup
state = "{state}"            # journal and study folders; private: it holds what noise hides

[accept]
study_epsilon_max = {study_epsilon_max}       # a single study may ask for no more than this total epsilon
delta_max = {delta_max}
mechanisms = ["{mechanism}"]   # gaussian, laplace
adjacency = ["{adjacency}"]    # what neighbouring data sets are: add-remove or replace-one; the ledger counts for one
algorithms = ["{algorithm}"]
rounds_max = {rounds_max}
open_studies_max = 1       # of the same terms at one time: every invitation sets a whole plan aside

# [engine]
# user = "taciturn-relay"     # the program that talks to the network runs as this user: only root can start it so
# [logging]
# audit = "syslog"         # a line of JSON for everything that leaves, is refused or dropped; or "syslog:/a/socket"
"""
