"""The study that both sides compute from its terms alone, a site's objections to it, and its description in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from taciturn.algorithms import Algorithm
from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.core.storage import file_version
from taciturn.data import DataOptions, Facts, check_facts, load, load_unmapped, note_sizes, read_schema
from taciturn.data.partition import record_draws
from taciturn.federation import PROTOCOL
from taciturn.federation.messages import message_limit
from taciturn.federation.policy import Site, read_peers
from taciturn.federation.terms import Terms, read_terms, schema_hash
from taciturn.planning.integer_sums import sum_parameters
from taciturn.planning.noise_plan import RunPlan
from taciturn.planning.plan import StudyPlan, plan_from_facts
from taciturn.planning.study import StudyPart
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.calibration import delta_condition
from taciturn.privacy.composition import ZERO_COST
from taciturn.privacy.trust import SECURE_SUM, collusion, opened_sums
from taciturn.reporting.statements import NEIGHBOURS
from taciturn.secure_sum.epoch_messages import box_size
from taciturn.secure_sum.parameters import SumParameters, epoch_slots
from taciturn.types import Array, Dataset, Shard, Target


@dataclass(frozen=True, eq=False)
class Agreement:
    """A study as its terms define it: algorithm, noise and plan are the same for every party that computes them.

    Parameters
    ----------
    terms : Terms
        The terms.
    study_plan : StudyPlan
        The plan that follows from them.
    features : tuple of str
        Names of the features after the feature map.
    target : Target
        The classes or the range of the label.
    """

    terms: Terms
    study_plan: StudyPlan
    features: tuple[str, ...]
    target: Target

    @property
    def part(self) -> StudyPart:
        """The study's only run."""
        return self.study_plan.parts[0]

    @property
    def algorithm(self) -> Algorithm:
        """The pure steps of the agents and the server."""
        return self.part.algorithm

    @property
    def plan(self) -> RunPlan:
        """The privacy cost of a site that answers every round."""
        return self.part.plans[0]

    @property
    def facts(self) -> Facts:
        """All public facts about the records."""
        return self.study_plan.facts

    @property
    def zero(self) -> Array:
        """Parameters before the first round, [J, 1, K]."""
        return np.zeros((self.facts.features, 1, self.facts.outputs), dtype=self.terms.settings.precision)

    @cached_property
    def sum_parameters(self) -> SumParameters | None:
        """What the parties of a secure sum agree on; None if every site adds the whole noise itself."""
        settings = self.study_plan.settings
        return sum_parameters(settings, self.facts, self.plan) if settings.trust == SECURE_SUM else None

    @property
    def measure(self) -> MeasureRelease | None:
        """What a site releases in an evaluation; None if there are none."""
        return self.part.measure

    @cached_property
    def message_limit(self) -> int:
        """The maximum size in bytes of a message of this study."""
        parameters = self.sum_parameters
        if parameters is None:
            measures = 8 * self.measure.layout.size if self.measure else 0
            return message_limit(max(self.zero.nbytes, measures))
        keys = parameters.sites * box_size(epoch_slots(parameters))  # the boxes for one site; a directory is smaller
        upload = max(parameters.dimension, parameters.measures) * parameters.width // 8
        largest = max(2 * self.zero.nbytes, upload, keys)
        return message_limit(largest + message_limit())  # a message of the sum has a header of its own


def derive_agreement(terms: Terms, published: Dataset | None = None) -> Agreement:
    """Compute a study from its terms and public facts, without reading a private record.

    Parameters
    ----------
    terms : Terms
        The terms, the same at every party.
    published : Dataset, optional
        The published data set of a trial, if it is loaded already.
    """
    if terms.schema is None:
        published = published or load_unmapped(terms.data_options())
        names = published.features[: len(published.features) - terms.settings.intercept]
        study_plan = plan_from_facts(terms.settings, terms.facts(published))
        return Agreement(terms, study_plan, terms.map_feature_names(names), published.target)
    schema = read_schema(terms.schema)
    study_plan = plan_from_facts(terms.settings, terms.facts())
    return Agreement(terms, study_plan, terms.map_feature_names(schema.features), schema.target)


