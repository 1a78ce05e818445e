"""What a site's operator can check and do between studies: preflight checks, status, and closing a study."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from taciturn.errors import InputError, TaciturnError, shown, unknown_name
from taciturn.federation import PROTOCOL
from taciturn.federation.agreement import (
    Agreement,
    StudyLoader,
    describe_evaluations,
    find_objections,
    verified_peers,
)
from taciturn.federation.identity import Identity, group_digits
from taciturn.federation.journal import Experiment, Journal, journal_path
from taciturn.federation.kits import Kit, check_address, read_kit
from taciturn.federation.policy import Site, read_site, write_peer
from taciturn.federation.run_folder import verify_model_signature
from taciturn.federation.site_session import cancel_study, settle_study, study_folder
from taciturn.federation.status import AGENT_LOCK, AgentReport, AgentStatus, describe_agent, read_status
from taciturn.federation.terms import Terms, read_terms
from taciturn.federation.vault import engine_secrets, site_engine
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.budget_state import BudgetState
from taciturn.privacy.signatures import HEX_ID
from taciturn.privacy.trust import SECURE_SUM
from taciturn.runs.folder import RunFolder


def check_site(path: Path) -> dict[str, str | int]:
    """Check everything that a site needs to take part in its study; nothing is released.

    Parameters
    ----------
    path : Path
        site.toml.

    Returns
    -------
    dict
        The result of each check, as JSON.

    Raises
    ------
    InputError
        If anything prevents the site from taking part; the message lists all reasons.
    """
    loader = StudyLoader()
    site, agreement, kit = load_site_setup(path, loader)
    loaded = loader.dataset(site)
    notes = [*loaded.warnings, *filter(None, [loaded.left_out]), *loaded.notes]
    if reasons := find_objections(site, agreement):
        raise InputError("; ".join(reasons))
    budget, plan, terms = BudgetLedger.open(site.ledger).state(), agreement.plan, agreement.terms
    running = sum(begun.terms == terms.digest and not begun.closed_at for begun in _experiments(site))
    return {
        "site": site.name,
        "study": terms.name,
        "hash": terms.digest,
        "protocol": PROTOCOL,
        "schema": f"{terms.schema_sha256[:12]}…, as agreed",
        "records": "; ".join(["loaded", *notes]),
        "server": f"{terms.host}:{terms.port}",
        "algorithm": f"{terms.settings.algorithm[0]}, {plan.rounds} rounds",
        "trust": terms.settings.trust,
        "peers": describe_peers(list_peers(site, terms)),
        "evaluations": _describe_split(agreement, budget),
        "study_epsilon": f"{plan.bound.epsilon:.4g} of {plan.total_epsilon:g} at delta {plan.delta:g}",
        "budget": f"{budget.epsilon_used:.4g} of {budget.total_epsilon:g} used or reserved; {budget.room}",
        "open_studies": f"{running} of these terms, of at most {site.accepts.open_studies_max}",
        "coordinator": f"identity {terms.coordinator.fingerprint}",
        "identity": f"{terms.identities[site.name].fingerprint}, as in the terms",
        "engine": describe_barriers(site, loader),
        "certificate": f"valid until {kit.expires:%Y-%m-%d}" + (": renew it soon" if kit.expires_soon else ""),
    }


def _describe_split(agreement: Agreement, budget: BudgetState) -> str:
    """Return the study's evaluations, and whether the budget ledger charges them apart from training."""
    words, plan = describe_evaluations(agreement), agreement.study_plan
    if not words:
        return "none"
    apart = budget.next_study(plan.cost, plan.held_out_cost, agreement.terms.split).apart
    how = "training and held-out records are charged apart"
    if not apart:
        how = "this split is not that of earlier studies here, so all records are charged for both"
    return f"{words}; {how if plan.settings.adjacency == 'add-remove' else 'all records are charged for both'}"


def load_site_setup(path: Path, loader: StudyLoader) -> tuple[Site, Agreement, Kit]:
    """Load a site's policy, study and kit, and check its ledger, terms and identity, but not its records.

    Raises
    ------
    InputError
        If a file is missing or does not match the others. Whether the site accepts the study is not checked.
    """
    site = read_site(path)
    agreement = loader.agreement(site)
    terms = agreement.terms
    BudgetLedger.open(site.ledger)
    terms.check_complete()
    if Identity.open(site.identity).public != terms.identities.get(site.name):
        raise InputError(
            f"{site.identity} is not the identity of {site.name} in {terms.path}; enrol this one, or restore the other"
        )
    kit = read_kit(site.kit, site.name)
    check_address(kit, terms)
    return site, agreement, kit


