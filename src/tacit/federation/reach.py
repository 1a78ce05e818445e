"""How far an honest upload can be from what the server computes by itself: anything farther is not averaged.

Everything that a site adds to what the server knows is one noisy gradient for each local update. At most `records_max`
records enter it, each clipped to `l2`, all divided by the declared number of records I; the regulariser's part is
public. So without its noise it is at most records_max l2 / I long. The noise has a public scale s in each of d numbers.
A discrete Gaussian is sub-Gaussian with its scale, so the length of d of them exceeds s (sqrt(d) + u) with probability
at most exp(-u^2 / 2) (Hsu, Kakade and Zhang 2012). A discrete Laplace variable exceeds u s with probability at most
2 exp(-u), and so the length of d of them u s sqrt(d) with probability at most 2 d exp(-u). With u = 50 that is below
1e-540 and below d 4e-22 for an upload: never.

The server takes the site's step itself, with the same w, dual and last iterate, without records and without noise. All
projections are onto convex sets, which brings two points no farther apart. So what an honest site sends is at most this
far from it, with G for the length above and d_e for how far apart the two iterates are before update e:

- dpgd: eta G;
- objw, objp, objpm: d_(e+1) = (G + q d_e) / (rho + 1/eta), and the mean of d_2 ... d_(E+1) where E iterates are
  averaged. q is the Lipschitz constant of v -> v / eta - (beta/P) r'(v): 1/eta unless the regulariser is steep. The
  kinks of the l1 norm add 2 (beta/P) sqrt(d). d_1 is 0 where one iterate is sent, for it is known; else it goes on from
  the last round that was accepted;
- objt: G / rho.

Rounding in the study's precision comes on top. A site that stays within this acts as one whose records are as extreme
as the clip allows: it can spoil a model, as any bad data can, but not take it out of all bounds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tacit.algorithms import Agent, Algorithm
from tacit.algorithms.dp_iadmm import DpIadmm
from tacit.algorithms.dpgd import DpGd
from tacit.algorithms.objt import TrustRegion
from tacit.algorithms.objw import IadmmAtW
from tacit.algorithms.releases import Released
from tacit.algorithms.releases.hardened import HardenedRelease
from tacit.federation.uploads import Rejected
from tacit.privacy.events import non_private
from tacit.privacy.noise import SYSTEM_NOISE, NoiseSource
from tacit.problems import Problem
from tacit.problems.limits import admissible
from tacit.problems.regularisers.l1 import L1
from tacit.types import Array, Shard

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

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> Released:
        return Released(problem.shrinkage(z), non_private(z.shape[1]), np.zeros(z.shape[1]))


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


def gradient_length(release: HardenedRelease, problem: Problem, numbers: int) -> float:
    """G: how long the part of a noisy gradient is that records and noise make, in L2; longer ones never happen."""
    records = release.records_max * float(release.limit.l2.max()) / problem.records
    scale = float(release.mechanism.scale.max())
    spread = math.sqrt(numbers) + STRAY if release.mechanism.kind == "gaussian" else STRAY * math.sqrt(numbers)
    return records + scale * spread


def _radius(algorithm: DpGd | IadmmAtW | DpIadmm | TrustRegion, t: int, w: Array, stray: float) -> tuple[float, float]:
    """How far the upload, and the iterate the site goes on from, may be from the server's."""
    release, problem = algorithm.release, algorithm.problem
    if not isinstance(release, HardenedRelease):
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
