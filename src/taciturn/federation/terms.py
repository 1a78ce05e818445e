"""`federation.toml`: the parties of a study, what they train together, and the budget that the coordinator proposes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from taciturn.algorithms import ALGORITHMS
from taciturn.core.storage import text_hash, to_json
from taciturn.data import (
    SOURCES,
    DataOptions,
    Facts,
    Schema,
    declared_facts,
    load_unmapped,
    read_schema,
    record_split,
    schema_facts,
)
from taciturn.data.feature_mapping import mapped_names, mapped_rows, schema_shape
from taciturn.data.feature_maps import InputShape
from taciturn.data.schema import dump_schema
from taciturn.errors import InputError, shown, unknown_name
from taciturn.federation import PROTOCOL
from taciturn.federation.identity import PublicIdentity
from taciturn.federation.toml_sections import (
    Key,
    check_sections,
    parse_toml,
    read_config_file,
    read_section,
    string_list,
)
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.secure_sum.parameters import default_missing, default_reserve, most_missing
from taciturn.settings import Settings, resolve
from taciturn.settings.resolve import parse
from taciturn.settings.rules import integer, path, real, text
from taciturn.types import Dataset, Shard

STUDY_KEYS = (  # settings that a study may fix; the others are planned from public facts
    "loss", "regulariser", "beta", "set", "set_size", "algorithm", "rounds", "local_updates", "rho", "eta", "eta_scale",
    "total_epsilon", "delta", "mechanism", "adjacency", "clip", "clip_l1", "noise_multiplier", "intercept", "features",
    "precision", "trust", "colluders", "missing", "reserve", "partition", "partition_key", "test_share", "evaluations",
    "evaluation_epsilon",
)  # fmt: skip
FOR_PUBLISHED = ("partition", "partition_key")  # keys of a study of a published data set, or of one that holds out
SUM_FROM_SITES = 5  # from this number of sites on, a study has a secure sum unless its terms say otherwise
PLANNED_RESERVE = 6  # of a secure sum whose rounds are planned
OWN_KEYS = ("schema", "schema_sha256", "data", "total_records")
SECTIONS = ("server", "sites", "study", "running", "coordinator", "identities", "revoked")
SITE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
COORDINATOR = "the coordinator"  # in messages; no site can have a name with a space
RESERVED = ("server", "coordinator", "authority")
ADVICE = "'taciturn federation init' writes one"


@dataclass(frozen=True)
class Terms:
    """The terms of a study: everything its parties must agree on, and how the coordinator runs it."""

    path: Path
    name: str
    host: str
    port: int
    sites: Mapping[str, int]  # name -> declared maximum number of records; the order is that of the agents
    settings: Settings
    schema: Path | None  # of the sites' tables
    data: str  # a published data set instead, partitioned among the sites in order
    quorum: int
    answer_seconds: float  # time limit for a round
    ready_seconds: float  # time limit for an invitation, during which a site loads its records
    test: str  # the coordinator's own public test table
    identity: PublicIdentity | None = None  # the coordinator's; None in a draft
    identities: Mapping[str, PublicIdentity] = field(default_factory=dict)  # the sites'; incomplete in a draft
    revoked: tuple[str, ...] = ()  # identities that may no longer be used
    engine_user: str = ""  # system user of the coordinator's network program

    @property
    def agents(self) -> tuple[str, ...]:
        """The sites' names, in the order of the agents."""
        return tuple(self.sites)

    @cached_property
    def schema_sha256(self) -> str:
        """The hash of the features' meaning: of the schema, or of the published data set's name."""
        return schema_hash(read_schema(self.schema)) if self.schema else text_hash(self.data)

    @cached_property
    def digest(self) -> str:
        """The hash of everything that two parties must have in common."""
        fields = dataclasses.asdict(self.settings)
        shared = {name: fields[name] for name in (*STUDY_KEYS, "total_records", "noise", "mode")}
        sites = [[name, str(identity)] for name, identity in self.identities.items()]
        parties = [str(self.identity or ""), sites, list(self.revoked)]
        parts = (PROTOCOL, self.name, list(self.sites.items()), self.schema_sha256, self.data, shared, parties)
        return text_hash(to_json(parts))

    @cached_property
    def split(self) -> str:
        """The rule by which the sites' records train or are held out; empty if all of them train."""
        return record_split(self.settings.data_options())

    @property
    def split_key(self) -> int:
        """The key of the draws that decide which records are held out: public, and the same at all sites."""
        return 0 if self.settings.partition_key == "auto" else int(self.settings.partition_key)

    @property
    def coordinator(self) -> PublicIdentity:
        """The coordinator's identity: a site answers only questions that it signed.

        Raises
        ------
        InputError
            If the terms are a draft without it.
        """
        if self.identity is None:
            raise InputError(f"{self.path} has no identity of the coordinator; 'taciturn federation init' creates one")
        return self.identity

    @property
    def missing_identities(self) -> list[str]:
        """The sites whose identity is not in the terms yet."""
        return [site for site in self.sites if site not in self.identities]

    def check_complete(self) -> None:
        """Raise an `InputError` if an identity is missing: a study can only run under complete terms."""
        _ = self.coordinator
        if missing := self.missing_identities:
            raise InputError(
                f"{self.path} has no identity of {', '.join(missing)}; each site creates its own with 'taciturn "
                "federation site identity', and 'taciturn federation enrol' adds it to the terms"
            )

    def load_published(self) -> Dataset | None:
        """Return the published data set before the feature map, or None if the records are in the sites' tables."""
        return None if self.schema else load_unmapped(self.data_options())

    def map_features(self, shard: Shard) -> Shard:
        """Apply the study's feature map to encoded records."""
        s = self.settings
        shape = self._shape(shard.x.shape[1] - s.intercept)
        return shard.with_features(mapped_rows(shard.x, s.features, shape, s.intercept))

    def map_feature_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the features' names after the feature map; `names` do not include the intercept."""
        return mapped_names(self.settings.features, names, self._shape(len(names)), self.settings.intercept)

    def _shape(self, width: int) -> InputShape:
        """Return what is public about the features before the map."""
        return schema_shape(read_schema(self.schema)) if self.schema else InputShape(width, SOURCES[self.data].image)

    def data_options(self) -> DataOptions:
        """Return how the published data set is loaded and partitioned."""
        s = self.settings
        return DataOptions(
            self.data,
            agents=len(self.sites),
            intercept=s.intercept,
            features=s.features,
            precision=s.precision,
            partition="in-order" if s.partition == "auto" else s.partition,
            partition_key=self.split_key,
        )

    def facts(self, published: Dataset | None = None) -> Facts:
        """Return all public facts about the records.

        Parameters
        ----------
        published : Dataset, optional
            The published data set, if it is loaded already.
        """
        test = "public" if self.test or self.data else "none"
        total = self.settings.total_records
        if not isinstance(total, int):
            raise TypeError("the terms of a study always have total_records")
        if self.schema is None:
            facts = declared_facts(self.data_options(), total, None, published)
            return facts._replace(records_max=dict(self.sites), test=test)
        return schema_facts(
            self.name,
            read_schema(self.schema),
            intercept=self.settings.intercept,
            agents=len(self.sites),
            total_records=total,
            records_max=dict(self.sites),
            test=test,
            features=self.settings.features,
        )


