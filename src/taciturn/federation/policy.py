"""`site.toml`: a site's records, its budget over all studies, and what it lets a study request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import tomli_w

from taciturn.algorithms import ALGORITHMS
from taciturn.core.storage import write_text
from taciturn.federation.logs import check_audit
from taciturn.federation.toml_sections import Key, check_sections, name_list, parse_toml, read_config_file, read_section
from taciturn.privacy.mechanisms import MECHANISMS
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.settings.rules import integer, path, real, text

ADVICE = "'taciturn federation site init' writes one"
FEDERATED_TRUST = (AGENTS, SECURE_SUM)  # the trust models of a federation
LAYOUT: dict[str, dict[str, Key]] = {
    "": {
        "protocol": Key(integer(1)),
        "site": Key(text),
        "kit": Key(path, "kit"),
        "identity": Key(path, "identity.key"),
        "study": Key(path, "federation.toml"),
        "peers": Key(path, "peers.toml"),
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
        "mechanisms": Key(name_list(lambda: MECHANISMS), tuple(MECHANISMS)),
        "adjacency": Key(name_list(lambda: ADJACENCIES)),
        "algorithms": Key(name_list(lambda: ALGORITHMS)),
        "trust": Key(name_list(lambda: FEDERATED_TRUST), FEDERATED_TRUST),
        "colluders_min": Key(integer(1), 1),
        "quorum_min": Key(integer(1), 1),
        "rounds_max": Key(integer(1), 10_000),
        "open_studies_max": Key(integer(1), 1),
    },
    "engine": {"user": Key(text, "")},
    "logging": {"audit": Key(check_audit, "")},
}
OPTIONAL = ("engine", "logging")


@dataclass(frozen=True)
class AcceptancePolicy:
    """The limits that a study must respect; a study beyond any of them is refused."""

    study_epsilon_max: float  # of one study
    delta_max: float
    mechanisms: tuple[str, ...]
    adjacency: tuple[str, ...]
    algorithms: tuple[str, ...]
    trust: tuple[str, ...]
    colluders_min: int  # the fewest colluders that the noise of a secure sum must allow for
    quorum_min: int  # the fewest sites over which a sum may be opened
    rounds_max: int
    open_studies_max: int  # of the same terms, at one time


@dataclass(frozen=True)
class Site:
    """The content of site.toml. Nothing that a coordinator sends can override it."""

    path: Path
    protocol: int
    name: str
    kit: Path  # the start-up kit
    identity: Path  # private key file that signs and decrypts this site's messages
    study: Path  # this site's own copy of federation.toml
    peers: Path  # the identities that people at this site have compared with the other sites
    table: str
    published: str
    schema: str
    schema_sha256: str
    total_records: int
    records_max: int
    ledger: Path  # budget of these records over all studies
    state: Path  # journal and study folders: private
    accepts: AcceptancePolicy
    audit: str  # destination of audit lines: "" for none, or syslog
    engine_user: str  # system user of the network program; empty: this user, or nobody if that is root


def read_site(path: Path) -> Site:
    """Return the site described by a file; relative paths in it start at its folder.

    Parameters
    ----------
    path : Path
        site.toml.

    Raises
    ------
    InputError
        If the file is missing, is not TOML, or has an unknown, missing or invalid key.
    """
    return _parse_site(path, path.resolve().parent, read_config_file(path, ADVICE))


@lru_cache(maxsize=64)  # the file is read for every message; a trial has many sites in one process
def _parse_site(path: Path, folder: Path, content: bytes) -> Site:
    document = parse_toml(path, content)
    check_sections(path, document, tuple(name for name in LAYOUT if name))
    sections = {name: read_section(path, document, name, layout, name in OPTIONAL) for name, layout in LAYOUT.items()}
    top, data = sections[""], sections["data"]
    return Site(
        path=path,
        protocol=top["protocol"],
        name=top["site"],
        kit=folder / top["kit"],
        identity=folder / top["identity"],
        study=folder / top["study"],
        peers=folder / top["peers"],
        table=str(folder / data["table"]) if data["table"] else "",
        published=data["published"],
        schema=str(folder / data["schema"]) if data["schema"] else "",
        schema_sha256=data["schema_sha256"],
        total_records=data["total_records"],
        records_max=data["records_max"],
        ledger=folder / sections["budget"]["ledger"],
        state=folder / sections["budget"]["state"],
        accepts=AcceptancePolicy(**sections["accept"]),
        audit=sections["logging"]["audit"],
        engine_user=sections["engine"]["user"],
    )


def read_peers(site: Site) -> dict[str, str]:
    """Return the identities that people at a site have compared with the other sites themselves, by site.

    Returns
    -------
    dict of str to str
        Public identities as text; empty if nobody has verified a peer yet.

    Raises
    ------
    InputError
        If the file is not TOML, or has anything but one line for each peer.
    """
    if not site.peers.exists():
        return {}
    document = parse_toml(site.peers, site.peers.read_bytes())
    for name, identity in document.items():
        text(f"{site.peers}: the identity of {name}", identity)
    return {name: str(identity) for name, identity in document.items()}


def write_peer(site: Site, name: str, identity: str) -> None:
    """Record that people at a site have compared a peer's identity with the peer itself."""
    peers = read_peers(site) | {name: identity}
    head = (
        "# Identities of other sites that people here have compared with them, written by 'taciturn federation site "
        "verify'.\n# A site whose line is missing here, or differs from the terms, counts as a colluder.\n"
    )
    write_text(site.peers, head + tomli_w.dumps(peers))
