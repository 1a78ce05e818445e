"""Validation of uploads at the server: form, size, and how far an honest upload can be."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from taciturn.algorithms import Agent, Algorithm
from taciturn.algorithms.gradient_descent import DpGd
from taciturn.algorithms.iadmm import DpIadmm, IadmmAtW, TrustRegion
from taciturn.algorithms.noisy_gradient import HardenedGradient, ReleasedGradient
from taciturn.errors import InputError
from taciturn.federation import SPEAKS
from taciturn.federation import messages as wire
from taciturn.federation.messages import Answer, Closed, Ready, Refusal, Reply
from taciturn.objectives import Problem
from taciturn.objectives.clipping import admissible
from taciturn.objectives.regularizers import L1
from taciturn.privacy.events import non_private
from taciturn.privacy.noise import SYSTEM_NOISE, NoiseSource
from taciturn.types import Array, Shard

REASON_LIMIT = 600  # characters of a reason that are shown


class Rejected(InputError):
    """An answer that is not averaged."""


def read_reply(data: bytes, site: str, experiment: str, zero: Array) -> Reply:
    """What `site` really said, where it said something of this study in its own name."""
    if not data:
        raise Rejected("the site's engine sent no content: something kept the answer back there")
    try:
        found = wire.reply(data, wire.HEADER_LIMIT + 1024 + zero.nbytes)
    except wire.Malformed as error:
        raise Rejected(str(error)) from None
    if found.site != site:
        raise Rejected(f"it was sent by {site} in the name of {shown(found.site)!r}")
    if found.experiment != experiment and not isinstance(found, Refusal):
        raise Rejected("it is of another study")
    return found


def read_answer(data: bytes, site: str, experiment: str, t: int, zero: Array) -> Answer | Refusal:
    """An upload of round t, or the reason there is none."""
    found = read_reply(data, site, experiment, zero)
    if isinstance(found, Refusal):
        return found
    if not isinstance(found, Answer):
        raise Rejected("it is not an answer to a round")
    if found.round != t:
        raise Rejected(f"it is of round {found.round}, and round {t} was asked for")
    if found.z.shape != zero.shape:
        raise Rejected(f"its shape is {found.z.shape}, and parameters have {zero.shape}")
    if found.z.dtype != zero.dtype:
        raise Rejected(f"its numbers are {found.z.dtype}, and parameters are {zero.dtype}")
    if not np.isfinite(found.z).all():
        raise Rejected("its numbers are not all finite")
    return found


def read_ready(data: bytes, site: str, experiment: str, zero: Array, speaks: range = SPEAKS) -> Ready | Refusal:
    """The answer to an invitation that offered the versions in `speaks`."""
    found = read_reply(data, site, experiment, zero)
    if not isinstance(found, (Ready, Refusal)):
        raise Rejected("it is not an answer to an invitation")
    if isinstance(found, Ready) and found.version not in speaks:
        raise Rejected(f"it chose protocol {found.version!r:.12}, and {speaks[0]} to {speaks[-1]} were offered")
    return found


def read_closed(data: bytes, site: str, experiment: str, zero: Array) -> Closed | Refusal:
    """The answer to the end of a study."""
    found = read_reply(data, site, experiment, zero)
    if not isinstance(found, (Closed, Refusal)):
        raise Rejected("it is not an answer to the end of a study")
    return found


def shown(text: str) -> str:
    """Words from elsewhere, fit for a terminal and a log."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:REASON_LIMIT])


STRAY = 50.0  # u above
ROUNDING = 64.0  # units in the last place, for every update


class Iterate(NamedTuple):
    """The iterate that a site goes on from, as far as the server knows it."""

    z: Array  # [J, 1, K]
    stray: float  # an honest site's own is within this


class Reach(NamedTuple):
    """What an honest site may send in a round."""

    z: Array  # [J, 1, K]  what it would send without records and noise
    radius: float  # and how far its upload may be from that, in L2; inf: nothing is known of the method
    after: Iterate


