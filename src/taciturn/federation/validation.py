"""Validation of the sites' replies at the coordinator: format, size, and distance from what an honest site can send."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms import Agent, Algorithm
from taciturn.algorithms.additive import Additive
from taciturn.algorithms.gradient_descent import DpGd
from taciturn.algorithms.iadmm import DpIadmm, IadmmAtW, TrustRegion
from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.algorithms.noisy_gradient import HardenedGradient, ReleasedGradient
from taciturn.errors import InputError
from taciturn.federation import MESSAGE_VERSIONS
from taciturn.federation import messages as wire
from taciturn.federation.messages import Answer, Closed, MeasureAnswer, Ready, Refusal, Reply, SumAnswer
from taciturn.objectives import Problem
from taciturn.objectives.clipping import admissible
from taciturn.objectives.regularizers import L1
from taciturn.privacy.events import non_private
from taciturn.privacy.noise import SYSTEM_NOISE, NoiseSource
from taciturn.types import Array, Shard

R = TypeVar("R", Answer, Closed, Ready)
REASON_LIMIT = 600  # characters of a site's reason that are shown
REJECTION_TAIL = 50.0  # noise never exceeds this many standard deviations (Gaussian) or scales (Laplace)
ROUNDING = 64.0  # units in the last place, for every local update


class Rejected(InputError):
    """A reply that the coordinator does not use."""


def read_reply(data: bytes, site: str, experiment: str, limit: int) -> Reply:
    """Decode a reply and check its sender and study.

    Parameters
    ----------
    data : bytes
        The reply, authenticated as coming from `site`.
    site, experiment : str
        The sender and the study that the reply must name.
    limit : int
        Maximum length in bytes.

    Raises
    ------
    Rejected
        If the reply is malformed, names another site, or belongs to another study.
    """
    if not data:
        raise Rejected("the reply is empty: something at the site held the answer back")
    try:
        reply = wire.decode_reply(data, limit)
    except wire.Malformed as error:
        raise Rejected(str(error)) from error
    if reply.site != site:
        raise Rejected(f"{site} sent it in the name of {printable(reply.site)!r}")
    if reply.experiment != experiment and not isinstance(reply, Refusal):
        raise Rejected("it belongs to another study")
    return reply


def read_answer(data: bytes, site: str, experiment: str, t: int, zero: Array) -> Answer | Refusal:
    """Return the upload of round `t`, or the site's refusal.

    Raises
    ------
    Rejected
        As in `read_reply`, or if the upload is for another round, or its shape, precision or values are invalid.
    """
    reply = _read_kind(Answer, "a round", data, site, experiment, wire.message_limit(zero.nbytes))
    if isinstance(reply, Refusal):
        return reply
    if reply.round != t:
        raise Rejected(f"it is for round {reply.round}; round {t} was requested")
    if reply.z.shape != zero.shape:
        raise Rejected(f"its shape is {reply.z.shape}; it must be {zero.shape}")
    if reply.z.dtype != zero.dtype:
        raise Rejected(f"its precision is {reply.z.dtype}; it must be {zero.dtype}")
    if not np.isfinite(reply.z).all():
        raise Rejected("its values are not all finite")
    return reply


def read_ready(
    data: bytes, site: str, experiment: str, limit: int, versions: range = MESSAGE_VERSIONS
) -> Ready | Refusal:
    """Return the reply to an invitation that offered these message versions; see `read_reply` for errors."""
    reply = _read_kind(Ready, "an invitation", data, site, experiment, limit)
    if isinstance(reply, Ready) and reply.version not in versions:
        raise Rejected(f"it chose version {reply.version!r:.12}; {versions[0]} to {versions[-1]} were offered")
    return reply


def read_closed(data: bytes, site: str, experiment: str, limit: int) -> Closed | Refusal:
    """Return the reply to the end of a study; see `read_reply` for errors."""
    return _read_kind(Closed, "the end of a study", data, site, experiment, limit)


def read_sum_answer(data: bytes, site: str, experiment: str, step: str, limit: int) -> SumAnswer | Refusal:
    """Return the reply to a step of a secure sum, or the site's refusal; see `read_reply` for errors."""
    reply = read_reply(data, site, experiment, limit)
    if isinstance(reply, Refusal):
        return reply
    if not isinstance(reply, SumAnswer) or reply.step != step:
        raise Rejected(f"it is not an answer to the step {step} of a secure sum")
    return reply


