"""How an agent's gradient becomes something that may be seen: one file for each way."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tacit.privacy.events import BatchEvent
from tacit.privacy.noise import NoiseSource
from tacit.problems import Problem
from tacit.types import Array, Shard


class Released(NamedTuple):
    """A noisy gradient, and what it stands for."""

    gradient: Array  # [J, R, K]  f'_p(z) + xi
    event: BatchEvent
    magnitude: Array  # [R]  mean |xi|, measured or expected, in numpy: a diagnostic


class Release(Protocol):
    """The noisy gradient of one local update; everything an agent sends is made of such gradients and public values."""

    def __call__(self, update: int, problem: Problem, z: Array, shard: Shard, noise: NoiseSource) -> Released:
        """The gradient at z with noise for local update number `update` (from 0)."""
        ...
