"""Privacy events: what one noisy release of one agent stands for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.types import Array


@dataclass(frozen=True)
class Nominal:
    """One local update with a budget that is only a name: the paper mode's, and a release without noise."""

    mechanism: str
    epsilon: float = math.inf  # nominal, of this update alone
    delta: float = 0.0


@dataclass(frozen=True)
class Noise:
    """A gradient or an upload with noise of a known scale, which moves by at most l1 and l2 with one unit."""

    mechanism: str  # gaussian, laplace, discrete-laplace or l2-laplace
    scale: float  # standard deviation of the Gaussians, b of the Laplaces; l2-laplace: density ~ exp(-||xi||_2 / scale)
    l1: float  # sensitivities, in the unit of the scale; of l2-laplace only l2 counts
    l2: float


@dataclass(frozen=True)
class Discrete:
    """A sum of whole numbers with discrete Gaussian noise (proof: docs/explanation/discrete-gaussian.md).

    `sigma` and `coordinates` decide by how much it may cost more than continuous noise of the same scale.
    """

    scale: float  # parameter of the noise, in the gradient's unit
    l2: float  # sensitivity, in the same unit
    sigma: float  # the scale counted in the whole numbers that are added up
    coordinates: int  # J K numbers; twice as many for replace-one, where a record may move from one agent to another
    mechanism: str = "discrete-gaussian"


@dataclass(frozen=True)
class Hidden:
    """One round of several local updates with Gaussian noise of which only the last iterate is seen."""

    scale: float  # standard deviation of every update's noise
    l2: float  # sensitivity of every update's gradient
    updates: int  # E
    contraction: float  # c < 1, by which one noiseless update brings two iterates closer
    mechanism: str = "hidden-gaussian"


@dataclass(frozen=True)
class Sampled:
    """The clipped gradient of a Poisson sample with Gaussian noise: every record is in it with probability `rate`.

    It holds for add-remove of one record alone, and for a sample that is drawn anew every time and shown to nobody.
    """

    scale: float  # standard deviation
    l2: float  # what one record adds at most, when it is in the sample
    rate: float
    mechanism: str = "sampled-gaussian"


@dataclass(frozen=True)
class Objective:
    """The minimiser of an objective to which <b, z> was added (proof: docs/explanation/objective-perturbation.md).

    `outputs` is K for add-remove of one record. Neighbours that differ in n records have K n there: their gradients
    differ by a matrix of rank n, and what the Gaussian b has to hide it in has that many dimensions.
    """

    scale: float  # standard deviation of b; objective-l2-laplace: density ~ exp(-||b||_2 / scale)
    l2: float  # by how much one unit moves the objective's gradient at any point
    determinant: float  # the most that adding one unit raises the logarithm of the determinant of the Hessian
    outputs: int  # columns of z, times the records in which neighbours differ
    mechanism: str  # objective-gaussian or objective-l2-laplace


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
"""The event behind a mechanism's name; any other name is Nominal."""


def exposure(event: Event) -> float:
    """Sensitivity over noise: what one unit moves, in units of the noise's scale; infinite without noise."""
    return math.inf if isinstance(event, Nominal) else event.l2 / event.scale


def event_of(entry: Mapping[str, Any]) -> Event:
    """The event a ledger's entry was made from."""
    mechanism = entry["mechanism"]
    kind: Any = KINDS.get(mechanism, Nominal)
    try:
        values = {field.name: entry[field.name] for field in dataclasses.fields(kind)}
    except KeyError as error:
        raise InputError(f"a ledger entry of mechanism {mechanism} has no {error}: it is not complete") from None
    made: Event = kind(**{name: value if name == "mechanism" else _number(value) for name, value in values.items()})
    return made


def _number(value: Any) -> float:
    return value if isinstance(value, int) else float(value)


@dataclass(frozen=True, eq=False)
class BatchEvent:
    """The events of one update in all runs of a batch; compared by identity, because there are millions of them."""

    runs: tuple[Event, ...]  # [R]


def nominal_event(mechanism: str, epsilon: Array, delta: float = 0.0) -> BatchEvent:
    """The events of one update with these nominal budgets [R]; inf is a release without noise."""
    budgets = [float(str(e)) for e in to_numpy(epsilon)]  # 0.05 as it was given, not as single precision stores it
    return BatchEvent(tuple(NON_PRIVATE if math.isinf(e) else Nominal(mechanism, e, delta) for e in budgets))


@cache
def non_private(runs: int) -> BatchEvent:
    """The event of a release without noise, so that the total is infinite rather than absent."""
    return BatchEvent((NON_PRIVATE,) * runs)


class Draw(NamedTuple):
    """Noise together with the event it stands for: there is no noise without one."""

    xi: Array  # [J, R, K]
    event: BatchEvent
