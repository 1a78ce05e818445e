"""How fast the measured gap falls with T, and how fast it grows as epsilon falls."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tacit.theory.measure import CONFIDENCE, Interval
from tacit.types import Array

DRAWS = 1000  # of the bootstrap
LATER = 0.5  # the part of the curve, in log T, that the exponent is fitted to
FEWEST = 3  # points that a line is fitted to


def exponent_in_rounds(rounds: Array, gaps: Array, seed: int = 0) -> Interval | None:
    """a of mean gap ~ T^-a over the later part of the curve; gaps [n, R]."""
    later = np.log(rounds) >= (1.0 - LATER) * np.log(rounds[-1])
    return exponent(rounds[later], gaps[later], seed)


def exponent_in_epsilon(epsilons: Sequence[float], gaps: Sequence[Array], seed: int = 0) -> Interval | None:
    """b of mean gap ~ epsilon^-b at one T; gaps [R] of every epsilon, the same seeds in each."""
    return exponent(np.array(epsilons, np.float64), np.stack(gaps), seed)


def exponent(x: Array, gaps: Array, seed: int) -> Interval | None:
    """c of mean gap ~ x^-c by least squares in logarithms, gaps [n, R]; several runs give a bootstrap's interval.

    None where there are too few points for a line, or a gap that has no logarithm.
    """
    if len(x) < FEWEST or not (gaps > 0.0).all():
        return None
    runs, away = gaps.shape[1], np.log(x) - np.log(x).mean()
    if runs < 2:
        return Interval(float(-(away @ np.log(gaps[:, 0])) / (away @ away)), -math.inf, math.inf)
    drawn = np.random.default_rng(seed).integers(0, runs, (DRAWS, runs))
    means = np.concatenate([gaps.mean(axis=1)[:, None], gaps[:, drawn].mean(axis=2)], axis=1)  # [n, 1 + DRAWS]
    slopes = away @ np.log(means) / (away @ away)
    low, high = np.quantile(-slopes[1:], [(1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0])
    return Interval(float(-slopes[0]), float(low), float(high))
