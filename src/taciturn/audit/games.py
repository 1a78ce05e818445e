"""The distinguishing game: neighbouring data sets, and the algorithm that a run would use, in the adversary's favourite state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from taciturn.algorithms import ALGORITHMS, Algorithm
from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.algorithms.privacy_costs import BY_LENGTH
from taciturn.audit.minimisers import hastened
from taciturn.data import Facts
from taciturn.errors import InputError, unknown_name
from taciturn.planning.noise_plan import calibrate_noise
from taciturn.planning.step_sizes import StepSizes, eta_schedule, rho_schedule
from taciturn.planning.study import batches, build_algorithm, build_problem, sampling_rate
from taciturn.privacy.mechanisms import LaplaceDataDependent
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.settings import Settings, resolve
from taciturn.settings.checks import COLLUDERS
from taciturn.types import Array, Shard


class Scene(NamedTuple):
    """Two data sets an agent may hold, and the model it is sent, which is its own iterate too."""

    name: str
    w: Array  # [J, K]
    arms: tuple[Shard, Shard]

    @property
    def facts(self) -> Facts:
        """What is public about it."""
        features, outputs = self.w.shape
        return FACTS._replace(features=features, outputs=outputs)


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
OUTVOTING = tuple(30.0 * score for score in LOUD)  # so that a record almost opposite to a loud one is loud too
ALMOST = 0.995  # how nearly

SceneRecords: TypeAlias = Sequence[tuple[Sequence[float], int]]
"""Features and label of each."""


def gradient_scenes(adjacency: str, clipped: bool, paper: bool) -> list[Scene]:
    """For noise on gradients: 3 features, 3 classes.

    Mode paper reads the scale of its noise off the records: there are scenes where only the canary is loud.
    """
    canary, bystander, guard = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
    others, first, kinds = ((bystander, 0),), (canary, 0), 2 if paper else 1
    if adjacency == "replace-one":
        if not clipped:
            opposite = (-ALMOST, 0.0, math.sqrt(1.0 - ALMOST**2))
            return [_wide("opposite records", LOUD, others, [first], [(opposite, 0)])]
        labels = _wide("opposite labels", EVEN, others, [first], [(canary, 1)])
        return [labels, _wide("loud or quiet", LOUD, others, [first], [(canary, 1)])][:kinds]
    guarded = _wide("present or not", LOUD, (*others, (guard, 0)), [], [first])
    return [guarded, _wide("alone or not", LOUD, others, [], [first])][:kinds]


def upload_scenes(adjacency: str, clipped: bool) -> list[Scene]:
    """For noise on what is sent: few dimensions, in which Laplace noise of the Euclidean norm hides least."""
    if adjacency == "add-remove":
        return [_narrow("present or not", [LOUD], [], [((1.0,), 0)])]
    if clipped:
        return [_narrow("opposite labels", [EVEN], [((1.0,), 0)], [((1.0,), 1)])]
    opposite = (-ALMOST, math.sqrt(1.0 - ALMOST**2))
    return [_narrow("opposite records", [LOUD, OUTVOTING], [((1.0, 0.0), 0)], [(opposite, 0)])]


def curved_scene() -> Scene:
    """Where the canary bends the objective most: both classes are as likely."""
    return _narrow("curved or not", [EVEN], [], [((1.0,), 0)])


def _wide(name: str, scores: Sequence[float], others: SceneRecords, first: SceneRecords, second: SceneRecords) -> Scene:
    w = np.array([scores, QUIET, OUTVOTING])
    return Scene(name, w, (_shard((*others, *first), w), _shard((*others, *second), w)))


def _narrow(name: str, scores: Sequence[Sequence[float]], first: SceneRecords, second: SceneRecords) -> Scene:
    """Two classes, and nobody else."""
    w = np.array(scores)[:, :2]
    return Scene(name, w, (_shard(first, w), _shard(second, w)))


def _shard(records: SceneRecords, w: Array) -> Shard:
    features, classes = w.shape
    x = np.array([x for x, _ in records]).reshape(-1, features)
    return Shard(x, np.eye(classes)[[label for _, label in records]].reshape(-1, classes))


AUDITED = (
    "objp", "objpm", "objt", "objw", "hidden", "ceadmm", "outp", "dpgd", "dp-fedavg", "dp-fedprox", "dpsgd",
    "admm-outp", "admm-objp",
)  # fmt: skip
CLIP = 0.1  # far below any canary's gradient, so that clipping always binds
GRADIENTS = ("gradients", "hidden")  # where noise is drawn for every local update
HONEST = 2  # agents behind a sum, where nobody says how many there are beside those that collude
CURVED = 2.5  # over epsilon and I: the rho at which two fifths of a claim go into the determinant


@dataclass(frozen=True)
class Claim:
    """What is claimed of one round of one agent; in mode paper epsilon is that of one local update."""

    mode: str = "certified"
    algorithm: str = ""  # objp for one local update, objpm for more
    mechanism: str = ""  # gaussian; in mode paper laplace, its only one
    adjacency: str = "add-remove"
    local_updates: int | None = None  # E; the algorithm's own, 1 where none is named
    sampling_rate: float | None = None  # q; the algorithm's own, 1 where it takes no samples
    epsilon: float = 1.0
    delta: float = 1e-6
    noise: str = "seeded"
    trust: str = AGENTS
    colluders: int = COLLUDERS  # of secure-sum
    agents: int | None = None  # P, where a release is their sum; by default HONEST beside the colluders

    def filled(self) -> Claim:
        """With nothing left open."""
        if self.algorithm in ALGORITHMS and ALGORITHMS[self.algorithm].central:
            twin = self.algorithm.replace("erm", "admm")
            raise InputError(f"{self.algorithm} has no game of its own: its one step is {twin}'s, which can be audited")
        if self.algorithm and self.algorithm not in AUDITED:
            raise unknown_name("algorithm", self.algorithm, AUDITED)
        own = (ALGORITHMS[self.algorithm].local_updates if self.algorithm else None) or 1
        updates = own if self.local_updates is None else self.local_updates
        algorithm = self.algorithm or ("objpm" if updates > 1 else "objp")
        mechanism = self.mechanism or ("laplace" if self.mode == "paper" else "gaussian")
        if self.sampling_rate is not None and not takes_samples(algorithm):
            raise InputError(f"sampling-rate is given, but {algorithm} takes no samples: dpsgd does")
        rate = sampling_rate(Settings(), algorithm) if self.sampling_rate is None else self.sampling_rate
        filled = replace(self, algorithm=algorithm, mechanism=mechanism, local_updates=updates, sampling_rate=rate)
        return replace(filled, agents=self._agents)

    @property
    def _agents(self) -> int:
        if self.trust == AGENTS and self.agents not in (None, 1):
            raise InputError(f"agents is {self.agents}, but with trust agents every upload is a release by itself")
        if self.agents is not None and self.agents < 1:
            raise InputError(f"agents is {self.agents}: it must be at least 1")
        known = self.colluders if self.trust == SECURE_SUM else 0
        return self.agents or (1 if self.trust == AGENTS else HONEST + known)

    @property
    def honest(self) -> int:
        """How many agents' noise the adversary does not know."""
        agents = self._agents
        return agents - self.colluders if self.trust == SECURE_SUM else agents

    @property
    def noise_on(self) -> str:
        """What the noise is added to."""
        return ALGORITHMS[self.algorithm].noise_on


