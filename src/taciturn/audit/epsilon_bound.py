"""From two samples of a score to a lower bound on epsilon.

Under (epsilon, delta)-differential privacy every attack has TPR <= e^epsilon FPR + delta, whichever of the two data
sets is the null. The attack is chosen on one half of the releases and judged on the other, so that choosing costs no
confidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from taciturn.types import Array

SHARES = np.concatenate([tail := np.geomspace(1e-4, 0.5, 120), 1.0 - tail[:-1]])  # of all releases, below a threshold


class Attack(NamedTuple):
    """Reject the null if the score is on one side of a threshold.

    Parameters
    ----------
    score : str
        The name of the score.
    threshold : float
        The threshold of the score.
    null : int
        0 or 1: the data set whose releases are false positives.
    above : bool
        Whether scores at or above the threshold reject the null.
    """

    score: str
    threshold: float
    null: int
    above: bool


class AttackCounts(NamedTuple):
    """How often an attack rejected the null.

    Parameters
    ----------
    true_positives, false_positives : int
        Releases of the other data set, and of the null, for which the attack rejected the null.
    trials : int
        The releases of each data set.
    """

    true_positives: int
    false_positives: int
    trials: int


def lower_limit(successes: Array, trials: int, alpha: float) -> Array:
    """Return the Clopper-Pearson lower limit of a probability, at confidence 1 - alpha."""
    k = np.asarray(successes, float)
    return np.where(k > 0, _beta_quantile(np.maximum(k, 1), trials - k + 1, alpha), 0.0)


def upper_limit(successes: Array, trials: int, alpha: float) -> Array:
    """Return the Clopper-Pearson upper limit of a probability, at confidence 1 - alpha."""
    k = np.asarray(successes, float)
    return np.where(k < trials, _beta_quantile(k + 1, np.maximum(trials - k, 1), 1.0 - alpha), 1.0)


def _beta_quantile(a: Array, b: Array, share: float) -> Array:
    from scipy.special import betaincinv

    quantile: Array = betaincinv(a, b, share)
    return quantile


def epsilon_lower(true: Array, false: Array, trials: int, delta: float, alpha: float) -> Array:
    """Return ln((lower(TPR) - delta) / upper(FPR)), at least 0; the two limits share alpha.

    Parameters
    ----------
    true, false : Array
        Counts of true and false positives.
    trials : int
        The releases of each data set.
    delta : float
        The delta of (epsilon, delta).
    alpha : float
        The probability that the bound is wrong.

    Returns
    -------
    Array

    Examples
    --------
    >>> round(float(epsilon_lower(np.array(900.0), np.array(100.0), 1000, 1e-6, 0.001)), 2)
    1.86
    """
    gained = lower_limit(true, trials, alpha / 2.0) - delta
    ratio = gained / upper_limit(false, trials, alpha / 2.0)
    bound: Array = np.log(np.maximum(ratio, 1.0))
    return bound


def choose(first: Mapping[str, Array], second: Mapping[str, Array], delta: float, alpha: float) -> Attack:
    """Return the attack with the best bound on these releases.

    Parameters
    ----------
    first, second : mapping of str to Array, [R]
        The scores of the releases of either data set, by name.
    delta, alpha : float
        See `epsilon_lower`.

    Returns
    -------
    Attack
    """
    found = [option for name in first for option in _options(name, first[name], second[name], delta, alpha)]
    return max(found, key=lambda option: option[0])[1]


def judge(attack: Attack, first: Mapping[str, Array], second: Mapping[str, Array]) -> AttackCounts:
    """Return how the attack does on other releases, scored as for `choose`."""
    positive = [int(((scores[attack.score] >= attack.threshold) == attack.above).sum()) for scores in (first, second)]
    return AttackCounts(positive[1 - attack.null], positive[attack.null], len(first[attack.score]))


def _options(name: str, first: Array, second: Array, delta: float, alpha: float) -> list[tuple[float, Attack]]:
    """Return the best threshold of one score for either side and either null."""
    pooled = np.concatenate([first, second])
    near = 1e-9 * np.ptp(pooled)  # many releases may have the same score up to rounding; thresholds avoid it
    middle = np.quantile(pooled, SHARES)
    thresholds = np.unique(np.concatenate([middle - near, middle + near]))
    trials = len(first)
    above = [trials - np.searchsorted(np.sort(scores), thresholds, "left") for scores in (first, second)]
    options = []
    for up in (True, False):
        counts = [(n if up else trials - n).astype(float) for n in above]
        for null in (0, 1):
            bounds = epsilon_lower(counts[1 - null], counts[null], trials, delta, alpha)
            best = int(bounds.argmax())
            options.append((float(bounds[best]), Attack(name, float(thresholds[best]), null, up)))
    return options


class TradeoffCurve(NamedTuple):
    """The errors of one score at all thresholds, with one of the data sets as the null."""

    false_positive: Array
    false_negative: Array


def curves(
    attack: Attack, first: Mapping[str, Array], second: Mapping[str, Array]
) -> tuple[TradeoffCurve, TradeoffCurve]:
    """Return the trade-off between both errors of the attack's score, for either null."""
    pair = (np.sort(first[attack.score]), np.sort(second[attack.score]))
    thresholds = np.unique(np.quantile(np.concatenate(pair), np.concatenate([[0.0], SHARES, [1.0]])))
    below = [np.searchsorted(scores, thresholds, "left") / len(scores) for scores in pair]
    return TradeoffCurve(1.0 - below[0], below[1]), TradeoffCurve(below[1], 1.0 - below[0])
