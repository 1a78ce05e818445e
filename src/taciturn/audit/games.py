"""The distinguishing game: two neighbouring data sets, and a run's algorithm in the worst-case state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from taciturn.algorithms import ALGORITHMS, Algorithm
from taciturn.algorithms.privacy_costs import L2_MECHANISMS
from taciturn.audit.minimisers import with_batched_solver
from taciturn.data import Facts
from taciturn.errors import InputError, unknown_name
from taciturn.planning.paper_mode import paper_part
from taciturn.planning.plan import plan_batch
from taciturn.planning.study import batches, build_problem, sampling_rate
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.settings import Settings, resolve
from taciturn.settings.checks import COLLUDERS
from taciturn.types import Array, ColumnBlock, Shard


class Scene(NamedTuple):
    """Two data sets that an agent may hold, and the model that it receives, which is also its own iterate.

    Parameters
    ----------
    name : str
        The name of the scene.
    w : Array, [J, K]
        The common model.
    arms : tuple of Shard
        The two neighbouring data sets.
    """

    name: str
    w: Array
    arms: tuple[Shard, Shard]

    @property
    def facts(self) -> Facts:
        """The public facts about the data sets; as a table they have one column, with a level for every feature."""
        features, outputs = self.w.shape
        return FACTS._replace(features=features, outputs=outputs, blocks=(ColumnBlock("categories", features, False),))


FACTS = Facts(
    name="audit",
    features=3,
    outputs=3,
    classes=True,
    agents=1,
    total_records=1000,  # so that one release hardly moves a score, and the canary's gradient stays the same
    records_max=3,
    unit="record",
    max_records=1,
    published=True,  # so that no agent has more records than declared: a record that is added pushes none out
    test="none",
)

LOUD = (-10.0, 10.0, 0.0)  # the scores of a record of class 0 that is classified as 1: ||h - y||_2 = sqrt(2)
EVEN = (0.0, 0.0, -20.0)  # undecided between classes 0 and 1: with either label, residuals are opposite
QUIET = (3.0, -3.0, -3.0)  # a record of class 0 that is classified correctly: its gradient is small
OUTVOTING = tuple(30.0 * score for score in LOUD)  # so that a record almost opposite to a loud one is loud too
ALMOST = 0.995  # how nearly opposite

SceneRecords: TypeAlias = Sequence[tuple[Sequence[float], int]]
"""Features and label of each record."""


def gradient_scenes(adjacency: str, clipped: bool, paper: bool) -> list[Scene]:
    """Return the scenes for noise on gradients, with 3 features and 3 classes.

    Mode paper computes the scale of its noise from the records, so it has scenes in which the canary's gradient is the
    only long one.
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


def count_scenes(adjacency: str) -> list[Scene]:
    """Return the scenes for methods whose first release counts records by their features."""
    canary, bystander, guard = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
    if adjacency == "replace-one":
        return [_wide("one level or another", LOUD, ((bystander, 0),), [(canary, 0)], [(guard, 0)])]
    return gradient_scenes(adjacency, clipped=True, paper=False)


def upload_scenes(adjacency: str, clipped: bool) -> list[Scene]:
    """Return the scenes for noise on uploads: few dimensions, in which l2-laplace noise hides least."""
    if adjacency == "add-remove":
        return [_narrow("present or not", [LOUD], [], [((1.0,), 0)])]
    if clipped:
        return [_narrow("opposite labels", [EVEN], [((1.0,), 0)], [((1.0,), 1)])]
    opposite = (-ALMOST, math.sqrt(1.0 - ALMOST**2))
    return [_narrow("opposite records", [LOUD, OUTVOTING], [((1.0, 0.0), 0)], [(opposite, 0)])]


def curved_scene() -> Scene:
    """Return the scene in which the canary changes the objective's curvature most: both classes are equally likely."""
    return _narrow("curved or not", [EVEN], [], [((1.0,), 0)])


def _wide(name: str, scores: Sequence[float], others: SceneRecords, first: SceneRecords, second: SceneRecords) -> Scene:
    w = np.array([scores, QUIET, OUTVOTING])
    return Scene(name, w, (_shard((*others, *first), w), _shard((*others, *second), w)))


def _narrow(name: str, scores: Sequence[Sequence[float]], first: SceneRecords, second: SceneRecords) -> Scene:
    """Return a scene of two classes and no other records."""
    w = np.array(scores)[:, :2]
    return Scene(name, w, (_shard(first, w), _shard(second, w)))


def _shard(records: SceneRecords, w: Array) -> Shard:
    features, classes = w.shape
    x = np.array([x for x, _ in records]).reshape(-1, features)
    return Shard(x, np.eye(classes)[[label for _, label in records]].reshape(-1, classes))