def read_terms(file: Path) -> Terms:
    """Return the terms in a file; relative paths in it start at its folder.

    Raises
    ------
    InputError
        If the file is missing, has another protocol version, or has an unknown, missing or invalid key.
    """
    document = parse_toml(file, read_config_file(file, ADVICE))
    check_sections(file, document, SECTIONS)
    top = read_section(file, document, "", {"protocol": Key(integer(1)), "name": Key(text)})
    if top["protocol"] != PROTOCOL:
        raise InputError(f"{file} has protocol {top['protocol']}; this Taciturn supports {PROTOCOL}")
    _check_name(file, "name", top["name"])
    server = read_section(file, document, "server", {"host": Key(text), "port": Key(integer(1, 65535), 8002)})
    sites = _read_sites(file, document)
    running_layout = {
        "quorum": Key(integer(1, len(sites)), None),
        "answer_seconds": Key(real(0.0), 30.0),
        "ready_seconds": Key(real(0.0), 60.0),
        "test": Key(path, ""),
        "engine_user": Key(text, ""),
    }
    running = read_section(file, document, "running", running_layout, optional=True)
    study = _read_study(file, document, sites)
    quorum = _quorum(file, running["quorum"], len(sites), study.settings)
    identities, revoked = _read_identities(file, document, sites)
    terms = Terms(
        path=file,
        name=top["name"],
        host=server["host"],
        port=server["port"],
        sites=sites,
        settings=study.settings,
        schema=study.schema,
        data=study.data,
        quorum=quorum,
        answer_seconds=running["answer_seconds"],
        ready_seconds=running["ready_seconds"],
        test=str(file.parent / running["test"]) if running["test"] else "",
        identity=identities.pop(COORDINATOR, None),
        identities=identities,
        revoked=revoked,
        engine_user=running["engine_user"],
    )
    if study.schema_sha256 and study.schema_sha256 != terms.schema_sha256:
        raise InputError(
            f"{file} declares schema_sha256 {study.schema_sha256[:12]}…, but {terms.schema} has "
            f"{terms.schema_sha256[:12]}…"
        )
    return terms


