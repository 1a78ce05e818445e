"""Privacy events: what one noisy release of one agent costs, in the numbers that an accountant needs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from taciturn.core.arrays import to_numpy
from taciturn.errors import CorruptFile
from taciturn.types import Array


@dataclass(frozen=True)
class Nominal:
    """A local update without a proven guarantee: the budget of mode paper, or a release without noise.

    Parameters
    ----------
    mechanism : str
        The name of the noise; "none" without noise.
    epsilon : float, default inf
        The budget claimed for this update alone.
    delta : float, default 0
        The delta of (epsilon, delta).

    Examples
    --------
    >>> Nominal("laplace-data-dependent", 0.1)
    Nominal(mechanism='laplace-data-dependent', epsilon=0.1, delta=0.0)
    """

    mechanism: str
    epsilon: float = math.inf
    delta: float = 0.0


@dataclass(frozen=True)
class Noise:
    """A gradient or an upload with continuous or discrete Laplace, or continuous Gaussian noise.

    Parameters
    ----------
    mechanism : str
        "gaussian", "laplace", "discrete-laplace" or "l2-laplace" (density ~ exp(-||xi||_2 / scale)).
    scale : float
        The standard deviation of Gaussian noise, the parameter b of the others.
    l1, l2 : float
        The sensitivities, in the unit of the scale. l2-laplace uses l2 only.

    Examples
    --------
    >>> exposure(Noise("gaussian", scale=2.0, l1=math.inf, l2=1.0))
    0.5
    """

    mechanism: str
    scale: float
    l1: float
    l2: float


@dataclass(frozen=True)
class Discrete:
    """A sum of integers with discrete Gaussian noise (proof: docs/explanation/discrete-gaussian.md).

    `sigma` and `coordinates` bound how much more it can cost than continuous noise of the same scale.

    Parameters
    ----------
    scale : float
        The noise's parameter, in the gradient's unit.
    l2 : float
        The sensitivity, in the same unit.
    sigma : float
        The scale in units of the integers that are summed.
    coordinates : int
        J K; twice that for replace-one, where a record may move from one agent to another.

    Examples
    --------
    >>> Discrete(scale=0.2, l2=0.1, sigma=5000.0, coordinates=12).mechanism
    'discrete-gaussian'
    """

    scale: float
    l2: float
    sigma: float
    coordinates: int
    mechanism: str = "discrete-gaussian"


@dataclass(frozen=True)
class Hidden:
    """One round of several Gaussian local updates of which only the last iterate is released.

    Parameters
    ----------
    scale : float
        The standard deviation of every update's noise.
    l2 : float
        The sensitivity of every update's gradient.
    updates : int
        E.
    contraction : float
        c < 1: the factor by which one noiseless update shrinks the distance of two iterates.

    Examples
    --------
    >>> Hidden(scale=2.0, l2=1.0, updates=10, contraction=0.5).mechanism
    'hidden-gaussian'
    """

    scale: float
    l2: float
    updates: int
    contraction: float
    mechanism: str = "hidden-gaussian"


@dataclass(frozen=True)
class Sampled:
    """The clipped gradient of a Poisson sample with Gaussian noise.

    It is valid for adding or removing one record, and for a sample that is drawn again for every release and kept
    secret.

    Parameters
    ----------
    scale : float
        The standard deviation of the noise on the sum over the sample.
    l2 : float
        The most that one record adds to that sum.
    rate : float
        q: the probability that a record is in the sample.

    Examples
    --------
    >>> Sampled(scale=2.0, l2=1.0, rate=0.1).mechanism
    'sampled-gaussian'
    """

    scale: float
    l2: float
    rate: float
    mechanism: str = "sampled-gaussian"


@dataclass(frozen=True)
class Objective:
    """The minimiser of an objective with a random term <b, z> (proof: docs/explanation/objective-perturbation.md).

    Parameters
    ----------
    scale : float
        The standard deviation of b; for objective-l2-laplace the density of b is ~ exp(-||b||_2 / scale).
    l2 : float
        The most that one unit changes the objective's gradient at any point.
    determinant : float
        The most that adding one unit raises the logarithm of the determinant of the Hessian.
    outputs : int
        K times the records in which neighbours differ: the rank of the difference of their gradients, over which the
        Gaussian b has to hide it.
    mechanism : str
        "objective-gaussian" or "objective-l2-laplace".

    Examples
    --------
    >>> exposure(Objective(4.0, 1.0, 0.01, 3, "objective-gaussian"))
    0.25
    """

    scale: float
    l2: float
    determinant: float
    outputs: int
    mechanism: str


Event: TypeAlias = Nominal | Noise | Discrete | Hidden | Sampled | Objective

NON_PRIVATE = Nominal("none")
CONTINUOUS = ("gaussian", "laplace")
DISCRETE_LAPLACE = "discrete-laplace"
L2_LAPLACE = "l2-laplace"
OBJECTIVES = OBJECTIVE_GAUSSIAN, OBJECTIVE_L2_LAPLACE = "objective-gaussian", "objective-l2-laplace"
KINDS: Mapping[str, type[Event]] = {
    Discrete.mechanism: Discrete,
    Hidden.mechanism: Hidden,
    Sampled.mechanism: Sampled,
    **dict.fromkeys((*CONTINUOUS, DISCRETE_LAPLACE, L2_LAPLACE), Noise),
    **dict.fromkeys(OBJECTIVES, Objective),
}
"""The event class of every mechanism; any other mechanism is Nominal."""


def exposure(event: Event) -> float:
    """Return the L2 sensitivity in units of the noise's scale; infinite without noise."""
    return math.inf if isinstance(event, Nominal) else event.l2 / event.scale


