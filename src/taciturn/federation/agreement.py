"""What both sides compute from the terms alone, a site's objections to them, and the terms in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.algorithms import Algorithm
from taciturn.data import DataOptions, Facts, check_facts, limit_records, load, load_unmapped, read_schema
from taciturn.federation import PROTOCOL
from taciturn.federation.policy import Site
from taciturn.federation.terms import Terms, read_terms, schema_hash
from taciturn.planning.noise_plan import RunPlan
from taciturn.planning.plan import StudyPlan, plan_from_facts
from taciturn.planning.study import StudyPart
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.composition import ZERO_COST, StudyCost
from taciturn.reporting.statements import NEIGHBOURS
from taciturn.types import Array, Dataset, Shard, Target


@dataclass(frozen=True, eq=False)
class Agreement:
    """A study as its terms make it: algorithm, noise and plan, the same for everybody who computes them."""

    terms: Terms
    outline: StudyPlan
    features: tuple[str, ...]
    target: Target

    @property
    def part(self) -> StudyPart:
        """The study's only run."""
        return self.outline.parts[0]

    @property
    def algorithm(self) -> Algorithm:
        """The pure steps."""
        return self.part.algorithm

    @property
    def plan(self) -> RunPlan:
        """What a site that answers every round spends."""
        return self.part.plans[0]

    @property
    def facts(self) -> Facts:
        """All that is public about the records."""
        return self.outline.facts

    @property
    def zero(self) -> Array:
        """Parameters before the first round, [J, 1, K]."""
        return np.zeros((self.facts.features, 1, self.facts.outputs), dtype=self.terms.settings.precision)


def agree(terms: Terms, published: Dataset | None = None) -> Agreement:
    """Everything a study is, from its terms and public facts; no record is read for it."""
    if terms.schema is None:
        published = published or load_unmapped(terms.options())
        own = published.features[: len(published.features) - terms.settings.intercept]
        outline = plan_from_facts(terms.settings, terms.facts(published))
        return Agreement(terms, outline, terms.mapped_names(own), published.target)
    schema = read_schema(terms.schema)
    outline = plan_from_facts(terms.settings, terms.facts())
    return Agreement(terms, outline, terms.mapped_names(schema.features), schema.target)


def own_records(site: Site, agreement: Agreement, published: Dataset | None = None) -> Shard:
    """The site's records, encoded: all rows of its table, whatever they say of agents, up to what it declared.

    `published`: the data set of a trial, where it is at hand.
    """
    return own_dataset(site, agreement, published).train[0]


def own_dataset(site: Site, agreement: Agreement, published: Dataset | None = None) -> Dataset:
    """The same with its notes, for the site alone: which cells did not fit, and which records were left out."""
    terms, s = agreement.terms, agreement.terms.settings
    if site.published:
        dataset = published or load_unmapped(terms.options())
        share = dataset.train[terms.agents.index(site.name)]
        own = terms.mapped(Shard(share.x.copy(), share.y.copy()))  # the others' shares are let go
        dataset = replace(dataset, features=agreement.features, features_by=s.features)
    else:
        asked: dict[str, Any] = {name: getattr(s, name) for name in ("intercept", "features", "precision")}
        asked |= {"agents": 1, "partition": "hashed", "private": True, "one_owner": True}
        dataset = load(DataOptions(site.table, schema=site.schema, **asked))
        own = dataset.train[0]
    facts = agreement.facts._replace(agents=1, records_max=site.records_max)
    dataset = replace(dataset, name=terms.name, agents=(site.name,), train=(own,), test=None)
    dataset = dataset if site.published else limit_records(facts, dataset)
    check_facts(facts, dataset)
    return dataset


@dataclass
class Prepared:
    """What a site's files come to: the study and its own records, computed again only where a file has changed."""

    _key: tuple[Any, ...] = ()
    _agreement: Agreement | None = None
    _published: Dataset | None = None  # until the site's share is taken out of it
    _own: Dataset | None = None

    def agreement(self, site: Site) -> Agreement:
        """The study, as the site's own copy of the terms has it now."""
        terms = read_terms(site.study)
        key = (site, terms, terms.digest, *_marks(site))
        if self._agreement is None or key != self._key:
            published = terms.published()
            self._agreement, self._published, self._own = agree(terms, published), published, None
            self._key = key
        return self._agreement

    def dataset(self, site: Site) -> Dataset:
        """The site's records and the notes on them, as `own_dataset` reads them."""
        agreement = self.agreement(site)
        if self._own is None:
            self._own, self._published = own_dataset(site, agreement, self._published), None
        return self._own


def _marks(site: Site) -> list[Any]:
    """What changes when the site's schema or its table does."""
    schema = [Path(site.schema).read_bytes()] if site.schema else []
    table = Path(site.table)
    files = [found.stat() for found in (table, *sorted(table.glob("*")))] if site.table and table.exists() else []
    return [*schema, *((one.st_ino, one.st_size, one.st_ctime_ns) for one in files)]


