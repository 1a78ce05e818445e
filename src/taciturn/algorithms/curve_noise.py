"""The standard error that known noise gives the curves of an additive model, from released values alone.

A curve is A W: the coordinates A of a column's levels, which follow from the noisy counts, times the parameters W that
noisy gradient descent found. Two kinds of noise are in it.

- The noise of the gradients. In W every round adds -a_t xi_t, which momentum then repeats, and the records pull W back
  towards their optimum. How strongly they pull in a column is A^T diag(shares) A times the curvature of the loss at the
  released model, if the columns are independent. Then the variance along every eigenvector follows exactly from the
  steps.
- The noise of the counts. It changes A, and so how far descent gets in a given number of rounds. It also changes the
  shares, under which the curve is 0 on average. The counts are drawn again, with noise around the released ones, and
  the curve is fitted again in each, from the gradients that gave the released one.

Related columns pull less, by an amount that no release reveals: several that say the same are pulled only together. So
the standard error is RELATED times that of independent columns, but no more than if nothing pulled W back. Then W is a
random walk, and to first order, for steps short enough to be stable, no table gives a larger variance. Related columns
also make up for what a column's coordinates do not reach, so that the noise of one's counts is in the other's curve:
without a pull the variance by the counts is taken SPILL times.

Neither says how much the curves would change with other records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from taciturn.objectives import Loss
from taciturn.objectives.losses import Softmax, Squared
from taciturn.types import Array

DRAWS = 16  # of the counts
RIDGE = 0.01  # of the ridge that predicts the gradients best: rather too much variation of a curve than too little
WIDEST = 512  # levels of a column whose counts are drawn again, and which is pulled; the shares of more are small
RELATED = 2.5  # times the standard error of independent columns
SPILL = 2.0  # times the variance by a column's own counts
RECORDS = 2048  # drawn from the released shares, to see the curvature of the loss
LARGEST_RESIDUAL = 2.0  # times the spread of a label: residuals are taken to be evenly spread up to it
CLASS_SPREAD = 0.25  # of the indicator of a class; a number is trained in units of its spread


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


class Descent(NamedTuple):
    """The rounds of e⁺ = e + b (e - e⁻) - a_t h e - s_t, from e = 0, where h is a curvature and s_t noise.

    Parameters
    ----------
    steps : array, [rounds]
        a_t.
    deviations : array, [rounds]
        The standard deviation of s_t.
    momentum : float
        b.
    """

    steps: NDArray[np.float64]
    deviations: NDArray[np.float64]
    momentum: float

    def ends(self, curvature: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the variance of the last e, and how far it gets for each unit of a constant gradient.

        Each is for several curvatures; inf or NaN if the steps are unstable.

        Examples
        --------
        >>> descent = Descent(np.array([1.0, 0.5]), np.array([1.0, 1.0]), 0.5)
        >>> [found.tolist() for found in descent.ends(np.array([0.0, 1.0]))]
        [[3.25, 2.0], [2.0, 1.5]]
        """
        variance, path = np.zeros_like(curvature), np.zeros_like(curvature)
        reach, later = np.ones_like(curvature), np.zeros_like(curvature)  # at the end, of a change of e in this round
        with np.errstate(over="ignore", invalid="ignore"):
            for step, deviation in zip(self.steps[::-1], self.deviations[::-1], strict=True):
                variance += (deviation * reach) ** 2
                path += step * reach
                reach, later = (1.0 + self.momentum - step * curvature) * reach - self.momentum * later, reach
        return variance, path


def loss_curvature(
    loss: Loss,
    effects: Sequence[NDArray[np.float64]],
    shares: Sequence[NDArray[np.float64]],
    lengths: Sequence[NDArray[np.float64]],
    constant: NDArray[np.float64],
    constant_length: float,
    clip: float,
) -> NDArray[np.float64]:
    """Return the mean of d^2 l / ds^2 over records that are not clipped, [K, K]; zeros for a loss that is not known.

    A clipped record's gradient has constant length, so it pulls little. The records are drawn from the released shares,
    as if columns were independent, and their classes from the released model.

    Parameters
    ----------
    loss
        The loss.
    effects
        The scores that each level of each column adds, [levels, K].
    shares
        The released shares of the levels.
    lengths
        The squared norm of each level's coordinates, [levels].
    constant
        The scores of the constant, [K].
    constant_length
        The square of the constant's coordinate.
    clip
        The largest norm of a record's gradient.
    """
    outputs = len(constant)
    if isinstance(loss, Squared):
        spread = CLASS_SPREAD if outputs > 1 else 1.0
        return min(1.0, clip / (LARGEST_RESIDUAL * spread)) * np.eye(outputs)
    if not isinstance(loss, Softmax):
        return np.zeros((outputs, outputs))
    rng = np.random.default_rng(0)  # public: it draws no protection
    scores, squares = np.tile(constant, (RECORDS, 1)), np.full(RECORDS, constant_length)
    for effect, share, length in zip(effects, shares, lengths, strict=True):
        levels = rng.choice(len(share), RECORDS, p=share)
        scores += effect[levels]
        squares += length[levels]
    probabilities = loss.probabilities(scores)
    pulling = np.zeros(RECORDS)  # the probability that a record is not clipped
    for k, truth in enumerate(np.eye(outputs)):
        gradients = squares * ((probabilities - truth) ** 2).sum(axis=1)
        pulling += probabilities[:, k] * (gradients <= clip**2)
    weighted = pulling[:, None] * probabilities
    found: NDArray[np.float64] = (np.diag(weighted.sum(axis=0)) - weighted.T @ probabilities) / RECORDS
    return found