def load_site_dataset(site: Site, agreement: Agreement, published: Dataset | None = None) -> Dataset:
    """Load and encode the site's records, at most as many as it declared.

    All rows of the site's table belong to its one agent, whatever the table says about agents. Records that the study
    holds out are the data set's test records.

    Parameters
    ----------
    site : Site
        The site.
    agreement : Agreement
        The study.
    published : Dataset, optional
        The published data set of a trial, if it is loaded already.

    Returns
    -------
    Dataset
        One training shard. Its notes are for the site alone: they say which cells were invalid and which records were
        left out.
    """
    terms, s = agreement.terms, agreement.terms.settings
    if site.published:
        dataset = published or load_unmapped(terms.data_options())
        shard, test = published_shards(terms, dataset, site.name)
        dataset = replace(dataset, features=agreement.features, features_by=s.features)
    else:
        options = DataOptions(
            site.table,
            schema=site.schema,
            test_share=s.test_share,
            agents=1,
            partition="hashed",
            partition_key=terms.split_key,
            intercept=s.intercept,
            features=s.features,
            precision=s.precision,
            private=True,
            one_owner=True,
        )
        dataset = load(options)
        shard, test = dataset.train[0], dataset.test
    facts = agreement.facts._replace(agents=1, records_max=site.records_max)
    held_out = (len(test.x),) if test else ()
    dataset = replace(dataset, name=terms.name, agents=(site.name,), train=(shard,), test=test, held_out=held_out)
    check_facts(facts, dataset)
    return note_sizes(facts, dataset)


def published_shards(terms: Terms, published: Dataset, site: str) -> tuple[Shard, Shard | None]:
    """Return a site's share of a published data set: its training records, and those that are held out, if any.

    Which records are held out follows from their content before the feature map, and the key in the terms.
    """
    share = published.train[terms.agents.index(site)]
    if not terms.settings.test_share:
        return terms.map_features(share.copy()), None  # copies, so that the rest can be freed
    held = record_draws(share.x, share.y, terms.split_key) < terms.settings.test_share
    return terms.map_features(share.rows(~held)), terms.map_features(share.rows(held))


@dataclass
class StudyLoader:
    """A cache of the study and the records of a site's files; both are computed again only when a file has changed."""

    _key: tuple[Any, ...] = ()
    _agreement: Agreement | None = None
    _published: Dataset | None = None  # until the site's share is copied out of it
    _dataset: Dataset | None = None

    def agreement(self, site: Site) -> Agreement:
        """Return the agreement from the site's own copy of the terms; changed files are read again."""
        terms = read_terms(site.study)
        key = (site, terms, terms.digest, *_file_versions(site))
        if self._agreement is None or key != self._key:
            published = terms.load_published()
            self._agreement, self._published, self._dataset = derive_agreement(terms, published), published, None
            self._key = key
        return self._agreement

    def dataset(self, site: Site) -> Dataset:
        """Return the site's records; see `load_site_dataset`."""
        agreement = self.agreement(site)
        if self._dataset is None:
            self._dataset, self._published = load_site_dataset(site, agreement, self._published), None
        return self._dataset


def _file_versions(site: Site) -> list[Any]:
    """Return values that change when the site's schema or table changes."""
    schema = [Path(site.schema).read_bytes()] if site.schema else []
    table = [Path(site.table), *sorted(Path(site.table).glob("*"))] if site.table else []
    return [*schema, *map(file_version, table)]


def find_objections(site: Site, agreement: Agreement, reserved: bool = False) -> list[str]:
    """Return the reasons why the site will not take part in a study; an empty list means that it will.

    Parameters
    ----------
    site : Site
        The site and its acceptance policy.
    agreement : Agreement
        The study.
    reserved : bool, default False
        Whether the study's budget is reserved already, so that it need not fit once more.

    Returns
    -------
    list of str
        Sentences that contain only public facts, so that the coordinator may see them.
    """
    terms, plan, accepts = agreement.terms, agreement.plan, site.accepts
    s = agreement.study_plan.settings
    reasons = _declaration_mismatches(site, terms)
    epsilon = plan.total_epsilon
    if math.isinf(epsilon) or epsilon > accepts.study_epsilon_max:
        reasons.append(f"total_epsilon is {epsilon:g}, but this site accepts at most {accepts.study_epsilon_max:g}")
    if s.delta > accepts.delta_max:
        reasons.append(f"delta is {s.delta:g}, but this site accepts at most {accepts.delta_max:g}")
    for name, value, accepted in (
        ("mechanism", s.mechanism, accepts.mechanisms),
        ("adjacency", s.adjacency, accepts.adjacency),
        ("algorithm", s.algorithm[0], accepts.algorithms),
    ):
        if value not in accepted:
            reasons.append(f"{name} is {value}, but this site accepts {', '.join(accepted)}")
    reasons += _sum_objections(site, agreement)
    if plan.rounds > accepts.rounds_max:
        reasons.append(f"the study has {plan.rounds} rounds, but this site accepts at most {accepts.rounds_max}")
    return reasons + _budget_objections(site, agreement, reserved)


