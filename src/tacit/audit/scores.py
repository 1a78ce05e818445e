"""Scores: one number for each release, large where it looks like the second data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from tacit.algorithms.base import Agent
from tacit.audit.game import Game
from tacit.audit.noise import Silence
from tacit.privacy.noise import NoiseSource
from tacit.types import Array


class Arm(NamedTuple):
    """What the adversary knows of one data set before it sees a release."""

    mean: Array  # [J, 1, K]  the release without noise
    scale: float  # of the first update's noise, in any unit that is the same for both


Score: TypeAlias = Callable[[Array, Arm, Arm], Array]
"""(releases [J, R, K], the two data sets) -> [R]"""


def release(game: Game, arm: int, runs: int, noise: NoiseSource) -> Array:
    """What leaves the agent in `runs` independent rounds from the same state, [J, R, K]: the real step."""
    w = np.repeat(game.scene.w[:, None, :], runs, axis=1)
    return game.algorithm.agent_step(1, w, Agent(w, np.zeros_like(w)), game.scene.arms[arm], noise).upload.z


def known(game: Game) -> tuple[Arm, Arm]:
    """Both data sets as the adversary knows them."""
    first, second = Silence(), Silence()
    means = release(game, 0, 1, first), release(game, 1, 1, second)
    return Arm(means[0], first.scales[0]), Arm(means[1], second.scales[0])


def likelihood_laplace(z: Array, first: Arm, second: Arm) -> Array:
    """||z - m0||_1 / b0 - ||z - m1||_1 / b1: the log-likelihood ratio of one update with Laplace noise."""
    return _far1(z, first) / first.scale - _far1(z, second) / second.scale


def likelihood_gaussian(z: Array, first: Arm, second: Arm) -> Array:
    """||z - m0||_2^2 / b0^2 - ||z - m1||_2^2 / b1^2: the same for Gaussian noise."""
    return _far2(z, first) / first.scale**2 - _far2(z, second) / second.scale**2


def projection(z: Array, first: Arm, second: Arm) -> Array:
    """<z - m0, m1 - m0>: for many updates, whose noise adds up to almost a Gaussian."""
    along: Array = ((z - first.mean) * (second.mean - first.mean)).sum(axis=(0, 2))
    return along


def far_from_first(z: Array, first: Arm, second: Arm) -> Array:
    """||z - m0||_1, which sees the scale of the noise where the data sets differ in that."""
    return _far1(z, first)


def far_from_second(z: Array, first: Arm, second: Arm) -> Array:
    """||z - m1||_1, negative: near is the second."""
    return -_far1(z, second)


def scores_for(kind: str) -> Mapping[str, Score]:
    """The scores that an attack may be built on, by name."""
    return {
        "likelihood": {"gaussian": likelihood_gaussian, "laplace": likelihood_laplace}[kind],
        "projection": projection,
        "distance from the first": far_from_first,
        "distance from the second": far_from_second,
    }


def _far1(z: Array, arm: Arm) -> Array:
    far: Array = np.abs(z - arm.mean).sum(axis=(0, 2))
    return far


def _far2(z: Array, arm: Arm) -> Array:
    far: Array = ((z - arm.mean) ** 2).sum(axis=(0, 2))
    return far