def default_trust(sites: int) -> str:
    """Return the trust model of a study whose terms name none: a secure sum from five sites on.

    Examples
    --------
    >>> default_trust(4), default_trust(5)
    ('agents', 'secure-sum')
    """
    return SECURE_SUM if sites >= SUM_FROM_SITES else AGENTS


def schema_hash(schema: Schema) -> str:
    """Return the hash of a schema's meaning: comments and agents do not count.

    Two parties that hold the same hash encode their records in the same way.
    """
    return text_hash(dump_schema(replace(schema, agent=None, agents=())))


def _read_sites(file: Path, document: Mapping[str, object]) -> dict[str, int]:
    section = document.get("sites")
    if not isinstance(section, dict) or not section:
        raise InputError(f"{file} needs a section [sites] with a line 'name = records_max' for each site")
    for name in section:
        _check_name(file, "the site", name)
        if name in RESERVED:
            raise InputError(f"{file}: {name} cannot be the name of a site; it is reserved for another folder of kits")
    return {name: integer(1)(f"{file}: the records_max of site {name}", most) for name, most in section.items()}


def _read_identities(
    file: Path, document: Mapping[str, object], sites: Mapping[str, int]
) -> tuple[dict[str, PublicIdentity], tuple[str, ...]]:
    """Return the identities of coordinator and sites that the file has, and the revoked ones."""
    top = read_section(file, document, "coordinator", {"identity": Key(text, "")}, optional=True)
    lines = read_section(file, document, "identities", {site: Key(text, "") for site in sites}, optional=True)
    revoked = read_section(file, document, "revoked", {"identities": Key(string_list, ())}, optional=True)["identities"]
    parties = {COORDINATOR: top["identity"], **lines}
    identities = {name: PublicIdentity.parse(line) for name, line in parties.items() if line}
    for name, identity in identities.items():
        if str(identity) in revoked:
            raise InputError(f"{file}: the identity of {name} is revoked")
    if len({str(identity) for identity in identities.values()}) < len(identities):
        raise InputError(f"{file}: two parties have the same identity; each must create its own")
    return identities, tuple(str(PublicIdentity.parse(line)) for line in revoked)


def _check_name(file: Path, what: str, name: str) -> None:
    if not SITE_NAME.fullmatch(name):
        raise InputError(
            f"{file}: {what} is {name!r}; it must consist of at most 41 lower-case letters, digits and hyphens"
        )


def _quorum(file: Path, given: int | None, sites: int, settings: Settings) -> int:
    """Return how many sites must answer; in a secure sum this decides the noise, so `missing` in the study fixes it."""
    if settings.trust != SECURE_SUM:
        return given or sites // 2 + 1
    quorum = sites - settings.missing
    if given not in (None, quorum):
        wanted, most = sites - int(given or 0), most_missing(sites, settings.colluders)
        other = f"set missing = {wanted} in [study], which every site must accept"
        if wanted > most:
            other = f"choose a quorum from {sites - most} to {sites} by missing in [study]"
        raise InputError(
            f"{file}: [running] quorum is {given}, but the noise of this secure sum is for sums of at least {quorum} "
            f"of {sites} sites; remove it, or {other}"
        )
    return quorum


def _sum_defaults(sites: int, study: Mapping[str, object]) -> dict[str, object]:
    """Return the keys of a secure sum that a study leaves out."""
    if study.get("trust", default_trust(sites)) != SECURE_SUM:
        return {}
    rounds = study.get("rounds", "auto")
    reserve = default_reserve(rounds) if isinstance(rounds, int) else PLANNED_RESERVE
    method = {} if "schema" in study else {"algorithm": "dpgd"}  # a table has its own default
    return {"trust": SECURE_SUM, "missing": default_missing(sites), "reserve": reserve, **method}


