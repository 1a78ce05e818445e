"""What the rounds of a run cost, as its noise grows: from public numbers alone, before a record is read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from taciturn.algorithms.noisy_gradient import MOST_BITS, fraction_bits
from taciturn.privacy.events import Discrete, Event, Noise
from taciturn.privacy.sensitivity import Sensitivity
from taciturn.types import GRID


class RunTotal(NamedTuple):
    """What decides the whole numbers that a hardened release adds up: all of it is public."""

    total_records: int  # I
    records_max: int
    clip: float
    coordinates: int  # J K, and twice that for replace-one
    most_bits: int = MOST_BITS

    def bits(self, scale: float) -> int:
        """The bits of a residual's fraction, where noise has this scale in the gradient's unit."""
        return min(self.most_bits, fraction_bits(self.records_max, self.clip, self.total_records, scale))

    def sigma(self, scale: float) -> float:
        """The scale in whole numbers."""
        return scale * (self.total_records * GRID * 2.0 ** self.bits(scale))


class PublicParameters(NamedTuple):
    """All that the cost of one run depends on; the multiplier of its noise is counted in units of `moved.l2`."""

    mechanism: str  # of the noise: gaussian or laplace, or their discrete forms
    moved: Sensitivity  # how far one unit moves the gradient of an agent's objective
    updates: int  # E
    rho: Callable[[int], float]  # of round t
    eta: Callable[[int], float]
    convexity: float = 0.0  # alpha: every agent's objective is alpha-strongly convex
    trace: float = math.inf  # how far one unit moves the trace of an agent's Hessian
    rank: int = 1  # K, times the records in which neighbours differ
    sampling: float = 1.0  # q
    tolerance: float = 0.0  # of solvers
    whole: RunTotal | None = None  # of hardened noise


PrivacyCost: TypeAlias = Callable[[PublicParameters, float, int], Counter[Event]]
"""(what is public, the multiplier of the noise, n) -> the events of the first n rounds at one agent."""


def per_update_cost(public: PublicParameters, multiplier: float, rounds: int) -> Counter[Event]:
    """Every local update releases a gradient, and is charged as if it were seen."""
    return Counter({gradient_event(public, multiplier): rounds * public.updates})


def gradient_event(public: PublicParameters, multiplier: float) -> Noise | Discrete:
    """The event of a gradient with noise of so many times what one unit moves it."""
    l1, l2 = public.moved
    scale = multiplier * l2
    if public.mechanism != Discrete.mechanism:
        return Noise(public.mechanism, scale, l1, l2)
    if public.whole is None:
        raise TypeError("discrete Gaussian noise is for sums of whole numbers")
    return Discrete(scale, l2, public.whole.sigma(scale), public.whole.coordinates)


def per_upload_cost(moved: Callable[[PublicParameters, int], float]) -> PrivacyCost:
    """Every upload gets noise of its own: `moved` says how far one unit moves that of round t, in L2."""

    def charge(public: PublicParameters, multiplier: float, rounds: int) -> Counter[Event]:
        lengths = (moved(public, t) for t in range(1, rounds + 1))
        return Counter(upload_event(public.mechanism, multiplier, length) for length in lengths)

    return charge


def upload_event(mechanism: str, multiplier: float, moved: float) -> Noise:
    """The event of an upload that one unit moves by so much, with noise of so many times that."""
    return Noise(BY_LENGTH[mechanism], multiplier * moved, math.inf, moved)


BY_LENGTH = {"gaussian": "gaussian", "laplace": "l2-laplace"}
"""The noise of the two mechanisms where only the length of a change is bounded: what was published as Laplace noise
then has density exp(-||xi||_2 / scale)."""
