"""From settings to runs: which runs there are, and which of them go side by side."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.algorithms import ALGORITHMS
from tacit.privacy.noise import HARDENED
from tacit.settings import Settings
from tacit.types import Array


@dataclass(frozen=True, eq=False)
class Batch:
    """The runs of one algorithm, which share every pass over the data."""

    algorithm: str
    first: int  # index of its first run in the study
    budgets: tuple[float, ...]  # [R]  epsilon as it was given: in total, or in mode paper of one local update
    seeds: tuple[int, ...]  # [R], or none where the noise has no seed
    precision: str

    @property
    def size(self) -> int:
        """R, the number of runs."""
        return len(self.budgets)

    @property
    def epsilon(self) -> Array:
        """The budgets in the run's precision, [R]."""
        return np.array(self.budgets, dtype=self.precision)

    @property
    def streams(self) -> tuple[int, ...]:
        """A number of its own for every algorithm and budget, so that no two runs of a seed share their noise, [R]."""
        return tuple(_digest(f"{self.algorithm} {budget!r}") for budget in self.budgets)

    def labels(self) -> list[dict[str, Any]]:
        """What each run is called in metrics, ledger and summary."""
        runs = [
            {"run": self.first + r, "algorithm": self.algorithm, "epsilon": epsilon}
            for r, epsilon in enumerate(self.budgets)
        ]
        return [run | {"seed": seed} for run, seed in zip(runs, self.seeds, strict=True)] if self.seeds else runs


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def sampling_rate(settings: Settings, algorithm: str) -> float:
    """q of an algorithm: its own unless the settings say otherwise."""
    own = ALGORITHMS[algorithm].sampling
    return (own or 1.0) if own is None or settings.sampling_rate == "auto" else float(settings.sampling_rate)


def batches(settings: Settings) -> list[Batch]:
    """One batch for each algorithm, over all epsilons and seeds; without noise at inf, and without samples one run."""
    hardened = settings.noise == HARDENED
    seeds = () if hardened else tuple(range(int(settings.seed), int(settings.seed) + settings.seeds))
    budgets_given = settings.total_epsilon if settings.mode == "certified" else settings.epsilon
    plan: list[Batch] = []
    for algorithm in settings.algorithm:
        noisy, samples = ALGORITHMS[algorithm].noisy, sampling_rate(settings, algorithm) < 1.0
        budgets = budgets_given if noisy else (math.inf,)
        own = seeds if noisy or samples else seeds[:1]
        each = tuple(epsilon for epsilon in budgets for _ in range(max(1, len(own))))
        first = plan[-1].first + plan[-1].size if plan else 0
        plan.append(Batch(algorithm, first, each, own * len(budgets), settings.precision))
    return plan
