"""From settings and data to a problem and an algorithm."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tacit.algorithms import ALGORITHMS, Algorithm, Recipe
from tacit.algorithms.releases import Release
from tacit.algorithms.schedules import Schedule
from tacit.data import Facts, source_for
from tacit.errors import InputError
from tacit.privacy.trust import AGENTS
from tacit.problems import LOSSES, REGULARISERS, SETS, Problem
from tacit.problems.passes import COMPILED, PLAIN
from tacit.settings import Settings
from tacit.study.batches import Batch, sampling_rate
from tacit.types import Dataset

if TYPE_CHECKING:
    from tacit.study.protect import Plan


class Part(NamedTuple):
    """One batch of a study, ready to run."""

    batch: Batch
    algorithm: Algorithm
    rounds: int  # T, or the fewer that the budget allows
    eta: Schedule
    plans: tuple[Plan, ...] = ()  # [R]  what each run means to spend; none in mode paper


class Study(NamedTuple):
    """Everything a study needs, checked, before anything is written."""

    settings: Settings  # with nothing left to fill in
    dataset: Dataset
    problem: Problem
    parts: list[Part]
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
    settings: Settings, problem: Problem, batch: Batch, rho: Schedule, eta: Schedule, release: Release, **cover: Any
) -> Algorithm:
    """The batch's algorithm, ready to run; `cover` is what certified mode has for methods with noise of their own."""
    recipe = Recipe(
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
