"""What the secure sum of a study is, from its terms alone: parameters, parties, sizes of messages and noise keys."""

from __future__ import annotations

from taciturn.errors import InputError
from taciturn.federation.agreement import Agreement, verified_peers
from taciturn.federation.policy import Site
from taciturn.federation.terms import Terms
from taciturn.secure_sum.parameters import SLOTS_LIMIT, SumParameters
from taciturn.secure_sum.sum_context import SumStudy

SPARE_EPOCHS = 50  # epochs of a study beyond its uploads; each leaves rows in a site's journal


def sum_study(agreement: Agreement, experiment: str) -> SumStudy:
    """Return what every key and signature of a study's sums is bound to.

    Parameters
    ----------
    agreement : Agreement
        The study.
    experiment : str
        Its random name, 32 hexadecimal digits.

    Raises
    ------
    InputError
        If the terms have no secure sum, or an identity is missing.
    """
    terms = agreement.terms
    if agreement.sum_parameters is None:
        raise InputError(f"{terms.path}: trust is {terms.settings.trust}; this study has no secure sum")
    terms.check_complete()
    identities = tuple(terms.identities[site] for site in terms.sites)
    return SumStudy(bytes.fromhex(terms.digest), bytes.fromhex(experiment), agreement.sum_parameters, identities)


def describe_parameters(parameters: SumParameters) -> str:
    """Return in one line what a study's sums need: quorum, honest shares of noise, threshold, and uploads.

    Examples
    --------
    >>> describe_parameters(SumParameters(5, colluders=1, quorum=4, dimension=9, width=40, rounds=40, reserve=3))
    'secure sum: at least q = 4 of 5 sites in a sum (1 may be missing), at least h = 3 of them honest; shares of tau = 4
    sites open it; the budget pays for 43 uploads of a site'
    """
    p = parameters
    return (
        f"secure sum: at least q = {p.quorum} of {p.sites} sites in a sum ({p.missing or 'none'} may be missing), at "
        f"least h = {p.honest} of them honest; shares of tau = {p.threshold(p.sites)} sites open it; the budget pays "
        f"for {p.charges} uploads of a site"
    )


def noise_number(epoch: int, slot: int) -> int:
    """Return the number under which the seeded noise of a slot is drawn; no two slots share one.

    Examples
    --------
    >>> noise_number(0, 0), noise_number(1, 0)
    (1, 1001)
    """
    return epoch * SLOTS_LIMIT + slot + 1


def verified_sites(site: Site, terms: Terms) -> frozenset[int]:
    """Return the numbers of the peers that people of this site have verified; see `verified_peers`."""
    names = verified_peers(site, terms)
    return frozenset(number for number, name in enumerate(terms.sites, 1) if name in names)