def read_measures(
    data: bytes, site: str, experiment: str, t: int, measure: MeasureRelease, records: int
) -> NDArray[np.int64] | Refusal:
    """Return a site's measures of the model of round `t`, [D], or the site's refusal.

    Parameters
    ----------
    data : bytes
        The reply, authenticated as coming from `site`.
    site, experiment : str
        The sender and the study that the reply must name.
    t : int
        The round.
    measure : MeasureRelease
        What sites release.
    records : int
        The declared maximum number of records of the site.

    Raises
    ------
    Rejected
        As in `read_reply`, or if the measures are of another round, or no honest site can have them.
    """
    numbers = measure.layout.size
    reply = read_reply(data, site, experiment, wire.message_limit(8 * numbers))
    if isinstance(reply, Refusal):
        return reply
    if not isinstance(reply, MeasureAnswer) or reply.round != t:
        raise Rejected(f"it is not an answer to the evaluation of round {t}")
    if len(reply.data) != 8 * numbers:
        raise Rejected(f"its measures have {len(reply.data)} bytes; they must have {8 * numbers}")
    found = np.frombuffer(reply.data, "<i8").astype(np.int64)
    unit, noise = 2.0 ** measure.bits[0], REJECTION_TAIL * measure.deviation(0, 1)
    low, high = float(found.min()), float(found.max())
    if low < -unit * noise or high > unit * (records + noise):
        raise Rejected(
            f"its measures are from {low / unit:.3g} to {high / unit:.3g} records; those of at most {records} records "
            f"are from {-noise:.3g} to {records + noise:.3g}"
        )
    return found


def _read_kind(kind: type[R], to: str, data: bytes, site: str, experiment: str, limit: int) -> R | Refusal:
    reply = read_reply(data, site, experiment, limit)
    if not isinstance(reply, (kind, Refusal)):
        raise Rejected(f"it is not an answer to {to}")
    return reply


def printable(text: str) -> str:
    """Return untrusted text truncated and without control characters, safe for a terminal and a log.

    Examples
    --------
    >>> printable("no\\x1b[2Jroom")
    'no?[2Jroom'
    """
    return "".join(sign if sign.isprintable() else "?" for sign in text[:REASON_LIMIT])


class Iterate(NamedTuple):
    """The iterate from which a site continues, as far as the server knows it."""

    z: Array  # [J, 1, K]
    error: float  # upper bound of the L2 distance to an honest site's own iterate


class Reach(NamedTuple):
    """The ball that contains every upload an honest site can send in a round."""

    z: Array  # [J, 1, K]  centre: the upload without records and noise
    radius: float  # in L2; inf if nothing is known about the algorithm
    after: Iterate  # the iterate from which the site continues


class _NoRelease:
    """A gradient without records and noise: only its public part."""

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        return ReleasedGradient(problem.shrinkage(z), non_private(z.shape[1]), np.zeros(z.shape[1]))


def compute_reach(algorithm: Algorithm, t: int, w: Array, lam: Array, start: Iterate) -> Reach:
    """Compute what an honest site can send in round `t`.

    Parameters
    ----------
    algorithm : Algorithm
        The study's algorithm.
    t : int
        The round.
    w, lam : ndarray of shape [J, 1, K]
        The model of the round, and the site's dual.
    start : Iterate
        The site's last iterate as far as the server knows it.
    """
    if isinstance(algorithm, Additive):
        return _additive_reach(algorithm, t, w, start)
    if not isinstance(algorithm, (DpGd, IadmmAtW, DpIadmm, TrustRegion)):
        return Reach(w, math.inf, start)
    empty = Shard(np.zeros((0, len(w)), w.dtype), np.zeros(0))
    silent: Any = replace(algorithm, release=_NoRelease())
    with np.errstate(over="ignore", invalid="ignore"):
        step = silent.agent_step(t, w, Agent(start.z, lam), empty, SYSTEM_NOISE)
        radius, last = _radius(algorithm, t, w, start.error)
        rho = float(algorithm.rho(t)[0, 0])
        size = sum(map(_l2_norm, (w, start.z, step.upload.z))) + _l2_norm(lam) / rho
    rounding = ROUNDING * algorithm.iterates_sent * float(np.finfo(w.dtype).eps) * size
    after = Iterate(step.agent.z, last + rounding)
    return Reach(step.upload.z, radius * (1.0 + 1e-6) + rounding, after)