AUDITED = (
    "objp", "objpm", "objt", "objw", "hidden", "ceadmm", "outp", "dpgd", "dp-fedavg", "dp-fedprox", "dpsgd",
    "admm-outp", "admm-objp", "additive",
)  # fmt: skip
COUNTS_FIRST = "additive"  # its only round in a game is one of counts, which has the noise of every round
CLIP = 0.1  # far below any canary's gradient, so that clipping always has an effect
GRADIENTS = ("gradients", "hidden")  # noise that is drawn for every local update
HONEST = 2  # the default number of honest agents behind a sum
CURVED = 2.5  # over epsilon and I: the rho at which two fifths of a claim are spent on the determinant


@dataclass(frozen=True)
class Claim:
    """A privacy claim about one round of one agent.

    Parameters
    ----------
    mode : str
        "certified", or "paper", where epsilon is that of one local update.
    algorithm : str
        One of `AUDITED`; by default objp for one local update and objpm for more.
    mechanism : str
        By default gaussian; in mode paper laplace, its only one.
    adjacency : str
        A key of `ADJACENCIES`.
    local_updates : int, optional
        E; by default the algorithm's, else 1.
    sampling_rate : float, optional
        q; by default the algorithm's, else 1.
    epsilon, delta : float
        The claim.
    noise : str
        "seeded" or "hardened".
    trust : str
        "agents", "secure-sum" or "server".
    colluders, missing : int
        Of secure-sum: agents that reveal what they know, and agents that may be missing from the sum.
    agents : int, optional
        P, if a release is their sum; by default `HONEST` more than those.

    Examples
    --------
    >>> Claim(local_updates=3).filled().algorithm
    'objpm'
    """

    mode: str = "certified"
    algorithm: str = ""
    mechanism: str = ""
    adjacency: str = "add-remove"
    local_updates: int | None = None
    sampling_rate: float | None = None
    epsilon: float = 1.0
    delta: float = 1e-6
    noise: str = "seeded"
    trust: str = AGENTS
    colluders: int = COLLUDERS
    missing: int = 0
    agents: int | None = None

    def filled(self) -> Claim:
        """Return the claim with all defaults filled in.

        Raises
        ------
        InputError
            If the algorithm cannot be audited, or a field contradicts another.
        """
        if self.algorithm in ALGORITHMS and ALGORITHMS[self.algorithm].central:
            twin = self.algorithm.replace("erm", "admm")
            raise InputError(
                f"{self.algorithm} cannot be audited itself: its single step is the step of {twin}, so audit {twin}"
            )
        if self.algorithm and self.algorithm not in AUDITED:
            raise unknown_name("algorithm", self.algorithm, AUDITED)
        default = (ALGORITHMS[self.algorithm].local_updates if self.algorithm else None) or 1
        updates = default if self.local_updates is None else self.local_updates
        algorithm = self.algorithm or ("objpm" if updates > 1 else "objp")
        mechanism = self.mechanism or ("laplace" if self.mode == "paper" else "gaussian")
        if self.sampling_rate is not None and not takes_samples(algorithm):
            raise InputError(f"sampling-rate is given, but {algorithm} takes no samples; dpsgd does")
        rate = sampling_rate(Settings(), algorithm) if self.sampling_rate is None else self.sampling_rate
        filled = replace(self, algorithm=algorithm, mechanism=mechanism, local_updates=updates, sampling_rate=rate)
        return replace(filled, agents=self._agents)

    @property
    def _agents(self) -> int:
        if self.trust == AGENTS and self.agents not in (None, 1):
            raise InputError(f"agents is {self.agents}, but with trust agents every upload is a release; omit it")
        if self.agents is not None and self.agents < 1:
            raise InputError(f"agents is {self.agents}; it must be at least 1")
        return self.agents or (1 if self.trust == AGENTS else HONEST + self._lost_agents)

    @property
    def _lost_agents(self) -> int:
        """The agents whose noise does not protect: the adversary knows it, or it is not in the sum."""
        return self.colluders + self.missing if self.trust == SECURE_SUM else 0

    @property
    def honest(self) -> int:
        """The number of agents whose noise is in the sum and unknown to the adversary."""
        return self._agents - self._lost_agents

    @property
    def noise_on(self) -> str:
        """What the noise is added to; see `AlgorithmSpec`."""
        return ALGORITHMS[self.algorithm].noise_on


def takes_samples(algorithm: str) -> bool:
    """Return whether an audited algorithm's guarantee depends on random samples of the records."""
    return algorithm in AUDITED and ALGORITHMS[algorithm].noise_on == "samples"


class Game(NamedTuple):
    """A scene with the algorithm that plays it.

    Parameters
    ----------
    scene : Scene
        The data sets and the model.
    c : float
        The share of an iterate that the next one keeps.
    rho, eta : float
        Penalty and proximity.
    algorithm : Algorithm
        The algorithm, built for one run.
    kind : str
        The noise: "gaussian", "laplace" or "l2-laplace".
    honest : int
        The agents whose uploads a release sums.
    """

    scene: Scene
    c: float
    rho: float
    eta: float
    algorithm: Algorithm
    kind: str
    honest: int = 1