def describe_barriers(site: Site, loader: StudyLoader) -> str:
    """Try what the network program could do on this machine, and describe which barriers hold.

    Raises
    ------
    InputError
        If the barriers do not keep the program from the site's secrets.
    """
    trial = site_engine(site, loader).try_barriers(engine_secrets(site))
    trial.require()
    shut = ", ".join(barrier.name for barrier in trial.barriers if barrier.holds)
    open_ = ", ".join(barrier.name for barrier in trial.barriers if not barrier.holds)
    parts = [f"confined; a probe could not break: {shut}"]
    parts += [f"OPEN: {open_}"] if open_ else []
    return "; ".join([*parts, *trial.missing.values()])


class PeerReport(TypedDict):
    """Another site of the study, as this site's copy of the terms names it."""

    fingerprint: str  # empty without an identity
    verified: bool  # whether people at this site have compared it with the peer itself


class PeersReport(TypedDict):
    """Which other sites of a study have been verified at this site, and what follows from it."""

    site: str
    study: str
    trust: str
    colluders: int  # how many peers may be unverified; they count as colluders
    needed: bool  # whether the study has a secure sum
    enough: bool  # whether the site can take part
    peers: dict[str, PeerReport]


def list_peers(site: Site, terms: Terms) -> PeersReport:
    """Return which other sites of a study have been verified at this site."""
    settings, verified = terms.settings, verified_peers(site, terms)
    peers: dict[str, PeerReport] = {}
    for name in terms.sites:
        if name != site.name:
            identity = terms.identities.get(name)
            peers[name] = {"fingerprint": identity.fingerprint if identity else "", "verified": name in verified}
    needed = settings.trust == SECURE_SUM
    unverified = sum(not peer["verified"] for peer in peers.values())
    return {
        "site": site.name,
        "study": terms.name,
        "trust": settings.trust,
        "colluders": settings.colluders if needed else 0,
        "needed": needed,
        "enough": not needed or unverified <= settings.colluders,
        "peers": peers,
    }


def read_peers_report(site: Site) -> PeersReport | None:
    """Return `list_peers` of the site's own copy of the terms, or None if that or the list of peers is not valid."""
    with suppress(TaciturnError):
        return list_peers(site, read_terms(site.study))
    return None


def describe_peers(found: PeersReport) -> str:
    """Return in words who is verified and who is not, and what that means."""
    if not found["needed"]:
        return "need not be verified: every site adds all of the noise itself"
    unverified = [name for name, peer in found["peers"].items() if not peer["verified"]]
    if not unverified:
        return f"all {len(found['peers'])} verified"
    most = found["colluders"]
    return (
        f"{len(found['peers']) - len(unverified)} of {len(found['peers'])} verified; not verified, so counted as "
        f"colluders, of which there may be {most}: {', '.join(unverified)}"
    )


def verify_peer(path: Path, peer: str, fingerprint: str) -> PeersReport:
    """Record that a peer has read out this fingerprint, if it is that of its identity in the terms.

    Parameters
    ----------
    path : Path
        site.toml.
    peer : str
        Another site of the study.
    fingerprint : str
        What people at this site heard from the peer: 32 hexadecimal digits; spaces and case do not matter.

    Raises
    ------
    InputError
        If there is no such peer, or the fingerprint is not that of its identity in the terms.
    """
    site = read_site(path)
    terms = read_terms(site.study)
    others = [name for name in terms.sites if name != site.name]
    if peer not in others:
        raise unknown_name("other site", peer, others)
    identity = terms.identities.get(peer)
    if identity is None:
        raise InputError(f"{terms.path} has no identity of {peer} yet; the coordinator adds it with 'enrol'")
    heard = "".join(fingerprint.split()).lower()
    if not HEX_ID.fullmatch(heard):
        raise InputError(
            f"the fingerprint is {shown(fingerprint)}; it must be the 32 hexadecimal digits, in groups of four, that "
            f"{peer} sees with 'taciturn federation site identity'"
        )
    if heard != "".join(identity.fingerprint.split()):
        raise InputError(
            f"the identity of {peer} in {terms.path} has the fingerprint {identity.fingerprint}, and not "
            f"{group_digits(heard)}: someone else may have put it there. {peer} is not verified; do not take part "
            "before you know why they differ"
        )
    write_peer(site, peer, str(identity))
    return list_peers(site, terms)


