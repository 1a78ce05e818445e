"""The standard error that known noise gives the curves of an additive model, from released values alone.

A curve is A W: the coordinates A of a column's levels, which follow from the noisy counts, times the parameters W that
noisy gradient descent found. Two kinds of noise are in it.

- The noise of the gradients. In W every round adds -a_t xi_t, which momentum then repeats. The records pull W back
  towards their optimum, by an amount that depends on how the columns are correlated, which no release reveals. So the
  pull is left out: what remains is the variance of a random walk. To first order, and for steps short enough to be
  stable, no table gives a larger one.
- The noise of the counts. It changes A, and so how far descent gets in a given number of rounds. The counts are drawn
  again, with noise around the released ones, and the gradients that gave the released curve are added up in each.

Neither says how much the curves would change with other records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from taciturn.types import Array

DRAWS = 16  # of the counts
RIDGE = 0.1  # of the ridge that predicts the gradients best: rather too much variation of a curve than too little
WIDEST = 512  # levels of a column whose counts are drawn again; the shares of so many are small


class CurveNoise(NamedTuple):
    """What a run released about each column: the shares of its levels, and the noise in its curves."""

    shares: tuple[NDArray[np.float64], ...]  # [levels] of each column, which sum to 1
    errors: tuple[NDArray[np.float64], ...]  # [outputs, levels] of each column: standard errors


@runtime_checkable
class KnownCurveNoise(Protocol):
    """A method that can compute how much noise is in the curves of its model."""

    def curve_noise(
        self,
        w: Array,
        statistics: Array,
        rounds: int,
        contrasts: NDArray[np.float64],
        answered: Sequence[int],
    ) -> CurveNoise:
        """Return the noise in the curves.

        Parameters
        ----------
        w : Array, [J, K]
            The model, in parameters of the features.
        statistics : Array, [J, 1, K]
            What the server measured before it trained.
        rounds : int
            The rounds done.
        contrasts : array, [outputs, K]
            Takes scores to outputs.
        answered : sequence of int
            The number of agents that answered in each round; empty: all, always.
        """


def walk_variance(steps: Sequence[float], deviations: Sequence[float], momentum: float) -> float:
    """Return the variance of e after e⁺ = e + b (e - e⁻) - a_t xi_t, from e = 0.

    Parameters
    ----------
    steps : sequence of float
        a_t of every round.
    deviations : sequence of float
        The standard deviation of xi_t in every round.
    momentum : float
        b.

    Examples
    --------
    >>> walk_variance([1.0, 1.0], [1.0, 1.0], 0.0)
    2.0
    >>> walk_variance([1.0, 1.0], [1.0, 1.0], 0.5)
    3.25
    """
    total = 0.0
    for left, (step, deviation) in enumerate(zip(reversed(steps), reversed(deviations), strict=True)):
        reach = (1.0 - momentum ** (left + 1)) / (1.0 - momentum)  # of a push, with all its repetitions until the end
        total += (step * deviation * reach) ** 2
    return total


def gradient_noise_variance(
    block: NDArray[np.float64], shares: NDArray[np.float64], variance: float
) -> NDArray[np.float64]:
    """Return the variance of a curve's points, [levels], if every coordinate has this variance.

    The curve is 0 on average under the shares.
    """
    centred = block - shares @ block
    found: NDArray[np.float64] = variance * (centred**2).sum(axis=1)
    return found


def count_noise_variance(
    curve: NDArray[np.float64],
    shares: NDArray[np.float64],
    block: NDArray[np.float64],
    others: Sequence[NDArray[np.float64]],
    variance: float,
) -> NDArray[np.float64]:
    """Return how much a curve's points vary with the coordinates in which it was fitted, [levels, outputs].

    The curve is A Aᵀ u with the gradients u that descent added up. They are estimated by ridge regression, because the
    curve has noise, and the curve is fitted again in other coordinates.

    Parameters
    ----------
    curve
        The released curve, [levels, outputs].
    shares
        The released shares of the levels.
    block
        The coordinates A of the levels, [levels, levels].
    others
        Several other coordinates.
    variance
        Of the gradients' noise in every coordinate and output.
    """
    gram = block @ block.T
    fitted = np.linalg.lstsq(block, curve, rcond=1e-6)[0]
    signal = max(float((fitted**2).mean()) - variance, 0.1 * variance, 1e-12)  # of a coordinate
    ridge = RIDGE * variance / signal * float(np.trace(gram)) / len(gram)
    sums = np.linalg.solve(gram + ridge * np.eye(len(gram)), curve)
    fits = [other @ (other.T @ sums) for other in others]
    found: NDArray[np.float64] = np.var([fit - shares @ fit for fit in fits], axis=0, ddof=1)
    return found