def _sum_objections(site: Site, agreement: Agreement) -> list[str]:
    """Return the objections to a study's trust model, such as peers that nobody at this site has verified."""
    terms, parameters, accepts = agreement.terms, agreement.sum_parameters, site.accepts
    trust = agreement.study_plan.settings.trust
    if trust not in accepts.trust:
        return [f"trust is {trust}, but this site accepts {', '.join(accepts.trust)}"]
    if parameters is None:
        return []
    reasons = []
    if parameters.colluders < accepts.colluders_min:
        reasons.append(
            f"colluders is {parameters.colluders}, but this site requires noise for at least {accepts.colluders_min}"
        )
    if parameters.quorum < accepts.quorum_min:
        reasons.append(
            f"sums over {parameters.quorum} sites can be opened, but this site requires at least {accepts.quorum_min}"
        )
    peers = {name for name in terms.sites if name != site.name}
    unknown = sorted(peers - verified_peers(site, terms))
    if len(unknown) > parameters.colluders:
        reasons.append(
            f"nobody at this site has verified the identities of {', '.join(unknown)}: they count as colluders, and at "
            f"most {parameters.colluders} may be unverified ('taciturn federation site verify')"
        )
    return reasons


def verified_peers(site: Site, terms: Terms) -> frozenset[str]:
    """Return the peers whose identity in the terms was compared with the peer itself, by people at this site."""
    peers = read_peers(site)
    known = {name: str(identity) for name, identity in terms.identities.items()}
    return frozenset(name for name, identity in known.items() if peers.get(name) == identity)


def _declaration_mismatches(site: Site, terms: Terms) -> list[str]:
    reasons = []
    if site.protocol != PROTOCOL:
        reasons.append(f"this site's file has protocol {site.protocol}, but this Taciturn supports {PROTOCOL}")
    if site.name not in terms.sites:
        return [*reasons, f"there is no site {site.name} in the study, which has {', '.join(terms.sites)}"]
    if site.schema_sha256 != terms.schema_sha256:
        ours, theirs = site.schema_sha256[:12], terms.schema_sha256[:12]
        reasons.append(f"the study's schema is {theirs}…, but this site agreed to {ours}…")
    elif site.schema and schema_hash(read_schema(site.schema)) != site.schema_sha256:
        reasons.append("this site's schema file does not have the schema_sha256 that the site declares")
    if site.published != terms.data:
        reasons.append("the study and this site name different data")
    total, most = terms.settings.total_records, terms.sites[site.name]
    if site.total_records != total:
        reasons.append(f"the study declares total_records {total}, but this site declares {site.total_records}")
    if site.records_max != most:
        reasons.append(f"the study declares records_max {most} for this site, but the site declares {site.records_max}")
    return reasons


def _budget_objections(site: Site, agreement: Agreement, reserved: bool) -> list[str]:
    """Return whether the ledger is for another adjacency or unit, or has no room for a study that is not reserved."""
    ledger, study = BudgetLedger.open(site.ledger), agreement.study_plan
    state = ledger.state()
    reasons = [
        f"{name} is {value}, but this site's ledger counts {getattr(state, name)}"
        for name, value in (("unit", study.facts.unit), ("adjacency", study.settings.adjacency))
        if value != getattr(state, name)
    ]
    cost, held_out = (ZERO_COST, ZERO_COST) if reserved else (study.cost, study.held_out_cost)
    if not state.fits(cost, held_out, agreement.terms.split):
        reasons.append("this site's budget for these records is exhausted: the remainder does not cover the study")
    return reasons


class PartyReport(TypedDict):
    """A party in the description of the terms."""

    identity: str
    fingerprint: str
    records_max: int | None


class TermsReport(TypedDict):
    """Everything in the terms that a person should know, as JSON.

    `reserve` is empty without a secure sum, and `evaluations` without any.
    """

    study: str
    algorithm: str
    model: str
    trust: str
    noise: str
    epsilon: str
    neighbours: str
    records: str
    schema: str
    server: str
    quorum: str
    reserve: str
    evaluations: str
    parties: dict[str, PartyReport]
    revoked: list[str]
    missing: list[str]
    hash: str


