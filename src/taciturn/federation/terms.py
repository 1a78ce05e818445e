"""`federation.toml`: who takes part, what they train together, and what the coordinator proposes to spend."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from taciturn.algorithms import ALGORITHMS
from taciturn.core.storage import to_json
from taciturn.data import SOURCES, DataOptions, Facts, Schema, declared_facts, load_unmapped, read_schema, schema_facts
from taciturn.data.feature_mapping import mapped_names, mapped_rows
from taciturn.data.schema import dump_schema
from taciturn.errors import InputError, unknown_name
from taciturn.federation import PROTOCOL
from taciturn.federation.identity import PublicIdentity
from taciturn.federation.toml_sections import Key, check_sections, read_section, read_toml, texts
from taciturn.settings import Settings, resolve
from taciturn.settings.resolve import parse
from taciturn.settings.rules import integer, path, real, text
from taciturn.types import Dataset, Shard

STUDY_KEYS = (  # settings that a study may fix; what it leaves out is planned from public facts
    "loss",
    "regulariser",
    "beta",
    "set",
    "set_size",
    "algorithm",
    "rounds",
    "local_updates",
    "rho",
    "eta",
    "eta_scale",
    "total_epsilon",
    "delta",
    "mechanism",
    "adjacency",
    "clip",
    "clip_l1",
    "noise_multiplier",
    "intercept",
    "features",
    "precision",
)
OWN_KEYS = ("schema", "schema_sha256", "data", "total_records")
SITE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
RESERVED = ("server", "coordinator", "authority")
ADVICE = "'taciturn federation init' writes one"


@dataclass(frozen=True)
class Terms:
    """What all parties of a study must agree on, and how the coordinator runs it."""

    path: Path
    name: str
    host: str
    port: int
    sites: Mapping[str, int]  # name -> the most records it may bring, as declared; the order is the agents'
    settings: Settings
    schema: Path | None  # of the sites' tables
    data: str  # a published data set instead, dealt out to the sites in order
    quorum: int
    answer_seconds: float  # for a round
    ready_seconds: float  # for an invitation: a site loads its records then
    test: str  # the coordinator's own public test table
    identity: PublicIdentity | None = None  # the coordinator's; None in a draft
    identities: Mapping[str, PublicIdentity] = field(default_factory=dict)  # the sites'; not all of them in a draft
    revoked: tuple[str, ...] = ()  # identities that nobody may use any more
    engine_user: str = ""  # system user of the coordinator's program that talks to the network

    @property
    def agents(self) -> tuple[str, ...]:
        """The sites' names, in order."""
        return tuple(self.sites)

    @cached_property
    def schema_sha256(self) -> str:
        """The hash of what the features mean."""
        return schema_hash(read_schema(self.schema)) if self.schema else text_hash(self.data)

    @cached_property
    def digest(self) -> str:
        """The hash of everything two parties must have in common."""
        fields = dataclasses.asdict(self.settings)
        shared = {name: fields[name] for name in (*STUDY_KEYS, "total_records", "noise", "mode")}
        who = [
            str(self.identity or ""),
            [[name, str(one)] for name, one in self.identities.items()],
            list(self.revoked),
        ]
        parts = (PROTOCOL, self.name, list(self.sites.items()), self.schema_sha256, self.data, shared, who)
        return text_hash(to_json(parts))

    @property
    def coordinator(self) -> PublicIdentity:
        """Whose questions a site answers."""
        if self.identity is None:
            raise InputError(f"{self.path} names no identity of the coordinator: 'taciturn federation init' makes one")
        return self.identity

    def check_complete(self) -> None:
        """Refuse a draft: a study runs when everybody's identity stands in its terms."""
        _ = self.coordinator
        if missing := [site for site in self.sites if site not in self.identities]:
            raise InputError(
                f"{self.path} has no identity of {', '.join(missing)}: each site makes its own with 'taciturn federation "
                "site identity', and 'taciturn federation enrol' puts it into the terms"
            )

    def published(self) -> Dataset | None:
        """The published data set of a trial, before the feature map; None: the records are in the sites' tables."""
        return None if self.schema else load_unmapped(self.options())

    def mapped(self, shard: Shard) -> Shard:
        """Encoded records after the study's feature map."""
        s = self.settings
        return Shard(mapped_rows(shard.x, s.features, self._image, s.intercept), shard.y)

    def mapped_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """What their features are then called; `names` are without the intercept."""
        return mapped_names(self.settings.features, names, self._image, self.settings.intercept)

    @property
    def _image(self) -> tuple[int, int] | None:
        return SOURCES[self.data].image if self.data else None

    def options(self) -> DataOptions:
        """How a published data set is dealt out."""
        s = self.settings
        sites = len(self.sites)
        return DataOptions(self.data, agents=sites, intercept=s.intercept, features=s.features, precision=s.precision)

    def facts(self, published: Dataset | None = None) -> Facts:
        """All that is public about the records."""
        test = "public" if self.test or self.data else "none"
        if self.schema is None:
            found = declared_facts(self.options(), _count(self.settings), None, published)
            return found._replace(records_max=dict(self.sites), test=test)
        return schema_facts(
            self.name,
            read_schema(self.schema),
            intercept=self.settings.intercept,
            agents=len(self.sites),
            total_records=_count(self.settings),
            records_max=dict(self.sites),
            test=test,
            features=self.settings.features,
        )