def takes_samples(algorithm: str) -> bool:
    """Whether what it promises hangs on random samples of the records."""
    return algorithm in AUDITED and ALGORITHMS[algorithm].noise_on == "samples"


class Game(NamedTuple):
    """A scene with the algorithm that plays it."""

    scene: Scene
    c: float  # the share of an iterate that the next one keeps
    rho: float
    eta: float
    algorithm: Algorithm
    kind: str  # of the noise: gaussian, laplace or l2-laplace
    honest: int = 1  # agents whose uploads a release is the sum of


def games(claim: Claim) -> list[Game]:
    """Every game the claim is put to; the strongest attack counts."""
    claim = claim.filled()
    kind = claim.mechanism if claim.noise_on in GRADIENTS else BY_LENGTH[claim.mechanism]
    return [
        Game(scene, c, *steps(c), hastened(build(claim, _facts(claim, scene), *steps(c))), kind, claim.honest)
        for scene, c in _scenes(claim)
    ]


def _facts(claim: Claim, scene: Scene) -> Facts:
    return scene.facts._replace(agents=claim.agents or 1)


def steps(c: float) -> tuple[float, float]:
    """rho and eta with which an iterate keeps the share c = 1 / (1 + rho eta) of the one before."""
    return 1.0 / c - 1.0, 1.0


