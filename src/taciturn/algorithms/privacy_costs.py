"""The privacy cost of a run's rounds as a function of its noise, from public numbers alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from taciturn.algorithms.noisy_gradient import MAX_BITS, fraction_bits
from taciturn.errors import InputError
from taciturn.privacy.events import Discrete, Event, Noise
from taciturn.privacy.sensitivity import Sensitivity
from taciturn.secure_sum.parameters import NumberFormat, choose_format
from taciturn.types import GRID


class SummedAgents(NamedTuple):
    """The public numbers of a secure sum that determine its integers.

    Parameters
    ----------
    sites : int
        P, the number of agents.
    honest : int
        h = P - c - d, the honest agents whose noise is in every sum.
    records : int
        The declared records of all agents together.
    """

    sites: int
    honest: int
    records: int


class IntegerGrid(NamedTuple):
    """The public numbers that determine the integers in which a hardened release is summed.

    Parameters
    ----------
    total_records : int
        I.
    records_max : int
        The most records of one agent.
    clip : float
        The L2 clip of a gradient.
    coordinates : int
        J K; twice that for replace-one.
    max_bits : int
        The most bits of a residual's fraction.
    summed : SummedAgents, optional
        If the integers of several agents are added: their sum has fewer bits than float64 or int64.
    """

    total_records: int
    records_max: int
    clip: float
    coordinates: int
    max_bits: int = MAX_BITS
    summed: SummedAgents | None = None

    def bits(self, scale: float) -> int:
        """Return the bits of a residual's fraction if the noise has this scale in the gradient's unit.

        The result may be too small, because calibration tries scales of any size; planning refuses it.
        """
        bits = min(self.max_bits, fraction_bits(self.records_max, self.clip, self.total_records, scale))
        if self.summed is None:
            return bits
        try:
            return min(bits, self.number_format(scale).residual_bits)
        except InputError:  # no width has room for so much noise
            return min(bits, 0)

    def number_format(self, scale: float) -> NumberFormat:
        """Return the width and the residuals' bits of a secure sum whose h shares have this scale together.

        Raises
        ------
        InputError
            If the sum has no room in any width.
        TypeError
            If the integers are not those of a secure sum.
        """
        if self.summed is None:
            raise TypeError("only the integers of a secure sum are sent in a number format")
        sites, honest, records = self.summed
        return choose_format(records, self.clip * GRID, scale * self.total_records / self.clip, sites, honest)

    def sigma(self, scale: float) -> float:
        """Return the scale in units of the integers."""
        return scale * (self.total_records * GRID * 2.0 ** self.bits(scale))


class PublicParameters(NamedTuple):
    """Everything that the privacy cost of one run depends on, apart from the noise multiplier.

    Parameters
    ----------
    mechanism : str
        "gaussian", "laplace", or their discrete forms.
    sensitivity : Sensitivity
        Of an agent's clipped gradient; the noise multiplier is relative to its l2.
    updates : int
        E.
    rho, eta : callable
        Penalty and proximity of round t.
    convexity : float
        alpha: every agent's objective is alpha-strongly convex.
    trace : float
        The most that one unit changes the trace of an agent's Hessian.
    rank : int
        K times the records in which neighbours differ.
    sampling : float
        q.
    tolerance : float
        Of subproblem solvers.
    grid : IntegerGrid, optional
        For hardened noise.
    """

    mechanism: str
    sensitivity: Sensitivity
    updates: int
    rho: Callable[[int], float]
    eta: Callable[[int], float]
    convexity: float = 0.0
    trace: float = math.inf
    rank: int = 1
    sampling: float = 1.0
    tolerance: float = 0.0
    grid: IntegerGrid | None = None


PrivacyCost: TypeAlias = Callable[[PublicParameters, float, int], Counter[Event]]
"""(public parameters, noise multiplier, n) -> the events of the first n rounds at one agent."""


def per_update_cost(public: PublicParameters, multiplier: float, rounds: int) -> Counter[Event]:
    """Return the events of a method whose every local update releases a gradient.

    Parameters
    ----------
    public : PublicParameters
        The public parameters of the run.
    multiplier : float
        The noise scale in units of the L2 sensitivity.
    rounds : int
        The number of rounds.

    Returns
    -------
    Counter of Event

    Examples
    --------
    >>> public = PublicParameters("gaussian", Sensitivity(math.inf, 0.5), 10, lambda t: 1.0, lambda t: 1.0)
    >>> per_update_cost(public, 4.0, rounds=3)
    Counter({Noise(mechanism='gaussian', scale=2.0, l1=inf, l2=0.5): 30})
    """
    return Counter({gradient_event(public, multiplier): rounds * public.updates})


def gradient_event(public: PublicParameters, multiplier: float) -> Noise | Discrete:
    """Return the event of one gradient with noise of `multiplier` times its L2 sensitivity."""
    l1, l2 = public.sensitivity
    scale = multiplier * l2
    if public.mechanism != Discrete.mechanism:
        return Noise(public.mechanism, scale, l1, l2)
    if public.grid is None:
        raise TypeError("discrete Gaussian noise needs the integer grid of a hardened release")
    return Discrete(scale, l2, public.grid.sigma(scale), public.grid.coordinates)


def per_upload_cost(sensitivity: Callable[[PublicParameters, int], float]) -> PrivacyCost:
    """Return the cost of a method that adds noise to every upload.

    Parameters
    ----------
    sensitivity : callable
        Maps (public parameters, t) to the L2 sensitivity of the upload of round t.

    Returns
    -------
    PrivacyCost
    """

    def cost(public: PublicParameters, multiplier: float, rounds: int) -> Counter[Event]:
        sensitivities = (sensitivity(public, t) for t in range(1, rounds + 1))
        return Counter(upload_event(public.mechanism, multiplier, l2) for l2 in sensitivities)

    return cost


def upload_event(mechanism: str, multiplier: float, sensitivity: float) -> Noise:
    """Return the event of an upload of this L2 sensitivity with noise of `multiplier` times it."""
    return Noise(L2_MECHANISMS[mechanism], multiplier * sensitivity, math.inf, sensitivity)


L2_MECHANISMS = {"gaussian": "gaussian", "laplace": "l2-laplace"}
"""The noise of each mechanism where only the L2 sensitivity is bounded. Noise that was published as Laplace then has
density ~ exp(-||xi||_2 / scale)."""