class StudyReport(TypedDict):
    """A study in the status of a site."""

    study: str
    experiment: str
    begun: str
    closed: str | None
    broken: str | None
    non_private: str
    rounds: int  # answered
    uploads: int  # charged: more than rounds, where sums of a secure sum were lost
    slot: str  # of the newest upload: "epoch/slot"; empty without a secure sum
    spent_epsilon: float
    planned_epsilon: float
    folder: str
    model: str


class SiteReport(AgentReport):
    """The status of a site: its agent, its budget over all studies, and every study."""

    site: str
    ledger: str
    total_epsilon: float
    delta: float
    epsilon_used: float
    epsilon_next: float
    peers: PeersReport | None  # None if the terms cannot be read
    studies: list[StudyReport]


def site_status(path: Path) -> SiteReport:
    """Return the status of a site's agent, of its budget over all studies, and of every study, as JSON.

    Parameters
    ----------
    path : Path
        site.toml. An agent may be running.
    """
    site = read_site(path)
    budget = BudgetLedger.open(site.ledger).state()
    return {
        "site": site.name,
        **describe_agent(read_status(site.state, AGENT_LOCK, AgentStatus)),
        "ledger": str(site.ledger),
        "total_epsilon": budget.total_epsilon,
        "delta": budget.delta,
        "epsilon_used": budget.epsilon_used,
        "epsilon_next": budget.epsilon_next,
        "peers": read_peers_report(site),
        "studies": [_study_status(site, begun, rounds) for begun, rounds in _experiments(site).items()],
    }


def _experiments(site: Site) -> dict[Experiment, list[int]]:
    """Return the studies of a site with the round of each of its uploads."""
    if not journal_path(site.state).is_file():
        return {}
    with Journal.read(site.state) as journal:
        return {begun: journal.answered_rounds(begun.id) for begun in journal.experiments()}


def _study_status(site: Site, begun: Experiment, rounds: list[int]) -> StudyReport:
    folder = study_folder(site, begun.id)
    spent, planned, slot = 0.0, 0.0, ""
    if rounds or folder.exists():  # after a crash there may be no folder yet
        ledger = RunFolder.open(folder).read_ledger()
        spent = ledger.totals.total_epsilon
        slot = next((entry.slot or "" for entry in reversed(ledger.releases)), "")
        planned = next(iter(ledger.plans.values())).planned_epsilon
    return {
        "study": begun.study,
        "experiment": begun.id,
        "begun": begun.started_at,
        "closed": begun.closed_at,
        "broken": begun.violated_at,
        "non_private": begun.non_private,
        "rounds": len(set(rounds)),
        "uploads": len(rounds),
        "slot": slot,
        "spent_epsilon": spent,
        "planned_epsilon": float(planned),
        "folder": str(folder),
        "model": _describe_model(begun, folder),
    }


def _describe_model(begun: Experiment, folder: Path) -> str:
    """Return who signed the model in a study's folder, or "" if there is no model."""
    if not folder.exists() or not RunFolder.open(folder).finished:
        return ""
    try:
        signer = verify_model_signature(RunFolder.open(folder), begun.id, begun.terms)
    except TaciturnError as error:
        return f"NOT SIGNED: {error}"
    return f"signed by the coordinator {signer.fingerprint}" if signer else "not signed"


def close_study(path: Path, start: str) -> str:
    """Close a study at a site and settle its reservation.

    Parameters
    ----------
    path : Path
        site.toml.
    start : str
        The first digits of the experiment.

    Returns
    -------
    str
        The study's name and the first digits of the experiment.

    Raises
    ------
    InputError
        If an agent is running, or there is no such open study.
    """
    site = read_site(path)
    with Journal.open(site.state, patience=2.0) as journal:
        known = journal.experiments()
        if not known:
            raise InputError("this site has not taken part in a study yet")
        matching = [begun for begun in known if begun.id.startswith(start)]
        if len(matching) != 1:
            raise unknown_name("study", start, [begun.id[:8] for begun in known])
        (begun,) = matching
        if begun.closed_at:
            raise InputError(f"the study {start} was closed on {begun.closed_at}")
        folder = study_folder(site, begun.id)
        if not any(journal.charges(begun.id)) and not folder.exists():
            cancel_study(site, journal, begun)
        else:
            settle_study(site, journal, begun, RunFolder.open(folder))
    return f"{begun.study} ({begun.id[:8]})"
