"""The theorems on a run's own records: its rounds are made again with the averages they are about."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tacit.engine.simulate import start
from tacit.engine.team import ALONE
from tacit.errors import InputError
from tacit.settings import Settings
from tacit.study.build import Part, Study, local_updates
from tacit.study.train import placed, rounds_of
from tacit.theory.check import Result, weigh
from tacit.theory.constants import compact, constants
from tacit.theory.limits import check_epsilons
from tacit.theory.measure import log_spaced, measure
from tacit.theory.optimum import optimum
from tacit.theory.theorems import NONSMOOTH, THEOREMS, Theorem

COVERED = ("objp", "objpm")  # Algorithm 1


class Checked(NamedTuple):
    """One algorithm of a run."""

    algorithm: str
    result: Result


def refuse_uncovered(settings: Settings) -> None:
    """What the theorems say nothing about, before any record is read."""
    if settings.mode != "paper":
        raise InputError("the theorems are about the paper's noise: they need a run of --mode paper")
    if not set(settings.algorithm) & set(COVERED):
        raise InputError(
            f"the theorems are about Algorithm 1, which is {' and '.join(COVERED)}; "
            f"this run has {', '.join(settings.algorithm)}"
        )
    if settings.set == "all":
        raise InputError("the theorems need a compact W, and this run has --set all: use --set box or l2-ball")
    check_epsilons(epsilon for epsilon in settings.epsilon if math.isfinite(epsilon))


def theorem_for(settings: Settings) -> Theorem:
    """The theorem whose step the run takes; one with a step of its own is held against theorem 2, which asks least."""
    return THEOREMS.get(str(settings.eta), NONSMOOTH)


def check_run(
    study: Study, gamma: float | None = None, watch: Callable[[Part, int], None] = lambda part, t: None
) -> list[Checked]:
    """Every algorithm of the run that the theorems are about, at its own epsilons, seeds and rounds."""
    refuse_uncovered(study.settings)
    shards, problem = study.dataset.train, study.problem
    compact(problem.feasible, shards[0].x.shape[1] * shards[0].y.shape[1])
    c, found, theorem = constants(problem, shards), optimum(problem, shards), theorem_for(study.settings)
    checked = []
    with placed(study, ALONE) as there:
        for part in there.parts:
            name, batch = part.batch.algorithm, part.batch
            if name not in COVERED:
                continue
            state = start(there.dataset.train, batch.size, study.settings.server, averages=True)
            steps = rounds_of(there, part, there.dataset.train, part.rounds, state)
            at = log_spaced(part.rounds)
            measured = measure(theorem, there.problem, there.dataset.train, steps, at, partial(watch, part))
            updates = local_updates(study.settings, name)
            checked.append(Checked(name, weigh(theorem, c, found, gamma, measured, batch.budgets, updates)))
    return checked
