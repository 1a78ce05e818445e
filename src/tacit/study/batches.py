"""From settings to runs: which runs there are, and which of them go side by side."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.algorithms import ALGORITHMS
from tacit.settings import Settings
from tacit.types import Array


@dataclass(frozen=True, eq=False)
class Batch:
    """The runs of one algorithm, which share every pass over the data."""

    algorithm: str
    first: int  # index of its first run in the study
    budgets: tuple[float, ...]  # [R]  epsilon as it was given: in total, or in mode paper of one local update
    seeds: tuple[int, ...]  # [R]
    precision: str

    @property
    def size(self) -> int:
        """R, the number of runs."""
        return len(self.seeds)

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
        return [
            {"run": self.first + r, "algorithm": self.algorithm, "epsilon": epsilon, "seed": seed}
            for r, (epsilon, seed) in enumerate(zip(self.budgets, self.seeds, strict=True))
        ]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def sampling_rate(settings: Settings, algorithm: str) -> float:
    """q of an algorithm: its own unless the settings say otherwise."""
    own = ALGORITHMS[algorithm].sampling
    return (own or 1.0) if own is None or settings.sampling_rate == "auto" else float(settings.sampling_rate)


def batches(settings: Settings) -> list[Batch]:
    """One batch for each algorithm, over all epsilons and seeds; without noise at inf, and without samples one run."""
    seeds = range(settings.seed, settings.seed + settings.seeds)
    budgets_given = settings.total_epsilon if settings.mode == "certified" else settings.epsilon
    grid = [(epsilon, seed) for epsilon in budgets_given for seed in seeds]
    plan: list[Batch] = []
    for algorithm in settings.algorithm:
        samples = sampling_rate(settings, algorithm) < 1.0
        alone = [(math.inf, seed) for seed in (seeds if samples else [settings.seed])]
        runs = grid if ALGORITHMS[algorithm].noisy else alone
        first = plan[-1].first + plan[-1].size if plan else 0
        budgets, chosen = zip(*runs, strict=True)
        plan.append(Batch(algorithm, first, budgets, chosen, settings.precision))
    return plan