class _Silent:
    """A release without records and noise; what is left is public."""

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        return ReleasedGradient(problem.shrinkage(z), non_private(z.shape[1]), np.zeros(z.shape[1]))


def reach(algorithm: Algorithm, t: int, w: Array, lam: Array, start: Iterate) -> Reach:
    """What a site with this dual and last iterate may send in round t."""
    if not isinstance(algorithm, (DpGd, IadmmAtW, DpIadmm, TrustRegion)):
        return Reach(w, math.inf, start)
    empty = Shard(np.zeros((0, len(w)), w.dtype), np.zeros(0))
    quiet: Any = replace(algorithm, release=_Silent())
    with np.errstate(over="ignore", invalid="ignore"):
        step = quiet.agent_step(t, w, Agent(start.z, lam), empty, SYSTEM_NOISE)
        radius, last = _radius(algorithm, t, w, start.stray)
        rho = float(algorithm.rho(t)[0, 0])
        size = sum(_length(one) for one in (w, start.z, step.upload.z)) + _length(lam) / rho
    rounding = ROUNDING * algorithm.iterates_sent * float(np.finfo(w.dtype).eps) * size
    after = Iterate(step.agent.z, last + rounding)
    return Reach(step.upload.z, radius * (1.0 + 1e-6) + rounding, after)


def check_reach(z: Array, reach: Reach) -> None:
    """Refuse an upload that no honest site sends."""
    if math.isinf(reach.radius):
        if not admissible(z):
            raise Rejected("its numbers are beyond what any model needs")
        return
    with np.errstate(over="ignore", invalid="ignore"):
        far = _length(np.asarray(z, np.float64) - np.asarray(reach.z, np.float64))
    if not far <= reach.radius:
        raise Rejected(
            f"it is {far:.3g} away from what the site would send without records and noise, and records and noise "
            f"within the study's terms take it no farther than {reach.radius:.3g}"
        )


def gradient_length(release: HardenedGradient, problem: Problem, numbers: int) -> float:
    """G: how long the part of a noisy gradient is that records and noise make, in L2; longer ones never happen."""
    records = release.records_max * float(release.clipping.l2.max()) / problem.records
    scale = float(release.mechanism.scale.max())
    spread = math.sqrt(numbers) + STRAY if release.mechanism.kind == "gaussian" else STRAY * math.sqrt(numbers)
    return records + scale * spread


def _radius(algorithm: DpGd | IadmmAtW | DpIadmm | TrustRegion, t: int, w: Array, stray: float) -> tuple[float, float]:
    """How far the upload, and the iterate the site goes on from, may be from the server's."""
    release, problem = algorithm.release, algorithm.problem
    if not isinstance(release, HardenedGradient):
        return math.inf, math.inf
    longest = gradient_length(release, problem, w.size)
    rho = float(algorithm.rho(t)[0, 0])
    if isinstance(algorithm, TrustRegion):
        return longest / rho, longest / rho
    eta = float(algorithm.eta(t)[0, 0])
    if isinstance(algorithm, DpGd):
        return eta * longest, eta * longest
    weight, curvature = problem.beta / problem.agents, problem.regulariser.curvature
    if isinstance(algorithm, IadmmAtW):
        steepness, kinks = 1.0 / eta, 0.0  # the regulariser's part is taken at w
    elif math.isfinite(curvature):
        steepness, kinks = max(1.0 / eta, weight * curvature - 1.0 / eta), 0.0
    else:
        known = isinstance(problem.regulariser, L1)
        steepness, kinks = 1.0 / eta, 2.0 * weight * math.sqrt(w.size) if known else math.inf
    if stray == 0.0 and algorithm.iterates_sent == 1:
        kinks = 0.0  # both have the same iterate
    apart = []
    for _ in range(algorithm.iterates_sent):
        stray = (longest + steepness * stray + kinks) / (rho + 1.0 / eta)
        apart.append(stray)
    return math.fsum(apart) / len(apart), apart[-1]


def _length(array: Array) -> float:
    return float(np.sqrt(np.sum(np.asarray(array, np.float64) ** 2)))
