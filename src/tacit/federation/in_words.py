"""The terms of a study in words: what it trains, what it costs, who takes part, and the hash that people compare."""

from __future__ import annotations

from typing import Any

from tacit.federation.agreement import Agreement, agree
from tacit.federation.terms import Terms
from tacit.privacy.guarantee import NEIGHBOURS


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
