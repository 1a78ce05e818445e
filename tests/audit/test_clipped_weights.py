"""Why clipped weights and noise of 2C/m are no protection: the published sensitivity of local training, refuted.

Wei et al. (IEEE TIFS 2020) clip what an agent has trained to ||w||_2 <= C, take it for a mean over its m records, and
scale Gaussian noise to 2C/m. A result of training is no such mean: one record can decide where it lies.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from taciturn.algorithms.fedavg import LocalTraining, training_sensitivity
from taciturn.algorithms.schedules import Constant
from taciturn.audit.epsilon_bound import choose, epsilon_lower, judge
from taciturn.audit.scores import RecordingNoise
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.privacy.accountants import tightest
from taciturn.privacy.events import Noise
from taciturn.types import Array, Shard

RECORDS, CLIP, EPSILON, DELTA = 100, 1.0, 1.0, 1e-6
ETA = 2.0
PUBLISHED = 2.0 * CLIP / RECORDS
SIGMA = math.sqrt(2.0 * math.log(1.25 / DELTA)) * PUBLISHED / EPSILON  # the classic Gaussian mechanism, as published


def trained(label: int, updates: int) -> Array:
    """The clipped result on 99 records with the second feature, half of either class, and one with the first."""
    x = np.array([[0.0, 1.0]] * (RECORDS - 1) + [[1.0, 0.0]])
    y = np.eye(2)[[i % 2 for i in range(RECORDS - 1)] + [label]]
    of = Problem(LOSSES["softmax"](), REGULARISERS["l2"](), 0.0, SETS["all"](1.0), RECORDS, 1)
    train = LocalTraining(of, Constant(ETA, np.ones(1)), updates)
    w = train(1, np.zeros((2, 1, 2)), Shard(x, y), RecordingNoise())
    clipped: Array = w / max(1.0, float(np.linalg.norm(w)) / CLIP)
    return clipped


@pytest.mark.parametrize(("updates", "times"), [(1, 1.414), (10, 13.52), (100, 92.65), (1000, 100.0)])
def test_one_record_of_a_hundred_moves_the_result_by_far_more_than_was_published(updates: int, times: float) -> None:
    """After a thousand steps it decides the sign: the clipped weights move by 2C, as far as any two can be apart."""
    moved = float(np.linalg.norm(trained(0, updates) - trained(1, updates)))
    assert moved == pytest.approx(times * PUBLISHED, rel=1e-3)
    assert moved <= 2.0 * CLIP * (1.0 + 1e-9)
    replaced = 2.0 * math.sqrt(2.0) / RECORDS  # of a gradient, for records of length 1
    assert moved <= float(training_sensitivity(replaced, np.array(ETA), updates))


@pytest.mark.parametrize(("updates", "true"), [(10, 14.83), (100, 235.1), (1000, 266.9)])
def test_a_claim_of_one_is_refuted_by_its_releases(updates: int, true: float) -> None:
    first, second = trained(0, updates), trained(1, updates)
    moved = float(np.linalg.norm(second - first))
    assert tightest({Noise("gaussian", SIGMA, math.inf, moved): 1}, DELTA).epsilon == pytest.approx(true, rel=1e-3)
    rng, half = np.random.default_rng(1), 20_000
    noise = SIGMA * rng.standard_normal((2, 2, *np.broadcast_shapes(first.shape, (1, half, 1))))
    scores = [
        [{"along": ((z + xi) * (second - first)).sum(axis=(0, 2))} for xi in pair]
        for z, pair in zip((first, second), noise, strict=True)
    ]
    attack = choose(scores[0][0], scores[1][0], DELTA, 1e-3)
    counts = judge(attack, scores[0][1], scores[1][1])
    true_positives, false_positives = (np.array(float(n)) for n in counts[:2])
    assert 5.0 < float(epsilon_lower(true_positives, false_positives, half, DELTA, 1e-3)) < true
