"""What the secure sum of a study is, from its terms alone: parameters, parties, sizes of messages and noise keys."""

from __future__ import annotations

from collections import Counter
from typing import cast

from taciturn.algorithms.base import SummableAlgorithm
from taciturn.algorithms.noisy_gradient import SummedGradient
from taciturn.errors import InputError
from taciturn.federation.agreement import Agreement, verified_peers
from taciturn.federation.policy import Site
from taciturn.federation.terms import Terms
from taciturn.privacy.events import Event
from taciturn.privacy.signatures import canonical
from taciturn.secure_sum.parameters import SLOTS_LIMIT, SumParameters
from taciturn.secure_sum.sum_context import SumStudy

SPARE_EPOCHS = 50  # epochs of a study beyond its uploads; each leaves rows in a site's journal


def sum_study(agreement: Agreement, experiment: str, non_private: str) -> SumStudy:
    """Return what every key and signature of a study's sums is bound to.

    Parameters
    ----------
    agreement : Agreement
        The study.
    experiment : str
        Its random name, 32 hexadecimal digits.
    non_private : str
        Why the noise of its sites protects nobody, or "" if it does; see `describe_noise`.

    Raises
    ------
    InputError
        If the terms have no secure sum, or an identity is missing.
    """
    terms = agreement.terms
    if agreement.sum_parameters is None:
        raise InputError(f"{terms.path}: trust is {terms.settings.trust}; this study has no secure sum")
    terms.check_complete()
    return SumStudy(
        terms=bytes.fromhex(terms.digest),
        experiment=bytes.fromhex(experiment),
        parameters=agreement.sum_parameters,
        identities=tuple(terms.identities[site] for site in terms.sites),
        noise=describe_noise(agreement, non_private).encode(),
    )


def describe_noise(agreement: Agreement, non_private: str) -> str:
    """Return everything that sites must plan alike about noise and grids, as JSON.

    Each site charges what it plans itself, and relies on the others' shares. So sites that plan other noise from the
    same terms, such as two releases, must not be in one sum, and neither must sites with seeded noise, which anyone can
    draw again, and sites with noise from the operating system. Numbers have 9 digits: planning compares and multiplies,
    which is the same on all machines, but a clip or a step that is computed with logarithms may differ in its last
    bits.

    Parameters
    ----------
    agreement : Agreement
        A study with a secure sum.
    non_private : str
        Why the noise protects nobody, such as "seeded"; "" if it does.
    """
    algorithm, plan, measure = cast(SummableAlgorithm, agreement.algorithm), agreement.plan, agreement.measure
    release, problem = cast(SummedGradient, algorithm.release).hardened, algorithm.problem
    found: dict[str, object] = {
        "events": _described(plan.events),
        "share": release.mechanism.share,
        "scale": [float(scale) for scale in release.mechanism.scale],
        "bits": release.bits,
        "unit": release.unit(problem),
        "clip": [float(clip) for clip in release.clipping.l2],
    }
    if measure is not None and plan.evaluation is not None:
        found |= {
            "measures": _described(plan.evaluation.events),
            "measure share": measure.share,
            "measure bits": list(measure.bits),
            "measure length": measure.layout.length,
        }
    if non_private:
        found["non_private"] = non_private
    return canonical({name: _rounded(value) for name, value in found.items()}).decode()


def _described(events: Counter[Event]) -> list[object]:
    return [[type(event).__name__, vars(event), count] for event, count in events.items()]


def _rounded(value: object) -> object:
    """Return a value for JSON in which floating-point numbers are strings of 9 significant digits.

    Examples
    --------
    >>> _rounded({"share": 1 / 3, "bits": [2]})
    {'share': '0.333333333', 'bits': [2]}
    """
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return f"{value:.9g}" if isinstance(value, float) else value


def describe_parameters(parameters: SumParameters) -> str:
    """Return in one line what a study's sums need: quorum, honest shares of noise, threshold, and uploads.

    Examples
    --------
    >>> describe_parameters(SumParameters(5, colluders=1, quorum=4, dimension=9, width=40, rounds=40, reserve=3))
    'secure sum: at least 4 of 5 sites in a sum (1 may be missing), at least 3 of them honest; shares of 4
    sites open it; the budget pays for 43 uploads of a site'
    """
    p = parameters
    return (
        f"secure sum: at least {p.quorum} of {p.sites} sites in a sum ({p.missing or 'none'} may be missing), at "
        f"least {p.honest} of them honest; shares of {p.threshold(p.sites)} sites open it; the budget pays "
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
    """Return the numbers of the peers that people at this site have verified; see `verified_peers`."""
    names = verified_peers(site, terms)
    return frozenset(number for number, name in enumerate(terms.sites, 1) if name in names)
