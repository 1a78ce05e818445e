"""A study: its batches of runs, its problem, and its algorithms."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from taciturn.algorithms import ALGORITHMS, Algorithm, AlgorithmConfig
from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.algorithms.noisy_gradient import NoisyGradient
from taciturn.algorithms.schedules import Schedule
from taciturn.data import SOURCES, Facts, source_for
from taciturn.data.memory_names import is_in_memory
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.passes import COMPILED, PLAIN
from taciturn.planning.heuristics import Hyperparameters
from taciturn.privacy.trust import AGENTS
from taciturn.runs.records import RunLabel
from taciturn.settings import Settings
from taciturn.types import Array, Dataset

if TYPE_CHECKING:
    from taciturn.planning.noise_plan import NoisePlan, RunPlan


@dataclass(frozen=True, eq=False)
class Batch:
    """The runs of one algorithm, which share every pass over the data.

    Parameters
    ----------
    algorithm : str
        The name of the algorithm.
    first : int
        The index of its first run in the study.
    budgets : tuple of float, [R]
        epsilon as given: the total, or in mode paper that of one local update.
    seeds : tuple of int, [R]
        Empty if the noise has no seed.
    precision : str
        "float32" or "float64".
    """

    algorithm: str
    first: int
    budgets: tuple[float, ...]
    seeds: tuple[int, ...]
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
        """A number for every algorithm and budget, so that no two runs of one seed share their noise, [R]."""
        return tuple(_digest(f"{self.algorithm} {budget!r}") for budget in self.budgets)

    @property
    def checkpoint(self) -> str:
        """The file name of its checkpoint."""
        name = self.algorithm if ALGORITHMS[self.algorithm].batched else f"{self.algorithm}-{self.first}"
        return f"{name}.npz"

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
    """Return q of an algorithm: the setting, or the algorithm's default."""
    default = ALGORITHMS[algorithm].sampling
    if default is None:
        return 1.0
    return default if settings.sampling_rate == "auto" else float(settings.sampling_rate)


def local_updates(settings: Settings, algorithm: str) -> int:
    """Return E of an algorithm: the setting, or the algorithm's default."""
    default = ALGORITHMS[algorithm].local_updates
    if default is None:
        return 1
    return default if settings.local_updates == "auto" else int(settings.local_updates)


def upload_fields(algorithm: str) -> int:
    """Return how many arrays of the model's size an agent sends in a round."""
    return len(ALGORITHMS[algorithm].upload._fields)  # type: ignore[attr-defined]


def upload_bytes(settings: Settings, algorithm: str, parameters: int) -> int:
    """Return how many bytes an agent sends in one round of one run of a model with J K parameters."""
    return parameters * upload_fields(algorithm) * (8 if settings.precision == "float64" else 4)


def batches(settings: Settings) -> list[Batch]:
    """Return one batch for each algorithm, over all budgets and seeds.

    A method without noise has only the budget inf; if it draws no samples either, it has one run. A method that cannot
    share passes has a batch for each run.
    """
    seeds = () if settings.hardened else tuple(range(int(settings.seed), int(settings.seed) + settings.seeds))
    given = settings.total_epsilon if settings.mode == "certified" else settings.epsilon
    found: list[Batch] = []
    for algorithm, budgets in _methods(settings.algorithm, given):
        noisy, samples = ALGORITHMS[algorithm].noisy, sampling_rate(settings, algorithm) < 1.0
        own = seeds if noisy or samples else seeds[:1]
        each = tuple(epsilon for epsilon in budgets for _ in range(max(1, len(own))))
        size = len(each) if ALGORITHMS[algorithm].batched else 1
        for start in range(0, len(each), size):
            first = found[-1].first + found[-1].size if found else 0
            runs = slice(start, start + size)
            found.append(Batch(algorithm, first, each[runs], (own * len(budgets))[runs], settings.precision))
    return found


def _methods(names: tuple[str, ...], budgets: tuple[float, ...]) -> list[tuple[str, tuple[float, ...]]]:
    """Return the methods with their budgets; an infinite one may have a method of its own."""
    found: list[tuple[str, tuple[float, ...]]] = []
    for name in names:
        spec = ALGORITHMS[name]
        if spec.without_noise and math.inf in budgets:
            finite = tuple(budget for budget in budgets if budget < math.inf)
            found += [(name, finite)] if finite else []
            found += [(spec.without_noise, (math.inf,))] if spec.without_noise not in names else []
        else:
            found.append((name, budgets if spec.noisy else (math.inf,)))
    return found


