"""What an agent does by itself between two rounds where there is no dual: E gradient steps from the common model."""

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
    """z <- Proj_W(z - eta f'_p(z)), E times from z = w; where there is a pull, (rho/2) ||z - w||^2 is added to f_p.

    The weight I_p / I of an agent stands in f_p (eq. def_fn_f), so that nobody needs to tell how many records it has.
    """

    problem: Problem
    eta: Schedule
    updates: int  # E
    pull: Schedule | None = None
    sampling: float = 1.0  # q: below 1 every step takes a random sample of the records
    limit: Clipping = NO_CLIPPING

    def __call__(self, t: int, w: Array, shard: Shard, noise: NoiseSource) -> Array:
        """The agent's own model after its steps."""
        z = w
        for e in range(self.updates):
            g = self._gradient(e, z, shard, noise)
            z = self._step(t, w, z, g)
        return z

    def _step(self, t: int, w: Array, z: Array, g: Array) -> Array:
        feasible, eta = self.problem.feasible, self.eta(t)
        if self.pull is None:
            return feasible.project(z - eta * g)
        return linearised_step(feasible, self.pull(t), eta, w, namespace(w).zeros_like(w), z, g)

    def _gradient(self, e: int, z: Array, shard: Shard, noise: NoiseSource) -> Array:
        if self.sampling == 1.0:
            return self.problem.gradient(z, shard, self.limit).value
        chosen = noise.chosen(e, self.sampling, len(shard.x), z)
        return sampled_gradient(self.problem, z, shard, chosen, self.sampling)


def moved_by_training(moved: float, eta: ArrayLike, updates: int, pull: ArrayLike | None = None) -> Array:
    """How far one unit moves the result of E steps, where it moves every gradient by at most `moved`.

    Between neighbours a step with eta L <= 2 brings two iterates no further apart, and then one unit moves them by at
    most eta moved (Hardt, Recht and Singer 2016; Wu et al. 2017). With a pull it brings them closer, by
    c = 1 / (1 + rho eta), so that the sum is geometric: (moved / rho) (1 - c^E), which must not cancel where the pull
    is weak: rounded to 0, it would take the noise away.
    """
    steps = np.asarray(eta, np.float64)
    if pull is None:
        return moved * updates * steps
    rho = np.asarray(pull, np.float64)
    length: Array = -moved * np.expm1(-updates * np.log1p(rho * steps)) / rho
    return length
