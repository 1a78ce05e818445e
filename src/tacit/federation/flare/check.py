"""Everything a site can check before it takes part; nothing is released by it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.federation import PROTOCOL
from tacit.federation.agreement import Agreement, agree, objections, own_dataset
from tacit.federation.flare.address import check_address
from tacit.federation.flare.locks import check_locks
from tacit.federation.journal import Journal
from tacit.federation.policy import Site, read_site
from tacit.federation.terms import read_terms
from tacit.results.account import Account

SOON = datetime.timedelta(days=30)


def check_site(path: Path) -> dict[str, Any]:
    """What was found, by name; what would keep this site from taking part is one error that says all of it."""
    site, agreement, expires, notes = check_own(path)
    if reasons := objections(site, agreement):
        raise InputError("; ".join(reasons))
    state, plan, terms = Account.open(site.ledger).state(), agreement.plan, agreement.terms
    return {
        "site": site.name,
        "study": terms.name,
        "terms": terms.digest,
        "protocol": PROTOCOL,
        "schema": f"{terms.schema_sha256[:12]}…, as agreed",
        "records": "; ".join(["loaded", *notes]),
        "server": f"{terms.host}:{terms.port}",
        "algorithm": f"{terms.settings.algorithm[0]}, {plan.rounds} rounds",
        "study_epsilon": f"{plan.bound.epsilon:.4g} of {plan.total_epsilon:g} at delta {plan.delta:g}",
        "budget": f"{state['epsilon_used']:.4g} of {state['total_epsilon']:g} used or set aside",
        "open_studies": f"{_open(site, terms.digest)} of these terms, of at most {site.accepts.open_studies_max}",
        "certificate": f"valid until {expires:%Y-%m-%d}" + (": renew it soon" if _soon(expires) else ""),
        "locks": "no submitted code, allow list, result filter: in place",
    }


def _open(site: Site, terms: str) -> int:
    """How many studies of these terms have begun here and not ended."""
    if not (site.state / "journal.sqlite").is_file():
        return 0
    with Journal.read(site.state) as journal:
        return sum(begun.terms == terms and not begun.closed for begun in journal.experiments())


def check_own(path: Path) -> tuple[Site, Agreement, datetime.datetime, tuple[str, ...]]:
    """The site's own affairs, whatever it thinks of the study: files, records, certificate and locks.

    Last are the notes on its records, which are for the site alone.
    """
    site = read_site(path)
    terms = read_terms(site.study)
    published = terms.published()
    agreement = agree(terms, published)
    Account.open(site.ledger)
    notes = own_dataset(site, agreement, published).notes
    expires = check_certificate(site)
    check_locks(site.kit)
    check_address(site.kit, agreement.terms)
    return site, agreement, expires, notes


def check_certificate(site: Site) -> datetime.datetime:
    """When the kit's certificate ends; one that has ended, or is somebody else's, is refused."""
    from cryptography import x509  # noqa: PLC0415  it comes with NVFlare
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    path = site.kit / "startup" / "client.crt"
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        authority = x509.load_pem_x509_certificate((path.parent / "rootCA.pem").read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} or the authority's certificate beside it cannot be read: {error}") from None
    owner = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    if owner != site.name:
        raise InputError(f"{path} is the certificate of {owner}, and this site is {site.name}")
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:
        raise InputError(f"{path} was not issued by the authority of this federation") from None
    expires = min(certificate.not_valid_after_utc, authority.not_valid_after_utc)
    if expires < datetime.datetime.now(datetime.UTC):
        raise InputError(f"{path} has expired on {expires:%Y-%m-%d}: ask the coordinator for a new kit")
    return expires


def _soon(expires: datetime.datetime) -> bool:
    return expires - datetime.datetime.now(datetime.UTC) < SOON
