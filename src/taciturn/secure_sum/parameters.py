"""The public parameters of a secure sum: who must take part, the threshold, the modulus and the reserve.

P sites are in the terms, at most c of them collude with the server, and at most d may be missing from a sum. The quorum
is q = P - d. At least h = q - c honest shares of noise are then in every sum that is opened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from taciturn.errors import InputError, shown

WIDTHS = (40, 48, 56)  # bits of a number in an upload
SITES_LIMIT = 1000
SLOTS_LIMIT = 1000  # of one epoch
EPOCH_SLOTS = 50  # for which keys are made ahead
DIMENSION_LIMIT = 2**27
MODULUS_TAIL = 12.0  # standard deviations; the modulus has room for them
RESIDUAL_BITS = (14, 24)  # the coarsest and the finest grid of residuals
GRADIENT, MEASURES = SUBJECTS = (0, 1)  # what is summed: gradients of training records, or measures of held-out ones


@dataclass(frozen=True)
class SumParameters:
    """What all sites agree on before the first key is made.

    Attributes
    ----------
    sites
        P, the number of sites in the terms.
    colluders
        c, how many sites may collude with the server.
    quorum
        q, the fewest sites of a sum that is opened.
    dimension
        How many numbers are summed.
    width
        b: sums are modulo 2^b. One of `WIDTHS`.
    rounds
        T, the rounds of the study.
    reserve
        How many uploads a site may make beyond T.
    measures
        How many numbers an evaluation of the model sums; 0 if there are no evaluations.
    evaluations
        How many uploads a site may make for evaluations, besides those of the rounds.

    Raises
    ------
    InputError
        If a value is impossible. The message names the value, the rule and the choices.

    Examples
    --------
    >>> ten = SumParameters(sites=10, colluders=1, quorum=8, dimension=8000, width=40, rounds=300, reserve=6)
    >>> ten.missing, ten.honest, ten.threshold(10), ten.threshold(8), ten.charges
    (2, 7, 6, 5, 306)
    """

    sites: int
    colluders: int
    quorum: int
    dimension: int
    width: int
    rounds: int
    reserve: int
    measures: int = 0
    evaluations: int = 0

    def __post_init__(self) -> None:
        _check("the number of sites", self.sites, 3, SITES_LIMIT)
        _check("colluders", self.colluders, 1, self.sites - 2, "two honest sites must be left, and one may collude")
        why = "a smaller quorum lets two sums be opened from one slot"
        _check("the quorum", self.quorum, self.threshold(self.sites), self.sites, why)
        _check("the dimension", self.dimension, 1, DIMENSION_LIMIT)
        if type(self.width) is not int or self.width not in WIDTHS:
            raise InputError(f"a number of {shown(self.width)} bits cannot be sent: choose one of {WIDTHS}")
        _check("rounds", self.rounds, 1, 2**31 - 1)
        _check("the reserve", self.reserve, 0, 2**31 - 1)
        _check("the numbers of an evaluation", self.measures, 0, DIMENSION_LIMIT)
        _check("evaluations", self.evaluations, 0, 2**31 - 1 if self.measures else 0)

    @property
    def missing(self) -> int:
        """d, how many sites may be missing from a sum."""
        return self.sites - self.quorum

    @property
    def honest(self) -> int:
        """h, the honest shares of noise that are in every opened sum."""
        return self.quorum - self.colluders

    @property
    def charges(self) -> int:
        """T + reserve: the gradients that a site uploads at most, and that its plan must pay for."""
        return self.rounds + self.reserve

    @property
    def uploads(self) -> int:
        """The uploads that a site makes at most: gradients and measures."""
        return self.charges + self.evaluations

    def paid(self, subject: int) -> int:
        """Return how many uploads of a subject, GRADIENT or MEASURES, the plan pays for."""
        return self.evaluations if subject == MEASURES else self.charges

    def size(self, subject: int) -> int:
        """Return how many numbers an upload of a subject has."""
        return self.measures if subject == MEASURES else self.dimension

    def threshold(self, cohort: int) -> int:
        """Return tau, the sites of a cohort of n whose shares give a secret."""
        return threshold(cohort, self.colluders)


class NumberFormat(NamedTuple):
    """How gradients are written as whole numbers, and how many bits these need."""

    width: int  # b, bits of a number in an upload
    residual_bits: int  # residuals are multiples of 2^-residual_bits


def threshold(cohort: int, colluders: int) -> int:
    """Return tau = floor((n + c) / 2) + 1: two sets of tau out of n sites share more than c of them.

    Examples
    --------
    >>> threshold(10, colluders=1), threshold(8, colluders=1)
    (6, 5)
    """
    return (cohort + colluders) // 2 + 1


def default_reserve(rounds: int) -> int:
    """Return the uploads beyond T that a study sets aside for slots that are lost: T/50, and at least 3.

    Examples
    --------
    >>> default_reserve(300), default_reserve(20)
    (6, 3)
    """
    return max(3, -(-rounds // 50))


def default_missing(sites: int) -> int:
    """Return how many sites may be missing from a sum unless something else is agreed on: a tenth; one of 5 to 9.

    Examples
    --------
    >>> default_missing(4), default_missing(5), default_missing(50)
    (0, 1, 5)
    """
    return max(sites // 10, 1 if sites >= 5 else 0)


def most_missing(sites: int, colluders: int) -> int:
    """Return how many sites may be missing from a sum at most: the quorum is then the threshold of all P sites.

    Examples
    --------
    >>> most_missing(5, colluders=1), most_missing(10, colluders=1), most_missing(3, colluders=1)
    (1, 4, 0)
    """
    return sites - threshold(sites, colluders)


def epoch_slots(parameters: SumParameters) -> int:
    """Return for how many slots keys are made ahead: 50, or all uploads that the plan pays for."""
    return min(EPOCH_SLOTS, parameters.uploads)


def choose_format(records: int, unit: float, noise_multiplier: float, sites: int, honest: int) -> NumberFormat:
    """Choose the width of a number such that an honest sum does not wrap around.

    The rule is 2^(b - 1) > D (N + 12 z sqrt(P / h)), where D = unit 2^r is the length of one record in whole
    numbers, N the declared records of all sites and z the noise multiplier. It takes b = 40 and the largest r <= 24
    that fits. If that r is below 14 it takes b = 48, then b = 56.

    Parameters
    ----------
    records : int
        N, the declared maximum number of records, summed over all sites.
    unit : float
        Maximum length of one record's gradient in the grid of the features: the clipping norm times the grid.
    noise_multiplier : float
        z, the standard deviation of the noise of h shares over the length of one record.
    sites, honest : int
        P and h.

    Returns
    -------
    NumberFormat
        The width and the grid of the residuals.

    Raises
    ------
    InputError
        If an argument is impossible, or no width has room for the sum.

    Examples
    --------
    >>> choose_format(60_000, 0.075 * 4080, 73.17, sites=10, honest=7)
    NumberFormat(width=40, residual_bits=14)
    >>> choose_format(60_000, 1.0 * 4080, 73.17, sites=10, honest=7)
    NumberFormat(width=48, residual_bits=19)
    """
    _check("records", records, 1, 2**53)
    _check("the number of sites", sites, 1, SITES_LIMIT)
    _check("honest shares", honest, 1, sites)
    for name, value in (("the length of a record", unit), ("the noise multiplier", noise_multiplier)):
        if not (isinstance(value, float | int) and math.isfinite(value) and value > 0):
            raise InputError(f"{name} is {shown(value)}; it must be a finite number above 0")
    coarsest, finest = RESIDUAL_BITS
    largest = unit * (records + MODULUS_TAIL * noise_multiplier * math.sqrt(sites / honest))
    for width in WIDTHS:
        fitting = [r for r in range(coarsest, finest + 1) if math.ldexp(largest, r) < 2 ** (width - 1)]
        if fitting:
            return NumberFormat(width, fitting[-1])
    raise InputError(
        f"a sum of up to {largest:.3g} units does not fit into {WIDTHS[-1]} bits with residuals of {coarsest} bits: "
        "declare fewer records or clip to a smaller norm"
    )


def _check(name: str, value: object, least: int, most: int, why: str = "") -> None:
    """Raise unless a value is a whole number within a range; `why` says where the range comes from."""
    if type(value) is not int or not least <= value <= most:
        reason = f", because {why}" if why else ""
        choices = f"it must be a whole number from {least} to {most}" if least <= most else "no value is possible"
        raise InputError(f"{name}: {shown(value)} is not possible; {choices}{reason}")