def describe_terms(terms: Terms) -> TermsReport:
    """Describe everything in the terms that a person should know before agreeing to them.

    Returns
    -------
    TermsReport
        `hash` is empty until every identity is in the terms.
    """
    agreement = derive_agreement(terms)
    facts, plan, s = agreement.facts, agreement.plan, agreement.study_plan.settings
    draws, parameters = plan.events.total() // plan.charges, agreement.sum_parameters
    parties = {"coordinator": terms.identity, **{site: terms.identities.get(site) for site in terms.sites}}
    missing = terms.missing_identities
    epsilon = f"{plan.bound.epsilon:.4g} of {plan.total_epsilon:g} at delta {plan.delta:g} for one {facts.unit}"
    condition = delta_condition(plan.delta, facts.total_records)
    return {
        "study": terms.name,
        "algorithm": f"{s.algorithm[0]}, {plan.rounds} rounds" + (f", {draws} noisy steps each" if draws > 1 else ""),
        "model": f"{s.loss}, {facts.features} features x {facts.outputs} outputs",
        "trust": f"{s.trust}: {_describe_trust(parameters)}",
        "noise": f"{plan.event.mechanism}, multiplier {plan.multiplier:.4g}, {_describe_noise(parameters)}",
        "epsilon": f"{epsilon}; {condition}" if condition else epsilon,
        "neighbours": NEIGHBOURS[s.adjacency].format(unit=facts.unit),
        "records": f"{terms.settings.total_records:,} in all, declared",
        "schema": f"{terms.schema_sha256[:12]}…" if terms.schema else f"the published data set {terms.data}",
        "server": f"{terms.host}:{terms.port}",
        "quorum": f"{terms.quorum} of {len(terms.sites)} sites{_describe_quorum(parameters)}",
        "reserve": _describe_reserve(parameters),
        "evaluations": describe_evaluations(agreement),
        "parties": {
            name: {
                "identity": str(identity or ""),
                "fingerprint": identity.fingerprint if identity else "",
                "records_max": terms.sites.get(name),
            }
            for name, identity in parties.items()
        },
        "revoked": list(terms.revoked),
        "missing": missing,
        "hash": "" if missing or terms.identity is None else terms.digest,
    }


def _describe_trust(parameters: SumParameters | None) -> str:
    if parameters is None:
        return "nobody is trusted; every site adds all of the noise itself"
    opened = opened_sums(parameters.sites, parameters.missing, "site")
    return f"{opened}; the noise is enough if {collusion(parameters.colluders, 'site')}"


def _describe_noise(parameters: SumParameters | None) -> str:
    """Return where the noise is added, and how much of it a sum over all sites has."""
    if parameters is None:
        return "added at each site"
    sites, honest = parameters.sites, parameters.honest
    return (
        f"in shares, of which any {honest} are enough: a sum over all {sites} sites has "
        f"{math.sqrt(sites / honest):.3g} times the noise that a trusted server would add, instead of "
        f"{math.sqrt(sites):.3g} times"
    )


def _describe_quorum(parameters: SumParameters | None) -> str:
    if parameters is None:
        return ""
    missing, threshold = parameters.missing, parameters.threshold(parameters.sites)
    return f" must be in a sum: {missing or 'none'} may be missing; shares of {threshold} sites open it"


def describe_evaluations(agreement: Agreement) -> str:
    """Return how often the model is evaluated, on which records, and what that costs them."""
    plan, s = agreement.plan.evaluation, agreement.study_plan.settings
    if plan is None:
        return ""
    spare = f", and {plan.reserve} in place of lost sums" if plan.reserve else ""
    cost = "they never train, so this does not add to the cost of training"
    if s.adjacency != "add-remove":
        cost = "with replace-one this adds to the cost of training, and both keep the total"
    return (
        f"{plan.count}{spare}, on a share of {s.test_share:g} of the records, held out by key "
        f"{agreement.terms.split_key}; at most epsilon {plan.bound.epsilon:.4g} for all of them; {cost}"
    )


def _describe_reserve(parameters: SumParameters | None) -> str:
    """Return what is reserved for sums that are lost, and what it costs."""
    if parameters is None:
        return ""
    reserve, rounds = parameters.reserve, parameters.rounds
    price = 100.0 * (math.sqrt(parameters.charges / rounds) - 1.0)
    return (
        f"{reserve} uploads of a site beyond {rounds} rounds, in place of lost sums; the budget pays for them, so "
        f"there is {price:.2g} % more noise"
    )
