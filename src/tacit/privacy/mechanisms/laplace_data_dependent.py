"""The paper's Laplace mechanism, whose scale is read off the private data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tacit.privacy.events import NON_PRIVATE, BatchEvent, Draw, nominal_event
from tacit.privacy.noise import NoiseSource
from tacit.types import Array


@dataclass(frozen=True, eq=False)
class LaplaceDataDependent:
    """xi ~ Lap(0, Delta / epsilon) with Delta from the agent's own records (eq. Laplace).

    Delta itself depends on the data, so the scale of the noise tells of them: epsilon is nominal, per local update,
    and there is no end-to-end guarantee.
    """

    epsilon: Array  # [R], inf: no noise

    def draw(self, update: int, sensitivity: Array, like: Array, noise: NoiseSource) -> Draw:
        """Laplace noise of scale Delta / epsilon; where Delta is 0 nothing is added, and the event says so."""
        xi = noise.laplace(update, sensitivity / self.epsilon, like)
        if (sensitivity > 0).all():
            return Draw(xi, self.event)
        noisy = zip(self.event.runs, sensitivity > 0, strict=True)
        return Draw(xi, BatchEvent(tuple(event if any_noise else NON_PRIVATE for event, any_noise in noisy)))

    @cached_property
    def event(self) -> BatchEvent:
        """The events of one update."""
        return nominal_event("laplace-data-dependent", self.epsilon)
