"""The game: two neighbouring data sets, and the algorithm that a run would use, in the adversary's favourite state.

The adversary knows everything but which of the two data sets an agent holds, and has chosen all else: the model, the
dual (zero), the other records. Everything is small (3 features, 3 classes), so that many releases can be made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tacit.algorithms import ALGORITHMS, Algorithm
from tacit.algorithms.releases import Release
from tacit.algorithms.releases.paper import PaperRelease
from tacit.data import Facts
from tacit.errors import InputError, no_such
from tacit.privacy.mechanisms.laplace_data_dependent import LaplaceDataDependent
from tacit.privacy.sensitivity import ADJACENCIES
from tacit.settings import Settings, resolve
from tacit.study.batches import batches
from tacit.study.build import build_algorithm, build_problem, local_updates
from tacit.study.protect import protect
from tacit.study.schedules import eta_schedule, rho_schedule
from tacit.types import Array, Shard

AUDITED = ("objp", "objpm", "objt", "hidden")
CLIP = 0.1  # far below any canary's gradient, so that clipping always binds
FACTS = Facts(
    name="audit",
    features=3,
    outputs=3,
    classes=True,
    agents=1,
    total_records=1000,  # so that one release hardly moves a score, and the canary's gradient stays what it is
    records_max=3,
    unit="record",
    max_records=1,
    published=False,
    test="none",
)

LOUD = (-10.0, 10.0, 0.0)  # the scores of a record of class 0 that is taken for class 1: ||h - y||_2 = sqrt(2)
EVEN = (0.0, 0.0, -20.0)  # torn between classes 0 and 1: with either label, residuals are opposite
QUIET = (3.0, -3.0, -3.0)  # a record of class 0 that is recognised: its gradient is small
CANARY, BYSTANDER, GUARD = np.eye(3)  # features
OPPOSITE = np.array([-0.995, 0.0, math.sqrt(1.0 - 0.995**2)])  # almost -CANARY; the last feature makes it loud


@dataclass(frozen=True)
class Claim:
    """What is claimed of one round of one agent; in mode paper epsilon is that of one local update."""

    mode: str = "certified"
    algorithm: str = ""  # objp for one local update, objpm for more
    mechanism: str = ""  # gaussian; in mode paper laplace, its only one
    adjacency: str = "add-remove"
    local_updates: int | None = None  # E; the algorithm's own, 1 where none is named
    epsilon: float = 1.0
    delta: float = 1e-6
    noise: str = "seeded"

    def filled(self) -> Claim:
        """With nothing left open."""
        if self.algorithm and self.algorithm not in AUDITED:
            raise no_such("algorithm", self.algorithm, AUDITED)
        own = (ALGORITHMS[self.algorithm].local_updates if self.algorithm else None) or 1
        updates = own if self.local_updates is None else self.local_updates
        algorithm = self.algorithm or ("objpm" if updates > 1 else "objp")
        mechanism = self.mechanism or ("laplace" if self.mode == "paper" else "gaussian")
        return replace(self, algorithm=algorithm, mechanism=mechanism, local_updates=updates)


class Scene(NamedTuple):
    """Two data sets an agent may hold, and the model it is sent, which is its own iterate too."""

    name: str
    w: Array  # [J, K]
    arms: tuple[Shard, Shard]


class Game(NamedTuple):
    """A scene with the algorithm that plays it."""

    scene: Scene
    c: float  # the share of an iterate that the next one keeps
    rho: float
    eta: float
    algorithm: Algorithm
    kind: str  # of the noise: gaussian or laplace


def games(claim: Claim) -> list[Game]:
    """Every game the claim is put to; the strongest attack counts."""
    claim = claim.filled()
    return [
        Game(scene, c, *steps(c), build(claim, *steps(c)), claim.mechanism)
        for scene in _scenes(claim)
        for c in _shares(claim)
    ]


def steps(c: float) -> tuple[float, float]:
    """rho and eta with which an iterate keeps the share c = 1 / (1 + rho eta) of the one before."""
    return 1.0 / c - 1.0, 1.0


def build(claim: Claim, rho: float, eta: float) -> Algorithm:
    """The algorithm of `tacit run` with these settings; made for one run, it broadcasts over many."""
    settings = _settings(claim, rho, eta)
    (batch,) = batches(settings)
    problem = build_problem(settings, FACTS.name, FACTS.classes, FACTS.total_records, FACTS.agents)
    schedules = rho_schedule(settings, batch.epsilon), eta_schedule(settings, batch.epsilon)
    release: Release = PaperRelease(LaplaceDataDependent(batch.epsilon))
    if claim.mode == "certified":
        updates = local_updates(settings, claim.algorithm)
        release = protect(settings, FACTS, problem, batch, *schedules, updates).release
    return build_algorithm(settings, problem, batch, *schedules, release)


def _settings(claim: Claim, rho: float, eta: float) -> Settings:
    if not 0.0 < claim.epsilon < math.inf:
        raise InputError(f"claim is {claim.epsilon:g}: it must be above 0 and finite")
    common: dict[str, Any] = {
        "mode": claim.mode, "algorithm": claim.algorithm, "delta": claim.delta,
        "loss": "softmax", "regulariser": "l2", "beta": 0.0, "rounds": 1, "rho": rho, "eta": eta, "record_bound": 1.0,
        "radius_scale": 1e9,  # objt: a trust region that never binds
    }  # fmt: skip
    if ALGORITHMS[claim.algorithm].local_updates or claim.local_updates != 1:
        common["local_updates"] = claim.local_updates
    if claim.mode == "paper":
        if (claim.mechanism, claim.noise) != ("laplace", "seeded"):
            raise InputError(f"{claim.noise} {claim.mechanism} noise needs mode certified: paper has seeded laplace")
        return resolve(common, {"epsilon": claim.epsilon})
    certified = {"mechanism": claim.mechanism, "adjacency": claim.adjacency, "noise": claim.noise, "clip": CLIP}
    clip_l1 = CLIP if claim.mechanism == "laplace" else math.inf
    return resolve(common, {"total_epsilon": claim.epsilon, "clip_l1": clip_l1}, certified)


def _shares(claim: Claim) -> Sequence[float]:
    """The c that are tried.

    A mean of E iterates tells most when c is small, for then it is the mean of E independent releases of one gradient;
    a last iterate tells of the earlier ones by c. For one update c means nothing.
    """
    if claim.local_updates == 1:
        return (0.5,)
    if claim.algorithm == "hidden":
        return (0.1, 0.5, 0.9)
    return (0.01,) if claim.mode == "paper" else (0.01, 0.5)


def _scenes(claim: Claim) -> list[Scene]:
    if claim.adjacency not in ADJACENCIES:
        raise no_such("adjacency", claim.adjacency, ADJACENCIES)
    others, canary = ((BYSTANDER, 0),), (CANARY, 0)
    if claim.adjacency == "replace-one":
        if claim.algorithm == "hidden":
            return [_scene("opposite records", LOUD, others, [canary], [(OPPOSITE, 0)])]
        opposite = _scene("opposite labels", EVEN, others, [canary], [(CANARY, 1)])
        return [opposite, _scene("loud or quiet", LOUD, others, [canary], [(CANARY, 1)])][: _kinds(claim)]
    guarded = _scene("present or not", LOUD, (*others, (GUARD, 0)), [], [canary])
    return [guarded, _scene("alone or not", LOUD, others, [], [canary])][: _kinds(claim)]


def _kinds(claim: Claim) -> int:
    """Mode paper reads the scale of its noise off the records: there are scenes where only the canary is loud."""
    return 2 if claim.mode == "paper" else 1


def _scene(name: str, scores: Sequence[float], others: Any, first: Any, second: Any) -> Scene:
    """The last feature is so loud that it outvotes the first: a record almost opposite to the canary is loud too."""
    w = np.array([scores, QUIET, 30.0 * np.array(LOUD)])
    return Scene(name, w, (_shard([*others, *first]), _shard([*others, *second])))


def _shard(records: Sequence[tuple[Array, int]]) -> Shard:
    return Shard(np.array([x for x, _ in records]), np.eye(3)[[label for _, label in records]])
