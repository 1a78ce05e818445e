"""A study: its batches of runs, its problem, and its algorithms."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from taciturn.algorithms import ALGORITHMS, Algorithm, AlgorithmConfig
from taciturn.algorithms.noisy_gradient import NoisyGradient
from taciturn.algorithms.schedules import Schedule
from taciturn.data import SOURCES, Facts, source_for
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.passes import COMPILED, PLAIN
from taciturn.privacy.noise import HARDENED
from taciturn.privacy.trust import AGENTS
from taciturn.runs.records import RunLabel
from taciturn.settings import Settings
from taciturn.types import Array, Dataset


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

    def labels(self) -> list[RunLabel]:
        """Return the label of each run in metrics, ledger and summary."""
        seeds = self.seeds or (None,) * self.size
        return [
            RunLabel(run=self.first + r, algorithm=self.algorithm, epsilon=epsilon, seed=seed)
            for r, (epsilon, seed) in enumerate(zip(self.budgets, seeds, strict=True))
        ]


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


if TYPE_CHECKING:
    from taciturn.planning.noise_plan import RunPlan


class StudyPart(NamedTuple):
    """One batch of a study, ready to run."""

    batch: Batch
    algorithm: Algorithm
    rounds: int  # T, or the fewer that the budget allows
    eta: Schedule
    plans: tuple[RunPlan, ...] = ()  # [R]  what each run means to spend; none in mode paper


class Study(NamedTuple):
    """Everything a study needs, checked, before anything is written."""

    settings: Settings  # with nothing left to fill in
    dataset: Dataset
    problem: Problem
    parts: list[StudyPart]
    facts: Facts | None = None  # what certified mode takes for public
    partition_key: int | None = None  # of private records that were dealt out or held out: it stays local

    @property
    def private_metrics(self) -> tuple[str, ...]:
        """What no noise covers, and is for the owner of the records alone in certified mode."""
        if self.facts is None or not self.dataset.train:  # a coordinator computes nothing from records
            return ()
        own: tuple[str, ...] = ("train_objective", "seconds")  # how long it took tells how many records there are
        if self.settings.trust != AGENTS:  # noise on a sum does not cover what single uploads tell
            own = (*own, "consensus_residual")
        return (*own, "test_error") if self.facts.test == "held-out" else own


def build_problem(settings: Settings, name: str, classes: bool, records: int, agents: int) -> Problem:
    """The objective that the settings make of a data set."""
    loss = LOSSES[settings.loss]()
    if loss.needs_classes and not classes:
        raise InputError(f"loss {settings.loss} needs classes, but the label of {name} is a number: use squared")
    feasible = SETS[settings.set](settings.set_size)
    passes = PLAIN if settings.backend == "numpy" else COMPILED
    return Problem(loss, REGULARISERS[settings.regulariser](), settings.beta, feasible, records, agents, passes)


def local_updates(settings: Settings, algorithm: str) -> int:
    """E of an algorithm: its own unless the settings say otherwise."""
    own = ALGORITHMS[algorithm].local_updates
    return (own or 1) if own is None or settings.local_updates == "auto" else int(settings.local_updates)


def upload_fields(algorithm: str) -> int:
    """How many arrays of the model's size an agent sends in a round."""
    return len(ALGORITHMS[algorithm].upload._fields)  # type: ignore[attr-defined]


def build_algorithm(
    settings: Settings,
    problem: Problem,
    batch: Batch,
    rho: Schedule,
    eta: Schedule,
    release: NoisyGradient,
    **cover: Any,
) -> Algorithm:
    """The batch's algorithm, ready to run; `cover` is what certified mode has for methods with noise of their own."""
    recipe = AlgorithmConfig(
        problem,
        batch.epsilon,
        rho,
        eta,
        release,
        closing=settings.mode == "certified",
        local_updates=local_updates(settings, batch.algorithm),
        delta=settings.delta,
        tolerance=settings.tolerance,
        radius=settings.radius,
        radius_scale=settings.radius_scale,
        outp_noise=settings.outp_noise,
        record_bound=float(settings.record_bound),
        sampling=sampling_rate(settings, batch.algorithm),
        **cover,
    )
    return ALGORITHMS[batch.algorithm].build(recipe)


def with_agents(settings: Settings, dataset: Dataset) -> Settings:
    """The settings with the number of agents there are, where a table's own agents go before the setting."""
    takes = "agents" in source_for(settings.data).takes
    return replace(settings, agents=len(dataset.agents)) if takes else settings


def check_record_bound(bound: float, dataset: Dataset) -> None:
    """Refuse a bound that a record exceeds."""
    blocks = (block for shard in dataset.train for block in shard.blocks())
    longest = max(float(np.sqrt((block.x**2).sum(axis=1)).max()) for block in blocks)
    if longest > bound * (1.0 + 1e-6):
        raise InputError(f"record-bound is {bound:g}, but a record of length {longest:g} exceeds it: raise the bound")


def with_absolute_paths(settings: Settings) -> Settings:
    """Return the settings with absolute paths, which are valid from any working directory."""
    names = ["data_dir", "schema", "test", "ledger", *([] if settings.data in SOURCES else ["data"])]
    paths: dict[str, Any] = {name: str(Path(value).resolve()) for name in names if (value := getattr(settings, name))}
    plugins = tuple(str(Path(value).resolve()) for value in settings.plugins)
    return replace(settings, plugins=plugins, **paths)
