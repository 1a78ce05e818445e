"""The agent of methods that take their gradient at the common model, so that sums of gradients are all they need."""

from __future__ import annotations

from taciturn.algorithms.base import Agent, Step, Upload
from taciturn.algorithms.noisy_gradient import NoisyGradient, PooledGradient, ReleasedGradient, SummedGradient
from taciturn.algorithms.schedules import Schedule
from taciturn.objectives import Problem
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


class GradientAtModel:
    """The agent of a `SummableAlgorithm` whose gradients are taken at w; methods add their `local_step`.

    Examples
    --------
    >>> GradientAtModel().shared_state(1, Agent(0.0, 0.0)) is None
    True
    """

    problem: Problem
    eta: Schedule
    release: NoisyGradient

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Take the gradient, then the step.

        Raises
        ------
        TypeError
            If the release is for sums: a single agent has no gradient to take a step with.
        """
        if isinstance(self.release, SummedGradient | PooledGradient):
            raise TypeError(f"a {type(self.release).__name__} is a release of all agents together, not of one")
        noisy, event, size = self.local_gradient(t, w, agent, shard, noise)
        after, upload = self.local_step(t, w, agent, noisy)
        return Step(after, upload, (event,), size, self.eta(t))

    def gradient_point(self, t: int, w: Array) -> Array:
        """Return w."""
        return w

    def shared_state(self, t: int, agent: Agent) -> Array | None:
        """Return None: w is all that an agent needs."""
        return None

    def local_gradient(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """Release f'_p(w) + xi."""
        return self.release(0, self.problem, self.gradient_point(t, w), shard, noise)

    def local_step(self, t: int, w: Array, agent: Agent, noisy: Array) -> tuple[Agent, Upload]:
        """Return an agent's new state and its upload; every method has its own."""
        raise NotImplementedError
