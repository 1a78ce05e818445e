"""The outputs of the convergence theorems: averages of the iterates over all rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from taciturn.algorithms.base import Agent, Upload
from taciturn.core.arrays import namespace
from taciturn.types import Array


class Averages(NamedTuple):
    """w^(T) and z^(T), plain and t-weighted.

    Theorem 1 averages z^{t,e+1}, the iterates that were sent; theorems 2 and 3 average z^{t,e}, one local update
    earlier.
    """

    w_plain: Array  # [J, R, K]  (1/T) sum_t w^{t+1}
    w_weighted: Array  # [J, R, K]  2/(T(T+1)) sum_t t w^{t+1}
    z_smooth: Array  # [P, J, R, K]  (1/TE) sum_t sum_e z^{t,e+1}
    z_nonsmooth: Array  # [P, J, R, K]  (1/TE) sum_t sum_e z^{t,e}
    z_strong: Array  # [P, J, R, K]  2/(T(T+1)) sum_t t (1/E) sum_e z^{t,e}


def no_averages(zero: Array, agents: int) -> Averages:
    """Return the averages before the first round, in the shape [J, R, K] and precision of `zero`."""
    z = namespace(zero).zeros((agents, *zero.shape), dtype=zero.dtype, device=zero.device)
    return Averages(zero, zero, z, z, z)


def average(
    t: int,
    before: Averages,
    w: Array,
    uploads: Sequence[Upload],
    old: Sequence[Agent],
    new: Sequence[Agent],
    updates: int,
) -> Averages:
    """Return the averages after round t; a running mean moves by 1/t (plain) or 2/(t+1) (t-weighted) of the distance.

    (1/E) sum_e z^{t,e} = (1/E) sum_e z^{t,e+1} + (z^{t,1} - z^{t,E+1}) / E.

    Parameters
    ----------
    t : int
        The round, from 1.
    before : Averages
        After round t - 1.
    w : Array, [J, R, K]
        The common model.
    uploads : sequence of Upload, [P]
        The uploads of the round.
    old, new : sequence of Agent, [P]
        The agents before and after the round.
    updates : int
        E.

    Returns
    -------
    Averages
    """
    xp = namespace(w)
    sent = xp.stack([upload.z for upload in uploads])
    earlier = xp.stack([u.z + (a.z - b.z) / updates for u, a, b in zip(uploads, old, new, strict=True)])
    plain, weighted = 1.0 / t, 2.0 / (t + 1)
    return Averages(
        before.w_plain + plain * (w - before.w_plain),
        before.w_weighted + weighted * (w - before.w_weighted),
        before.z_smooth + plain * (sent - before.z_smooth),
        before.z_nonsmooth + plain * (earlier - before.z_nonsmooth),
        before.z_strong + weighted * (earlier - before.z_strong),
    )