def read_terms(where: Path) -> Terms:
    """The terms in a file; paths in it are relative to its folder."""
    document = read_toml(where, ADVICE)
    check_sections(where, document, ("server", "sites", "study", "running", "coordinator", "identities", "revoked"))
    top = read_section(where, document, "", {"protocol": Key(integer(1)), "name": Key(text)})
    if top["protocol"] != PROTOCOL:
        raise InputError(f"{where} is of protocol {top['protocol']}, and this Taciturn speaks {PROTOCOL}")
    _check_name(where, "name", top["name"])
    server = read_section(where, document, "server", {"host": Key(text), "port": Key(integer(1, 65535), 8002)})
    sites = _sites(where, document)
    running = read_section(
        where,
        document,
        "running",
        {
            "quorum": Key(integer(1, len(sites)), len(sites) // 2 + 1),
            "answer_seconds": Key(real(0.0), 30.0),
            "ready_seconds": Key(real(0.0), 60.0),
            "test": Key(path, ""),
            "engine_user": Key(text, ""),
        },
        optional=True,
    )
    settings, schema, data, declared = _study(where, document, sites)
    own, others, revoked = _identities(where, document, sites)
    test = str(where.parent / running["test"]) if running["test"] else ""
    terms = Terms(
        where,
        top["name"],
        server["host"],
        server["port"],
        sites,
        settings,
        schema,
        data,
        running["quorum"],
        running["answer_seconds"],
        running["ready_seconds"],
        test,
        own,
        others,
        revoked,
        running["engine_user"],
    )
    if declared and declared != terms.schema_sha256:
        raise InputError(
            f"{where} declares schema_sha256 {declared[:12]}…, and {schema} has {terms.schema_sha256[:12]}…"
        )
    return terms


def schema_hash(schema: Schema) -> str:
    """The same for two schemas that mean the same; comments do not count."""
    return text_hash(dump_schema(replace(schema, agent=None, agents=())))


def text_hash(content: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(content.encode()).hexdigest()


def _sites(where: Path, document: Mapping[str, Any]) -> dict[str, int]:
    section = document.get("sites")
    if not isinstance(section, dict) or not section:
        raise InputError(f"{where} needs a section [sites] with a line 'name = records_max' for each")
    for name in section:
        _check_name(where, "the site", name)
        if name in RESERVED:
            raise InputError(f"{where}: a site cannot be called {name}: that is the name of another folder of kits")
    return {name: integer(1)(f"{where}: the records_max of site {name}", most) for name, most in section.items()}


def _identities(
    where: Path, document: Mapping[str, Any], sites: Mapping[str, int]
) -> tuple[PublicIdentity | None, dict[str, PublicIdentity], tuple[str, ...]]:
    """The coordinator's identity, the sites', and those that were revoked."""
    top = read_section(where, document, "coordinator", {"identity": Key(text, "")}, optional=True)
    named = read_section(where, document, "identities", {site: Key(text, "") for site in sites}, optional=True)
    revoked = read_section(where, document, "revoked", {"identities": Key(texts, ())}, optional=True)["identities"]
    own = PublicIdentity.parse(top["identity"]) if top["identity"] else None
    others = {site: PublicIdentity.parse(line) for site, line in named.items() if line}
    used = [("the coordinator", own)] if own else []
    for name, one in [*used, *others.items()]:
        if str(one) in revoked:
            raise InputError(f"{where}: the identity of {name} is among those that were revoked")
    if len({str(one) for one in (*others.values(), own) if one}) < len(others) + bool(own):
        raise InputError(f"{where}: two parties have the same identity: each makes its own")
    return own, others, tuple(str(PublicIdentity.parse(line)) for line in revoked)


def _check_name(where: Path, what: str, name: str) -> None:
    if not SITE_NAME.fullmatch(name):
        raise InputError(f"{where}: {what} {name!r} must be small letters, digits and hyphens, at most 41")


def _check_algorithm(where: Path, name: str) -> None:
    """Refuse what sites cannot run: noise without an exact form, or uploads of more than z."""
    if not ALGORITHMS[name].federated:
        known = ", ".join(other for other in ALGORITHMS if ALGORITHMS[other].federated)
        raise InputError(
            f"{where}: [study] algorithm is {name}, which has no exact noise or sends more than z: there are {known}"
        )


def _study(
    where: Path, document: Mapping[str, Any], sites: Mapping[str, int]
) -> tuple[Settings, Path | None, str, str]:
    section = document.get("study")
    if not isinstance(section, dict):
        raise InputError(f"{where} has no section [study]")
    for key in section:
        if key not in STUDY_KEYS + OWN_KEYS:
            raise InputError(f"{where}: {unknown_name('key in [study]', key, STUDY_KEYS + OWN_KEYS)}")
    if ("schema" in section) == ("data" in section):
        raise InputError(f"{where}: [study] needs either schema (of the sites' tables) or data (a published data set)")
    data = text("[study] data", section.get("data", ""))
    if data and not SOURCES[data].published:
        raise InputError(f"{where}: [study] data is {data}: only a published data set has public sizes; give a schema")
    schema = None if data else where.parent / text("[study] schema", section["schema"])
    given = {key: value for key, value in section.items() if key in STUDY_KEYS}
    fixed = {"mode": "certified", "noise": "hardened", "averages": False, "server": "full", "records_max": dict(sites)}
    place = {"data": data} if data else {"data": "sites.csv", "schema": str(schema)}
    if "total_records" not in section:
        raise InputError(f"{where}: [study] needs total_records: a round number of records that the parties agree on")
    total = integer(1)("[study] total_records", section["total_records"])
    for name in parse({"algorithm": given.get("algorithm", ())})["algorithm"]:
        _check_algorithm(where, name)
    settings = resolve(fixed | place | {"agents": len(sites), "total_records": total, "rounds": "auto"} | given)
    for key in ("algorithm", "total_epsilon"):
        if len(getattr(settings, key)) != 1:
            raise InputError(f"{where}: [study] {key} must be one value: a federation runs one study at a time")
    return settings, schema, data, text("[study] schema_sha256", section.get("schema_sha256", ""))


def _count(settings: Settings) -> int:
    if not isinstance(settings.total_records, int):
        raise TypeError("the terms of a study have total_records")
    return settings.total_records
