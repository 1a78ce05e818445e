"""The release of a private evaluation: an agent's measures of a model on its held-out records, with discrete noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.noisy_gradient import on_grid
from taciturn.core.arrays import to_numpy
from taciturn.objectives.losses import Loss
from taciturn.objectives.passes import scores
from taciturn.objectives.private_measures import MeasureLayout, summed_measures
from taciturn.privacy.events import BatchEvent, Discrete, Event
from taciturn.privacy.noise import NoiseSource
from taciturn.types import GRID, Array, Shard

DRAW = 1 << 32  # the number of the draw in its round; the local updates of a method have smaller ones


class ReleasedMeasures(NamedTuple):
    """Noisy measures and their privacy event.

    Parameters
    ----------
    integers : array of int64, [D, R]
        The sums over the records, with the agent's noise.
    event : BatchEvent
        The privacy event, of held-out records.
    """

    integers: NDArray[np.int64]
    event: BatchEvent


@dataclass(frozen=True, eq=False)
class MeasureRelease:
    """Measures an agent's held-out records in whole numbers and adds discrete Gaussian noise.

    Parameters
    ----------
    layout : MeasureLayout
        What the numbers are.
    loss : Loss
        The model's loss.
    events : tuple of Event, [R]
        The event of one evaluation in every run: Discrete, or NON_PRIVATE for a run without noise.
    bits : tuple of int, [R]
        A unit of a run's measures is 2^bits.
    share : float
        An agent's noise over that of the event.
    """

    layout: MeasureLayout
    loss: Loss
    events: tuple[Event, ...]
    bits: tuple[int, ...]
    share: float

    def __call__(self, w: Array, shard: Shard, noise: NoiseSource) -> ReleasedMeasures:
        """Return the measures of the models w [J, R, K] on the shard's records, with noise."""
        exact = self.sums(w, shard)
        scale = np.array([self.share * e.sigma if isinstance(e, Discrete) else 0.0 for e in self.events])
        xi = noise.integers(DRAW, Discrete.mechanism, scale, np.empty((*exact.shape, 1)))
        return ReleasedMeasures(exact + xi[:, :, 0], self.event)

    def sums(self, w: Array, shard: Shard) -> NDArray[np.int64]:
        """Return the sums over the records without noise, [D, R].

        Features and parameters are whole numbers, as for hardened gradients. So scores are exact, and a record's
        contribution does not depend on the other records, to the bit.
        """
        integers, step = on_grid(to_numpy(w))
        total = np.zeros((self.layout.size, len(self.bits)), np.int64)
        for block in shard.blocks():
            if not len(block.x):
                continue
            grid = block.on_grid
            with np.errstate(over="ignore", invalid="ignore"):
                exact = scores(integers, grid.x) * (step / GRID)[:, None]  # [n, R, K]
            for r, bits in enumerate(self.bits):
                total[:, r] += summed_measures(exact[:, r], grid.y, self.layout, self.loss, bits)
        return total

    @cached_property
    def event(self) -> BatchEvent:
        """The events of one evaluation."""
        return BatchEvent(self.events, held_out=True)

    def deviation(self, run: int, agents: int) -> float:
        """Return the standard deviation of the noise in the sum over some agents, in units."""
        event = self.events[run]
        return self.share * math.sqrt(agents) * event.scale if isinstance(event, Discrete) else 0.0