class ReleasedColumn(NamedTuple):
    """What is known of a column.

    Parameters
    ----------
    effects : array, [levels, K]
        The scores that each level adds.
    block : array, [levels, levels]
        The coordinates A of the levels.
    shares : array, [levels]
        The released shares of the levels.
    others : sequence of pairs of arrays
        Several other coordinates, each with its shares, from counts that were drawn again.
    """

    effects: NDArray[np.float64]
    block: NDArray[np.float64]
    shares: NDArray[np.float64]
    others: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]

    def errors(
        self, descent: Descent, curvature: NDArray[np.float64], contrasts: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the standard errors of the column's curves, [outputs, levels].

        Parameters
        ----------
        descent
            The rounds.
        curvature
            Of the loss, [K, K].
        contrasts
            Takes scores to outputs, [outputs, K].
        """
        gradients, counts = self.variances(descent, np.zeros_like(curvature), contrasts)
        total = gradients + SPILL * counts
        if len(self.block) <= WIDEST:
            total = np.fmin(total, RELATED**2 * sum(self.variances(descent, curvature, contrasts)))
        return np.sqrt(total)

    def variances(
        self, descent: Descent, curvature: NDArray[np.float64], contrasts: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the variance of the curves by the noise of the gradients and by that of the column's own counts.

        The parameters are those of `errors`; the results are [outputs, levels]. Columns are taken to be independent.
        """
        bends, mixtures = np.linalg.eigh(curvature)
        curves = (self.effects - self.shares @ self.effects) @ mixtures
        spreads, modes = self._modes(curvature)
        variances, paths = descent.ends(np.maximum(bends, 0.0)[:, None, None] * spreads)  # [K, 1 + others, levels]
        by_gradients = ((modes[0] - self.shares @ modes[0]) ** 2 @ variances[:, 0].T).T
        if not self.others or not np.isfinite(variances).all():
            return (contrasts @ mixtures) ** 2 @ by_gradients, np.zeros((len(contrasts), len(self.block)))
        fits = np.empty((len(self.others), len(self.block), len(bends)))
        for k in range(len(bends)):
            start = _first_gradient(curves[:, k], modes[0], variances[k, 0], paths[k, 0])
            reached = paths[k, 1:] * (start @ modes[1:])
            fits[:, :, k] = (modes[1:] @ reached[:, :, None])[:, :, 0]
        shares = np.stack([shares for _, shares in self.others])
        fits -= shares[:, None, :] @ fits
        return (contrasts @ mixtures) ** 2 @ by_gradients, np.var(fits @ (contrasts @ mixtures).T, axis=0, ddof=1).T

    def _modes(self, curvature: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the eigenvalues of the coordinates' covariance, and the levels in the basis of its eigenvectors.

        The first are those of the released coordinates, [1 + others, levels] and [1 + others, levels, levels].
        """
        blocks = np.stack([self.block, *(block for block, _ in self.others)])
        if not curvature.any():
            return np.zeros(blocks.shape[:2]), blocks
        centred = blocks - self.shares @ blocks[:, None]
        spreads, vectors = np.linalg.eigh(centred.transpose(0, 2, 1) @ (self.shares[:, None] * centred))
        return np.maximum(spreads, 0.0), blocks @ vectors


def _first_gradient(
    curve: NDArray[np.float64], modes: NDArray[np.float64], variance: NDArray[np.float64], path: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the gradient g for which the curve is B diag(path) Bᵀ g, by ridge regression, because the curve has noise.

    Parameters
    ----------
    curve
        The released curve, [levels].
    modes
        The levels B in coordinates in which each has its own variance and path.
    variance, path
        What `Descent.ends` found for each of them.
    """
    fitted = np.linalg.lstsq(modes, curve, rcond=1e-6)[0]
    reached = modes * path
    gram = reached.T @ reached
    noise = float(variance.mean())
    signal = max(float((fitted**2).mean()) - noise, 0.1 * noise, 1e-12)  # of a coordinate
    scale = float(np.trace(gram)) / len(gram)
    ridge = np.diag(RIDGE * variance / signal * scale + 1e-12 * scale + 1e-300)
    found: NDArray[np.float64] = reached @ np.linalg.solve(gram + ridge, fitted)
    return found