def games(claim: Claim) -> list[Game]:
    """Return every game for a claim; the strongest attack counts.

    Parameters
    ----------
    claim : Claim
        The claim under audit.

    Returns
    -------
    list of Game

    Raises
    ------
    InputError
        If the claim cannot be audited.
    """
    claim = claim.filled()
    kind = claim.mechanism if claim.noise_on in GRADIENTS else L2_MECHANISMS[claim.mechanism]
    found = []
    for scene, c in _scenes(claim):
        rho, eta = 1.0 / c - 1.0, 1.0  # so that c = 1 / (1 + rho eta)
        algorithm = with_batched_solver(_build(claim, scene.facts._replace(agents=claim.agents or 1), rho, eta))
        found.append(Game(scene, c, rho, eta, algorithm, kind, claim.honest))
    return found


def _build(claim: Claim, facts: Facts, rho: float, eta: float) -> Algorithm:
    """Build the algorithm that `taciturn run` would use with these settings, for one run."""
    settings = _settings(claim, rho, eta)
    (batch,) = batches(settings)
    problem = build_problem(settings, facts.name, facts.classes, facts.total_records, facts.agents)
    if claim.mode == "paper":
        return paper_part(settings, problem, batch).algorithm
    return plan_batch(settings, facts, problem, batch).algorithm


def _settings(claim: Claim, rho: float, eta: float) -> Settings:
    if not 0.0 < claim.epsilon < math.inf:
        raise InputError(f"claim is {claim.epsilon:g}; it must be positive and finite")
    common: dict[str, object] = {
        "mode": claim.mode, "algorithm": claim.algorithm, "delta": claim.delta,
        "loss": "softmax", "regulariser": "l2", "beta": 0.0, "rounds": 1, "rho": rho, "eta": eta, "record_bound": 1.0,
        "radius_scale": 1e9,  # objt: a trust region without effect
    }  # fmt: skip
    if ALGORITHMS[claim.algorithm].local_updates or claim.local_updates != 1:
        common["local_updates"] = claim.local_updates
    if takes_samples(claim.algorithm):
        common["sampling_rate"] = claim.sampling_rate
    if claim.mode == "paper":
        if claim.noise_on == "uploads":
            raise InputError(
                f"{claim.algorithm} can be audited in mode certified only; its noise in mode paper is not Laplace"
            )
        if (claim.mechanism, claim.noise) != ("laplace", "seeded"):
            raise InputError(f"{claim.noise} {claim.mechanism} noise needs mode certified; paper has seeded laplace")
        return resolve(common, {"epsilon": claim.epsilon})
    certified: dict[str, object] = {
        "mechanism": claim.mechanism, "adjacency": claim.adjacency, "noise": claim.noise, "clip": CLIP,
        "trust": claim.trust, "colluders": claim.colluders, "missing": claim.missing,
    }  # fmt: skip
    clip_l1 = CLIP if claim.mechanism == "laplace" and claim.noise_on == "gradients" else math.inf
    return resolve(common, {"total_epsilon": claim.epsilon, "clip_l1": clip_l1}, certified)


def _scenes(claim: Claim) -> list[tuple[Scene, float]]:
    """Return scenes, each with every c that is tried in it."""
    if claim.adjacency not in ADJACENCIES:
        raise unknown_name("adjacency", claim.adjacency, ADJACENCIES)
    clipped = not ALGORITHMS[claim.algorithm].scales_records
    if claim.algorithm == COUNTS_FIRST:
        scenes = count_scenes(claim.adjacency)
    elif claim.noise_on in GRADIENTS:
        scenes = gradient_scenes(claim.adjacency, clipped, claim.mode == "paper")
    else:
        scenes = upload_scenes(claim.adjacency, clipped)
    played = [(scene, c) for scene in scenes for c in _contractions(claim)]
    if claim.noise_on == "objectives" and claim.adjacency == "add-remove":
        rho = CURVED / (claim.epsilon * scenes[0].facts.total_records)
        played.append((curved_scene(), 1.0 / (1.0 + rho)))
    return played


def _contractions(claim: Claim) -> Sequence[float]:
    """Return the values of c that are tried.

    A mean of E iterates reveals most if c is small, because it is then the mean of E independent releases of one
    gradient; a last iterate reveals the earlier ones through c. For one update, and for steps from w, c has no effect.
    """
    if claim.local_updates == 1 or claim.algorithm == "dp-fedavg":
        return (0.5,)
    if claim.algorithm in ("hidden", "dp-fedprox"):
        return (0.1, 0.5, 0.9)
    return (0.01,) if claim.mode == "paper" else (0.01, 0.5)
