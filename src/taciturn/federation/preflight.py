"""Everything a site can check before it takes part; nothing is released by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from taciturn.errors import InputError
from taciturn.federation import PROTOCOL
from taciturn.federation.agreement import Agreement, Prepared, objections
from taciturn.federation.identity import Identity
from taciturn.federation.journal import Journal
from taciturn.federation.kits import Kit, check_address, read_kit
from taciturn.federation.policy import Site, read_site
from taciturn.federation.vault import engine_of, secrets_of
from taciturn.privacy.budget import BudgetLedger


def check_site(path: Path) -> dict[str, Any]:
    """What was found, by name; what would keep this site from taking part is one error that says all of it."""
    prepared = Prepared()
    site, agreement, kit = check_own(path, prepared)
    notes = prepared.dataset(site).notes
    if reasons := objections(site, agreement):
        raise InputError("; ".join(reasons))
    state, plan, terms = BudgetLedger.open(site.ledger).state(), agreement.plan, agreement.terms
    return {
        "site": site.name,
        "study": terms.name,
        "hash": terms.digest,
        "protocol": PROTOCOL,
        "schema": f"{terms.schema_sha256[:12]}…, as agreed",
        "records": "; ".join(["loaded", *notes]),
        "server": f"{terms.host}:{terms.port}",
        "algorithm": f"{terms.settings.algorithm[0]}, {plan.rounds} rounds",
        "study_epsilon": f"{plan.bound.epsilon:.4g} of {plan.total_epsilon:g} at delta {plan.delta:g}",
        "budget": f"{state.epsilon_used:.4g} of {state.total_epsilon:g} used or set aside",
        "open_studies": f"{_open(site, terms.digest)} of these terms, of at most {site.accepts.open_studies_max}",
        "coordinator": f"identity {terms.coordinator.fingerprint}",
        "identity": f"{terms.identities[site.name].fingerprint}, as in the terms",
        "engine": barriers(site, prepared),
        "certificate": f"valid until {kit.expires:%Y-%m-%d}" + (": renew it soon" if kit.expires_soon else ""),
    }


def _open(site: Site, terms: str) -> int:
    """How many studies of these terms have begun here and not ended."""
    if not (site.state / "journal.sqlite").is_file():
        return 0
    with Journal.read(site.state) as journal:
        return sum(begun.terms == terms and not begun.closed for begun in journal.experiments())


def check_own(path: Path, prepared: Prepared) -> tuple[Site, Agreement, Kit]:
    """The site's own affairs but for its records: files, ledger, identity and kit, whatever it thinks of the study."""
    site = read_site(path)
    agreement = prepared.agreement(site)
    terms = agreement.terms
    BudgetLedger.open(site.ledger)
    terms.check_complete()
    if Identity.open(site.identity).public != terms.identities.get(site.name):
        raise InputError(
            f"{site.identity} is not the identity that {terms.path} has for {site.name}: enrol this one, or put the "
            "other in its place"
        )
    kit = read_kit(site.kit, site.name)
    check_address(kit, terms)
    return site, agreement, kit


def barriers(site: Site, prepared: Prepared) -> str:
    """What the program that talks to the network cannot do on this machine; where that is not enough, an error."""
    trial = engine_of(site, prepared).try_barriers(secrets_of(site))
    trial.require()
    shut = ", ".join(barrier.name for barrier in trial.barriers if barrier.holds)
    open_ = ", ".join(barrier.name for barrier in trial.barriers if not barrier.holds)
    lacks = "; ".join(trial.missing.values())
    return (
        f"confined; tried from inside, shut: {shut}"
        + (f"; OPEN: {open_}" if open_ else "")
        + (f"; {lacks}" if lacks else "")
    )