def _check_trust(file: Path, trust: object) -> None:
    """Raise if sites would have to trust the coordinator."""
    if trust not in (AGENTS, SECURE_SUM):
        raise InputError(
            f"{file}: [study] trust is {shown(trust)}; a coordinator is not trusted with what a single site sends, so "
            f"choose {AGENTS} or {SECURE_SUM}"
        )


def _check_algorithm(file: Path, name: str, trust: object) -> None:
    """Raise if sites cannot run the algorithm: it has no exact noise, uploads more than z, or cannot be summed."""
    if not ALGORITHMS[name].federated:
        known = ", ".join(other for other in ALGORITHMS if ALGORITHMS[other].federated)
        raise InputError(
            f"{file}: [study] algorithm is {name}, which has no exact noise or sends more than z; choose one of {known}"
        )
    if trust == SECURE_SUM and not ALGORITHMS[name].allows_aggregate_noise:
        summed = ", ".join(n for n in ALGORITHMS if ALGORITHMS[n].federated and ALGORITHMS[n].allows_aggregate_noise)
        raise InputError(
            f"{file}: [study] trust is {SECURE_SUM}, but noise on the sum is not proven to be enough for {name}: a "
            f'site\'s state carries records from round to round; choose one of {summed}, or trust = "{AGENTS}"'
        )


def _check_split(file: Path, section: Mapping[str, object]) -> None:
    """Raise if records would be partitioned or held out to no purpose."""
    for key in FOR_PUBLISHED:
        if key in section and "schema" in section and not (key == "partition_key" and "test_share" in section):
            raise InputError(
                f"{file}: [study] {key} is for a published data set; all rows of a site's table belong to the site"
            )
    if section.get("test_share") and not section.get("evaluations"):
        raise InputError(
            f"{file}: [study] test_share is {shown(section['test_share'])}, but evaluations is 0: records that are "
            "held out serve private evaluations, so give evaluations, or remove test_share"
        )


class _Study(NamedTuple):
    """The section [study]."""

    settings: Settings
    schema: Path | None
    data: str  # the published data set; empty: the sites' tables
    schema_sha256: str  # as declared; may be empty


def _read_study(file: Path, document: Mapping[str, object], sites: Mapping[str, int]) -> _Study:
    section = document.get("study")
    if not isinstance(section, dict):
        raise InputError(f"{file} has no section [study]")
    for key in section:
        if key not in STUDY_KEYS + OWN_KEYS:
            raise InputError(f"{file}: {unknown_name('key', key, STUDY_KEYS + OWN_KEYS, '[study]')}")
    if ("schema" in section) == ("data" in section):
        raise InputError(f"{file}: [study] needs either schema (of the sites' tables) or data (a published data set)")
    _check_split(file, section)
    data = text("[study] data", section.get("data", ""))
    if data and not SOURCES[data].published:
        raise InputError(f"{file}: [study] data is {data}; only a published data set has public sizes, so give schema")
    schema = None if data else file.parent / text("[study] schema", section["schema"])
    if "trust" in section:
        _check_trust(file, section["trust"])
    given = _sum_defaults(len(sites), section) | {key: value for key, value in section.items() if key in STUDY_KEYS}
    server = "auto" if given.get("trust") == SECURE_SUM else "full"
    fixed = {"mode": "certified", "noise": "hardened", "averages": False, "server": server, "records_max": dict(sites)}
    source = {"data": data} if data else {"data": "sites.csv", "schema": str(schema)}
    if "total_records" not in section:
        raise InputError(f"{file}: [study] needs total_records, a round number of records that the parties agree on")
    total = integer(1)("[study] total_records", section["total_records"])
    for name in parse({"algorithm": given.get("algorithm", ())})["algorithm"]:
        _check_algorithm(file, name, given.get("trust", AGENTS))
    settings = resolve(fixed | source | {"agents": len(sites), "total_records": total, "rounds": "auto"} | given)
    for key in ("algorithm", "total_epsilon"):
        if len(getattr(settings, key)) != 1:
            raise InputError(f"{file}: [study] {key} must be one value; a federation runs one study at a time")
    declared = text("[study] schema_sha256", section.get("schema_sha256", ""))
    return _Study(settings, schema, data, declared)