def build(claim: Claim, facts: Facts, rho: float, eta: float) -> Algorithm:
    """The algorithm of `taciturn run` with these settings, made for one run."""
    settings = _settings(claim, rho, eta)
    (batch,) = batches(settings)
    problem = build_problem(settings, facts.name, facts.classes, facts.total_records, facts.agents)
    pace = StepSizes(rho_schedule(settings, batch.epsilon), eta_schedule(settings, batch.epsilon))
    if claim.mode == "paper":
        return build_algorithm(settings, problem, batch, *pace, PaperGradient(LaplaceDataDependent(batch.epsilon)))
    protection = calibrate_noise(settings, facts, problem, batch, pace)
    return build_algorithm(settings, problem, batch, *pace, protection.release, **protection.cover)


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
    if takes_samples(claim.algorithm):
        common["sampling_rate"] = claim.sampling_rate
    if claim.mode == "paper":
        if claim.noise_on == "uploads":
            raise InputError(
                f"{claim.algorithm} is audited in mode certified alone: its paper's noise is not Laplace's"
            )
        if (claim.mechanism, claim.noise) != ("laplace", "seeded"):
            raise InputError(f"{claim.noise} {claim.mechanism} noise needs mode certified: paper has seeded laplace")
        return resolve(common, {"epsilon": claim.epsilon})
    certified: dict[str, Any] = {
        "mechanism": claim.mechanism, "adjacency": claim.adjacency, "noise": claim.noise, "clip": CLIP,
        "trust": claim.trust, "colluders": claim.colluders,
    }  # fmt: skip
    clip_l1 = CLIP if claim.mechanism == "laplace" and claim.noise_on == "gradients" else math.inf
    return resolve(common, {"total_epsilon": claim.epsilon, "clip_l1": clip_l1}, certified)


def _scenes(claim: Claim) -> list[tuple[Scene, float]]:
    """Scenes, each with the c that are tried in it."""
    if claim.adjacency not in ADJACENCIES:
        raise unknown_name("adjacency", claim.adjacency, ADJACENCIES)
    clipped = not ALGORITHMS[claim.algorithm].bounded
    if claim.noise_on in GRADIENTS:
        scenes = gradient_scenes(claim.adjacency, clipped, claim.mode == "paper")
    else:
        scenes = upload_scenes(claim.adjacency, clipped)
    played = [(scene, c) for scene in scenes for c in _shares(claim)]
    if claim.noise_on == "objectives" and claim.adjacency == "add-remove":
        rho = CURVED / (claim.epsilon * scenes[0].facts.total_records)
        played.append((curved_scene(), 1.0 / (1.0 + rho)))
    return played


def _shares(claim: Claim) -> Sequence[float]:
    """The c that are tried.

    A mean of E iterates tells most when c is small, for then it is the mean of E independent releases of one gradient;
    a last iterate tells of the earlier ones by c. For one update, and for steps from w, c means nothing.
    """
    if claim.local_updates == 1 or claim.algorithm == "dp-fedavg":
        return (0.5,)
    if claim.algorithm in ("hidden", "dp-fedprox"):
        return (0.1, 0.5, 0.9)
    return (0.01,) if claim.mode == "paper" else (0.01, 0.5)