def _additive_reach(algorithm: Additive, t: int, w: Array, start: Iterate) -> Reach:
    """Counts are a noisy gradient at 0; a later upload is a step with one, the first from where the counts put it."""
    release, problem = algorithm.release, algorithm.problem
    if not isinstance(release, HardenedGradient):
        return Reach(w, math.inf, start)
    longest, eta = gradient_norm_bound(release, problem, w.size), algorithm.eta(t)
    point = algorithm.gradient_point(t, w)
    if t <= algorithm.counting:
        z, radius = point, longest
    else:
        z = problem.feasible.project(point - eta * problem.shrinkage(point))
        radius = float(eta[0, 0]) * longest
    rounding = ROUNDING * float(np.finfo(w.dtype).eps) * (_l2_norm(point) + _l2_norm(z))
    return Reach(z, radius * (1.0 + 1e-6) + rounding, start)


def check_reach(z: Array, reach: Reach) -> None:
    """Raise `Rejected` if no honest site can send the upload `z`."""
    if math.isinf(reach.radius):
        if not admissible(z):
            raise Rejected("its values are larger than any model needs")
        return
    with np.errstate(over="ignore", invalid="ignore"):
        distance = _l2_norm(np.asarray(z, np.float64) - np.asarray(reach.z, np.float64))
    if not distance <= reach.radius:
        raise Rejected(
            f"its distance from an upload without records and noise is {distance:.3g}; under the study's terms it "
            f"cannot exceed {reach.radius:.3g}"
        )


def gradient_norm_bound(release: HardenedGradient, problem: Problem, size: int) -> float:
    """Return G, an upper bound of the L2 norm of the records' and the noise's part of a noisy gradient.

    Parameters
    ----------
    release : HardenedGradient
        Clipping and noise of the gradient.
    problem : Problem
        The study's problem, for the declared number of records.
    size : int
        Number of parameters.
    """
    records = release.records_max * float(release.clipping.l2.max()) / problem.records
    scale = float(release.mechanism.scale.max())
    gaussian = release.mechanism.kind == "gaussian"
    spread = math.sqrt(size) + REJECTION_TAIL if gaussian else REJECTION_TAIL * math.sqrt(size)
    return records + scale * spread


def _radius(algorithm: DpGd | IadmmAtW | DpIadmm | TrustRegion, t: int, w: Array, error: float) -> tuple[float, float]:
    """Bound how far the upload, and the iterate from which the site continues, can be from the server's."""
    release, problem = algorithm.release, algorithm.problem
    if not isinstance(release, HardenedGradient):
        return math.inf, math.inf
    longest = gradient_norm_bound(release, problem, w.size)
    rho = float(algorithm.rho(t)[0, 0])
    if isinstance(algorithm, TrustRegion):
        return longest / rho, longest / rho
    eta = float(algorithm.eta(t)[0, 0])
    if isinstance(algorithm, DpGd):
        return eta * longest, eta * longest
    weight, curvature = problem.beta / problem.agents, problem.regulariser.curvature
    if isinstance(algorithm, IadmmAtW):
        lipschitz, jump = 1.0 / eta, 0.0  # the regulariser's gradient is taken at w
    elif math.isfinite(curvature):
        lipschitz, jump = max(1.0 / eta, weight * curvature - 1.0 / eta), 0.0
    else:
        known = isinstance(problem.regulariser, L1)
        lipschitz, jump = 1.0 / eta, 2.0 * weight * math.sqrt(w.size) if known else math.inf
    if error == 0.0 and algorithm.iterates_sent == 1:
        jump = 0.0  # server and site have the same iterate
    errors = []
    for _ in range(algorithm.iterates_sent):
        error = (longest + lipschitz * error + jump) / (rho + 1.0 / eta)
        errors.append(error)
    return math.fsum(errors) / len(errors), errors[-1]


def _l2_norm(array: Array) -> float:
    return float(np.sqrt(np.sum(np.asarray(array, np.float64) ** 2)))