class StudyPart(NamedTuple):
    """One batch of a study, ready to run.

    Parameters
    ----------
    batch : Batch
        The runs that share passes over the data.
    algorithm : Algorithm
        The algorithm, built for the batch.
    rounds : int
        T, or fewer if the budget allows fewer.
    eta : Schedule
        The proximity.
    plans : tuple of RunPlan, [R]
        The budget plan of each run; empty in mode paper.
    proposals : tuple of Hyperparameters, [R]
        The planner's values for each run; empty if the settings fix both rho and eta.
    measure : MeasureRelease, optional
        What agents release in a private evaluation.
    """

    batch: Batch
    algorithm: Algorithm
    rounds: int
    eta: Schedule
    plans: tuple[RunPlan, ...] = ()
    proposals: tuple[Hyperparameters, ...] = ()
    measure: MeasureRelease | None = None


class Study(NamedTuple):
    """Everything that a study needs, checked, before anything is written.

    Parameters
    ----------
    settings : Settings
        Without "auto" values that matter to the study.
    dataset : Dataset
        The records.
    problem : Problem
        The learning problem.
    parts : list of StudyPart
        One for each batch.
    facts : Facts, optional
        The public facts of certified mode.
    partition_key : int, optional
        The key by which private records were partitioned or held out; it stays local.
    """

    settings: Settings
    dataset: Dataset
    problem: Problem
    parts: list[StudyPart]
    facts: Facts | None = None
    partition_key: int | None = None

    @property
    def declared_sizes(self) -> tuple[int, ...]:
        """The most records that each agent may have, as declared, in the order of the agents.

        Raises
        ------
        TypeError
            If the study is in mode paper, which declares nothing.
        """
        if self.facts is None:
            raise TypeError("a study in mode paper has no public facts")
        return tuple(self.facts.records_of(agent) for agent in self.dataset.agents)

    @property
    def private_metrics(self) -> tuple[str, ...]:
        """The metrics without noise, which in certified mode only the owner of the records may see."""
        if self.facts is None or not self.dataset.train:  # a coordinator computes nothing from records
            return ()
        private: tuple[str, ...] = ("train_objective", "seconds")  # durations reveal the number of records
        if self.settings.trust != AGENTS:  # noise on a sum does not protect single uploads
            private = (*private, "consensus_residual")
        return (*private, "test_error") if self.facts.test == "held-out" else private


def loss_name(settings: Settings, classes: bool) -> str:
    """Return the loss of the settings; auto: softmax for classes, squared for a number."""
    return ("softmax" if classes else "squared") if settings.loss == "auto" else settings.loss


def build_problem(settings: Settings, name: str, classes: bool, records: int, agents: int) -> Problem:
    """Return the learning problem of a data set.

    Parameters
    ----------
    settings : Settings
        The settings.
    name : str
        The data set, for the error message.
    classes : bool
        Whether the label is a class.
    records, agents : int
        I and P.

    Raises
    ------
    InputError
        If the loss needs classes and the label is a number.
    """
    loss = LOSSES[settings.loss]()
    if loss.needs_classes and not classes:
        raise InputError(f"loss {settings.loss} needs classes, but the label of {name} is a number; use squared")
    feasible = SETS[settings.set](settings.set_size)
    passes = PLAIN if settings.backend == "numpy" else COMPILED
    return Problem(loss, REGULARISERS[settings.regulariser](), settings.beta, feasible, records, agents, passes)


def build_algorithm(
    settings: Settings,
    problem: Problem,
    batch: Batch,
    rho: Schedule,
    eta: Schedule,
    release: NoisyGradient,
    noise_plan: NoisePlan | None = None,
) -> Algorithm:
    """Return the batch's algorithm, ready to run; certified mode gives its noise plan."""
    config = AlgorithmConfig(
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
    )
    if noise_plan is not None:
        public = noise_plan.public
        config = replace(
            config,
            noise=noise_plan.noise,
            clipping=noise_plan.clipping,
            sensitivity=public.sensitivity.l2,
            trace=public.trace,
            rank=public.rank,
            rounds=noise_plan.rounds,
            clip=noise_plan.clip,
            blocks=noise_plan.blocks,
        )
    return ALGORITHMS[batch.algorithm].build(config)


def with_agents(settings: Settings, dataset: Dataset) -> Settings:
    """Return the settings with the data set's number of agents, which for a table overrides the setting."""
    takes = "agents" in source_for(settings.data).takes
    return replace(settings, agents=len(dataset.agents)) if takes else settings


def with_absolute_paths(settings: Settings) -> Settings:
    """Return the settings with absolute paths, which are valid from any working directory."""

    def absolute(given: str) -> str:
        return str(Path(given).resolve()) if given and not is_in_memory(given) else given

    return replace(
        settings,
        data=settings.data if settings.data in SOURCES else absolute(settings.data),
        data_dir=absolute(settings.data_dir),
        schema=absolute(settings.schema),
        test=absolute(settings.test),
        ledger=absolute(settings.ledger),
        plugins=tuple(map(absolute, settings.plugins)),
    )