def objections(site: Site, agreement: Agreement, reserved: bool = False) -> list[str]:
    """Why this site will not take part, each reason a sentence of public facts; none: it will.

    `reserved`: the study's budget is set aside already.
    """
    terms, facts, plan, accepts = agreement.terms, agreement.facts, agreement.plan, site.accepts
    s = agreement.outline.settings
    found = _declarations(site, terms)
    epsilon = plan.total_epsilon
    if math.isinf(epsilon) or epsilon > accepts.study_epsilon_max:
        found.append(f"total_epsilon is {epsilon:g}, and this site accepts at most {accepts.study_epsilon_max:g}")
    if s.delta > accepts.delta_max:
        found.append(f"delta is {s.delta:g}, and this site accepts at most {accepts.delta_max:g}")
    for what, asked, accepted in (
        ("mechanism", s.mechanism, accepts.mechanisms),
        ("adjacency", s.adjacency, accepts.adjacency),
        ("algorithm", s.algorithm[0], accepts.algorithms),
    ):
        if asked not in accepted:
            found.append(f"{what} is {asked}, and this site accepts {', '.join(accepted)}")
    if plan.rounds > accepts.rounds_max:
        found.append(f"there are {plan.rounds} rounds, and this site accepts at most {accepts.rounds_max}")
    return found + _ledger(site, facts.unit, s.adjacency, ZERO_COST if reserved else plan.cost)


def _declarations(site: Site, terms: Terms) -> list[str]:
    found = []
    if site.protocol != PROTOCOL:
        found.append(f"this site's file is of protocol {site.protocol}, and this Taciturn speaks {PROTOCOL}")
    if site.name not in terms.sites:
        return [*found, f"there is no site {site.name} in the study: there are {', '.join(terms.sites)}"]
    if site.schema_sha256 != terms.schema_sha256:
        ours, theirs = site.schema_sha256[:12], terms.schema_sha256[:12]
        found.append(f"the study's schema is {theirs}…, and this site agreed to {ours}…")
    elif site.schema and schema_hash(read_schema(site.schema)) != site.schema_sha256:
        found.append("this site's schema file is not the one it declares the hash of")
    if bool(site.published) != bool(terms.data) or site.published != terms.data:
        found.append("the study and this site name different data")
    if site.total_records != terms.settings.total_records:
        found.append(
            f"the study declares total_records {terms.settings.total_records}, and this site {site.total_records}"
        )
    if site.records_max != terms.sites[site.name]:
        found.append(
            f"the study declares records_max {terms.sites[site.name]} for this site, and the site {site.records_max}"
        )
    return found


def _ledger(site: Site, unit: str, adjacency: str, cost: StudyCost) -> list[str]:
    """Whether the ledger counts for this study's neighbours and has room for it."""
    state = BudgetLedger.open(site.ledger).state()
    found = [
        f"{what} is {asked}, and this site's ledger counts for {own}"
        for what, asked, own in (("unit", unit, state.unit), ("adjacency", adjacency, state.adjacency))
        if asked != own
    ]
    if not state.fits(cost):
        found.append("this site's budget for these records is exhausted: what is left of it does not cover the study")
    return found


def grouped(digits: str) -> str:
    """Hexadecimal digits as somebody reads them out: in groups of four."""
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def plan_in_words(agreement: Agreement) -> dict[str, str]:
    """What the study trains and spends: the plan that coordinator and sites compute from the terms."""
    terms, facts, plan, s = agreement.terms, agreement.facts, agreement.plan, agreement.outline.settings
    draws = plan.events.total() // plan.rounds
    return {
        "algorithm": f"{s.algorithm[0]}, {plan.rounds} rounds" + (f", {draws} noisy steps each" if draws > 1 else ""),
        "model": f"{s.loss}, {facts.features} features x {facts.outputs} outputs",
        "noise": f"{plan.event.mechanism}, multiplier {plan.multiplier:.4g}, added at each site",
        "epsilon": f"{plan.bound.epsilon:.4g} of {plan.total_epsilon:g} at delta {plan.delta:g} for one {facts.unit}",
        "neighbours": NEIGHBOURS[s.adjacency].format(unit=facts.unit),
        "records": f"{terms.settings.total_records:,} in all, declared",
        "schema": f"{terms.schema_sha256[:12]}…" if terms.schema else f"the published data set {terms.data}",
    }


def in_words(terms: Terms) -> dict[str, Any]:
    """All of the terms that a person should know before agreeing to them; the hash only once they are complete."""
    who = {"coordinator": terms.identity, **{site: terms.identities.get(site) for site in terms.sites}}
    missing = [site for site in terms.sites if site not in terms.identities]
    return {
        "study": terms.name,
        **plan_in_words(agree(terms)),
        "server": f"{terms.host}:{terms.port}",
        "quorum": f"{terms.quorum} of {len(terms.sites)} sites",
        "parties": {
            name: {
                "identity": str(one or ""),
                "fingerprint": one.fingerprint if one else "",
                "records_max": terms.sites.get(name),
            }
            for name, one in who.items()
        },
        "revoked": list(terms.revoked),
        "missing": missing,
        "hash": "" if missing or terms.identity is None else terms.digest,
    }
