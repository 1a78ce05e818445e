"""Scenes of the game: two neighbouring data sets each, and the model that the agent is sent.

The adversary has chosen the model and the other records so that one record shows as much as it can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from tacit.data import Facts
from tacit.types import Array, Shard


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

Records: TypeAlias = Sequence[tuple[Sequence[float], int]]
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


def _wide(name: str, scores: Sequence[float], others: Records, first: Records, second: Records) -> Scene:
    w = np.array([scores, QUIET, OUTVOTING])
    return Scene(name, w, (_shard((*others, *first), w), _shard((*others, *second), w)))


def _narrow(name: str, scores: Sequence[Sequence[float]], first: Records, second: Records) -> Scene:
    """Two classes, and nobody else."""
    w = np.array(scores)[:, :2]
    return Scene(name, w, (_shard(first, w), _shard(second, w)))


def _shard(records: Records, w: Array) -> Shard:
    features, classes = w.shape
    x = np.array([x for x, _ in records]).reshape(-1, features)
    return Shard(x, np.eye(classes)[[label for _, label in records]].reshape(-1, classes))