def event_of(entry: Mapping[str, Any]) -> Event:
    """Return the event of a ledger entry.

    Parameters
    ----------
    entry : mapping
        The JSON object; it needs the fields of its mechanism's event class, and may have others.

    Returns
    -------
    Event

    Raises
    ------
    CorruptFile
        If a field is missing.

    Examples
    --------
    >>> event_of({"mechanism": "gaussian", "scale": 2, "l1": "inf", "l2": 0.5, "round": 1})
    Noise(mechanism='gaussian', scale=2, l1=inf, l2=0.5)
    """
    mechanism = entry["mechanism"]
    kind: Any = KINDS.get(mechanism, Nominal)
    try:
        values = {field.name: entry[field.name] for field in dataclasses.fields(kind)}
    except KeyError as error:
        raise CorruptFile(f"a ledger entry with mechanism {mechanism} lacks the field {error}") from error
    numbers = {
        name: value if isinstance(value, int) else float(value) for name, value in values.items() if name != "mechanism"
    }
    event: Event = kind(**numbers, mechanism=mechanism)
    return event


@dataclass(frozen=True, eq=False)
class BatchEvent:
    """The events of one update in all runs of a batch.

    Batches are compared by identity: a long study has millions of them.

    Parameters
    ----------
    runs : tuple of Event, [R]
        The event of every run.
    held_out : bool, default False
        Whether the release depends on held-out records alone; else it depends on training records alone.

    Examples
    --------
    >>> non_private(2).runs == (NON_PRIVATE, NON_PRIVATE)
    True
    """

    runs: tuple[Event, ...]
    held_out: bool = False


def nominal_event(mechanism: str, epsilon: Array, delta: float = 0.0) -> BatchEvent:
    """Return the events of one update with these nominal budgets, [R]; inf means a release without noise."""
    budgets = [float(str(e)) for e in to_numpy(epsilon)]  # 0.05 as it was given, not as single precision stores it
    return BatchEvent(tuple(NON_PRIVATE if math.isinf(e) else Nominal(mechanism, e, delta) for e in budgets))


@cache
def non_private(runs: int) -> BatchEvent:
    """Return the events of a release without noise, whose total is infinite rather than absent."""
    return BatchEvent((NON_PRIVATE,) * runs)


class Draw(NamedTuple):
    """Noise together with the event that accounts for it.

    Parameters
    ----------
    xi : Array, [J, R, K]
        The noise.
    event : BatchEvent
        The privacy event.
    """

    xi: Array
    event: BatchEvent
