"""Local training between two rounds without a dual: E gradient steps from the common model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from taciturn.algorithms.schedules import Schedule
from taciturn.algorithms.steps import linearised_step
from taciturn.core.arrays import namespace
from taciturn.objectives import Problem
from taciturn.objectives.clipping import NO_CLIPPING, Clipping
from taciturn.objectives.problem import sampled_gradient
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """z <- Proj_W(z - eta f'_p(z)), E times from z = w; with a pull, (rho/2) ||z - w||^2 is added to f_p.

    The weight I_p / I of an agent is part of f_p (eq. def_fn_f), so agents need not reveal how many records they have.

    Parameters
    ----------
    problem : Problem
        The learning problem.
    eta : Schedule
        The proximity.
    updates : int
        E.
    pull : Schedule, optional
        rho of the proximal term.
    sampling : float, default 1
        q: below 1, every step uses a Poisson sample of the records.
    clipping : Clipping
        The bound on what one record can contribute.
    """

    problem: Problem
    eta: Schedule
    updates: int
    pull: Schedule | None = None
    sampling: float = 1.0
    clipping: Clipping = NO_CLIPPING

    def __call__(self, t: int, w: Array, shard: Shard, noise: NoiseSource) -> Array:
        """Return the agent's model after its steps, [J, R, K]."""
        feasible, eta, z = self.problem.feasible, self.eta(t), w
        for e in range(self.updates):
            g = self._gradient(e, z, shard, noise)
            if self.pull is None:
                z = feasible.project(z - eta * g)
            else:
                z = linearised_step(feasible, self.pull(t), eta, w, namespace(w).zeros_like(w), z, g)
        return z

    def _gradient(self, e: int, z: Array, shard: Shard, noise: NoiseSource) -> Array:
        if self.sampling == 1.0:
            return self.problem.gradient(z, shard, self.clipping).value
        sample = noise.poisson_sample(e, self.sampling, len(shard.x), z)
        return sampled_gradient(self.problem, z, shard, sample, self.sampling)


def training_sensitivity(sensitivity: float, eta: ArrayLike, updates: int, pull: ArrayLike | None = None) -> Array:
    """Return the L2 sensitivity of E local steps, each of whose gradients has the sensitivity Delta.

    A step with eta L <= 2 does not increase the distance of two iterates, and one unit adds at most eta Delta to it:
    E eta Delta in total (Hardt, Recht and Singer 2016; Wu et al. 2017). With a pull rho a step shrinks the distance by
    c = 1 / (1 + rho eta), and the sum is geometric: (Delta / rho) (1 - c^E). It is computed without cancellation: a
    weak pull must not round the sensitivity, and with it the noise, to 0.

    Parameters
    ----------
    sensitivity : float
        Delta.
    eta : array_like, [R]
        The proximity.
    updates : int
        E.
    pull : array_like, [R], optional
        rho.

    Returns
    -------
    Array, [R]

    Examples
    --------
    >>> float(training_sensitivity(0.5, 0.1, 10)), round(float(training_sensitivity(0.5, 0.1, 10, 2.0)), 4)
    (0.5, 0.2096)
    """
    steps = np.asarray(eta, np.float64)
    if pull is None:
        return sensitivity * updates * steps
    rho = np.asarray(pull, np.float64)
    total: Array = -sensitivity * np.expm1(-updates * np.log1p(rho * steps)) / rho
    return total
