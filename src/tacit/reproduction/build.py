"""A stage's algorithm, with the paper's parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby

import numpy as np

from tacit.algorithms import ALGORITHMS, Algorithm, Recipe
from tacit.algorithms.dp_iadmm import DpIadmm
from tacit.algorithms.outp import OutputPerturbation
from tacit.algorithms.releases.paper import PaperRelease
from tacit.algorithms.schedules import Beside, Constant, DynamicRho, NonsmoothEta, Schedule
from tacit.privacy.events import Event
from tacit.privacy.mechanisms.laplace_data_dependent import LaplaceDataDependent
from tacit.problems import LOSSES, REGULARISERS, SETS, Problem
from tacit.reproduction.plan import DYNAMIC, Case, Constants, Stage
from tacit.types import Array, Dataset

BETA, DELTA = 1e-6, 1e-6


def build_problem(dataset: Dataset) -> Problem:
    """Multiclass logistic regression with beta = 10^-6 and no constraint."""
    return Problem(
        LOSSES["softmax"](), REGULARISERS["l2"](), BETA, SETS["all"](1.0), dataset.records, len(dataset.agents)
    )


def build_algorithm(stage: Stage, constants: Constants, dataset: Dataset, precision: str) -> Algorithm:
    """OutP, ObjP or ObjPM for all cases of a stage."""
    epsilon = np.array([case.epsilon for case in stage.cases], precision)
    recipe = Recipe(
        build_problem(dataset),
        epsilon,
        rho=_beside(stage, epsilon, lambda case, mine: _rho(case, constants, mine)),
        eta=_beside(stage, epsilon, lambda case, mine: NonsmoothEta(mine, case.eta_scale)),
        release=PaperRelease(LaplaceDataDependent(epsilon)),
        local_updates=stage.local_updates,
        delta=DELTA,
        outp_noise=stage.outp_noise or "published",
        record_bound=_record_bound(dataset),
    )
    return ALGORITHMS[stage.algorithm].build(recipe)


def _beside(stage: Stage, epsilon: Array, schedule: Callable[[Case, Array], Schedule]) -> Schedule:
    """One schedule for each stretch of cases that differ in epsilon and seed alone."""
    stretches = [list(cases) for _, cases in groupby(stage.cases, key=lambda case: (case.penalty, case.eta_scale))]
    parts = np.split(epsilon, np.cumsum([len(cases) for cases in stretches])[:-1])
    return Beside(tuple(schedule(cases[0], part) for cases, part in zip(stretches, parts, strict=True)))


def _rho(case: Case, constants: Constants, epsilon: Array) -> Schedule:
    """rho-hat^t, a part of it, or a number."""
    dynamic, _, divisor = case.penalty.partition("/")
    if dynamic != DYNAMIC:
        return Constant(float(case.penalty), epsilon)
    part = 1.0 / float(divisor or 1)
    return DynamicRho(epsilon, part * constants.c1, part * constants.c2, constants.tc, cap=part * 1e9)


def _record_bound(dataset: Dataset) -> float:
    """sqrt(J): every pixel is within 0 and 1. A public bound, so larger than the longest record."""
    return math.sqrt(len(dataset.features))


def events(algorithm: Algorithm) -> tuple[Event, ...]:
    """What every local update of a run stands for: a nominal budget, or no noise at all, [R]."""
    if isinstance(algorithm, OutputPerturbation):
        return algorithm.mechanism.event.runs
    if isinstance(algorithm, DpIadmm) and isinstance(algorithm.release, PaperRelease):
        return algorithm.release.mechanism.event.runs
    raise TypeError(f"no events of {type(algorithm).__name__} are known")
